"""Whether gin's values have the types that their functions expect.

The host takes any value and meets a wrong one late: while building a graph,
after the first evaluation, or never. What a function expects is read from its
signature: the annotation of a parameter or else the type of its default. For
`utils.run`, which has few of either, it is the annotation in `RunConfig`.
"""

import collections.abc
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, Optional, Union

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf.errors import UserError, nearest
from synth_mtf.host import bindings

_RUN = 'mesh_tensorflow.transformer.utils.run'

# A type, how a message describes it, and what a value must pass: a test that
# returns False or raises fails.
Positive = Annotated[int, 'a whole number, at least 1', lambda v: v >= 1]
NonNegative = Annotated[float, 'a number, at least 0', lambda v: v >= 0]
Share = Annotated[float, 'a number from 0 to below 1', lambda v: 0 <= v < 1]
Regex = Annotated[str, 'a regular expression', re.compile]
Names = Annotated[Sequence[str], "a list of names such as ['gpu:0', 'gpu:1']"]
Mesh = Annotated[
  Any,
  "a mesh such as 'model:2,batch:4'",
  lambda v: all(dim.size > 0 for dim in mtf.convert_to_shape(v).dims),
]
Layout = Annotated[
  Any, "rules such as 'batch:batch,d_ff:model'", mtf.convert_to_layout_rules
]
_NotNegative = Annotated[
  Any,
  'a number, at least 0',
  lambda v: not isinstance(v, (int, float)) or v >= 0,
]
_Dtype = Literal['float32', 'bfloat16', 'float16']
_NAMES = {
  int: 'a whole number',
  float: 'a number',
  str: 'a text',
  bool: 'True or False',
  type(None): 'None',
}


def check(run: Mapping[str, Any]) -> None:
  """Checks the bindings that gin holds, and the macros of the command line.

  Args:
    run: the types of the arguments of `utils.run`.

  Raises:
    UserError: values of a wrong type, or a macro that nothing reads.
  """
  faults = [fault for b in bindings.bindings() if (fault := _fault(b, run))]
  if faults:
    raise UserError('. '.join(faults) + '.')
  _check_macros()


def _fault(binding: bindings.Binding, run: Mapping[str, Any]) -> Optional[str]:
  if binding.selector == _RUN:
    hint = run.get(binding.parameter, Any)
  else:
    hint = _declared(binding)
  if hint is Any or binding.is_call or binding.raw is gin.REQUIRED:
    return None
  value = binding.value
  if value is gin.REQUIRED or _accepts(hint, value):
    return None
  return (
    f'{binding}: expected {_describe(hint)}{nearest(value, _options(hint))}'
  )


def _declared(binding: bindings.Binding) -> Any:
  """The type that a function declares for a parameter."""
  declaration = binding.declaration
  if declaration is None:
    return Any
  default = declaration.default
  if 'dropout_rate' in binding.parameter or 'smoothing' in binding.parameter:
    return Optional[Share] if default is None else Share
  if binding.parameter.endswith('_filter') and isinstance(default, str):
    return Regex
  if declaration.annotation is not declaration.empty:
    return declaration.annotation
  if isinstance(default, bool):
    return bool
  if isinstance(default, (int, float)):
    return NonNegative if default >= 0 else float
  if isinstance(default, tf.DType):
    return _Dtype
  if default is gin.REQUIRED:
    return _NotNegative
  return Any


def _accepts(hint: Any, value: Any) -> bool:
  """Whether a value has a type; a type that is not known has every value."""
  origin, options = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    kind, _, *tests = options
    try:
      return _accepts(kind, value) and all(
        test(value) is not False for test in tests
      )
    except (ValueError, TypeError, re.error):
      return False
  if origin is Union:
    return any(_accepts(option, value) for option in options)
  if origin is Literal:
    return value in options
  if origin is collections.abc.Callable:
    return callable(value)
  if origin is tuple:
    return _is_list(value, len(options)) and all(map(_accepts, options, value))
  if origin is collections.abc.Sequence:
    return _is_list(value) and all(_accepts(options[0], x) for x in value)
  if origin is collections.abc.Mapping:
    return (
      isinstance(value, dict)
      and bool(value)
      and all(_accepts(options[0], key) for key in value)
      and all(_accepts(options[1], x) for x in value.values())
    )
  if hint is float:
    return type(value) in (int, float)
  return type(value) is hint if hint in _NAMES else True


def _is_list(value: Any, length: Optional[int] = None) -> bool:
  return isinstance(value, (list, tuple)) and length in (None, len(value))


def _describe(hint: Any) -> str:
  origin, options = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    return str(options[1])
  if origin is Union:
    return ' or '.join(map(_describe, options))
  if origin is Literal:
    return f'one of {", ".join(map(str, options))}'
  if origin is collections.abc.Callable:
    return 'a function such as @name'
  if origin is tuple:
    return f'a pair of {" and ".join(map(_describe, options))}'
  if origin is collections.abc.Sequence:
    return f'a list, each item {_describe(options[0])}'
  if origin is collections.abc.Mapping:
    return "lengths such as {'inputs': 512, 'targets': 114}"
  return _NAMES.get(hint, str(hint))


def _options(hint: Any) -> Collection[str]:
  """The words that a type allows."""
  if typing.get_origin(hint) is Literal:
    return typing.get_args(hint)
  return [word for part in typing.get_args(hint) for word in _options(part)]


def _check_macros() -> None:
  """Refuses a macro on the command line that changes nothing.

  In a gin file it is no mistake: a file may serve several kinds of runs.
  """
  read = bindings.macros_read()
  params = flags.FLAGS.gin_param if flags.FLAGS.is_parsed() else None
  for name in bindings.macros_defined(params or []):
    if name not in read:
      raise UserError(
        f'--gin_param: nothing reads {name}'
        + (nearest(name, read) or f'; what is read: {", ".join(sorted(read))}')
        + '\nA setting starts with the name of its function, as in '
        'utils.run.train_steps.'
      )
