"""Checks that gin values have the types that their functions expect.

The host accepts any value, and fails on a wrong one late: while building a
graph, after the first evaluation, or never. The expected type is read from the
function's signature: a parameter's annotation, or else the type of its default.
For `utils.run`, which has few of either, a table lists the types.
"""

import re
import typing
from collections.abc import Callable
from typing import Any, Literal, Optional, Union

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf.errors import UserError, nearest
from synth_mtf.host import bindings, gin_files

_RUN = 'mesh_tensorflow.transformer.utils.run'
MODES = (
  'train',
  'eval',
  'score_eval',
  'perplexity_eval',
  'infer',
  'score_from_dataset',
  'score_from_strings',
  'export_score',
  'export_infer',
  'export',
)
_MODELS = 'bitransformer', 'lm', 'delimited_lm', 'aligned', 'bi_student_teacher'
_BATCH_METHOD = re.compile('(tokens|sequences)_per_(batch|replica)')


def _is_number(value: Any) -> bool:
  return type(value) in (int, float)


def _is_rate(value: Any) -> bool:
  return callable(value) or (_is_number(value) and value >= 0)


def _is_positive(value: Any) -> bool:
  return type(value) is int and value >= 1


# A description for messages, and a test that is falsy or raises for a wrong
# value.
Kind = tuple[str, Callable[[Any], Any]]
_REGEX: Kind = ('a regular expression', re.compile)
_POSITIVE: Kind = ('a whole number, at least 1', _is_positive)
_PLAIN: dict[Any, Kind] = {
  int: ('a whole number', lambda v: type(v) is int),
  float: ('a number', _is_number),
  str: ('a text', lambda v: isinstance(v, str)),
  bool: ('True or False', lambda v: isinstance(v, bool)),
  type(None): ('None', lambda v: v is None),
}


def _one_of(*words: str) -> Kind:
  return f'one of {", ".join(words)}', words.__contains__


_OF_RUN: dict[str, Kind] = {
  'mode': _one_of(*MODES),
  'model_type': _one_of(*_MODELS),
  'sequence_length': (
    "lengths such as {'inputs': 512, 'targets': 114}",
    lambda v: (
      v is None or _is_positive(v) or (v and all(map(_is_positive, v.values())))
    ),
  ),
  'batch_size': (
    "a whole number, at least 1, or a pair such as ('tokens_per_batch', 65536)",
    lambda v: (
      _is_positive(v) or (_BATCH_METHOD.fullmatch(v[0]) and _is_positive(v[1]))
    ),
  ),
  'mesh_shape': (
    "a mesh such as 'model:2,batch:4'",
    lambda v: all(dim.size > 0 for dim in mtf.convert_to_shape(v).dims),
  ),
  'layout_rules': (
    "rules such as 'batch:batch,d_ff:model'",
    mtf.convert_to_layout_rules,
  ),
  'mesh_devices': (
    "a list of names such as ['gpu:0', 'gpu:1']",
    lambda v: v is None or isinstance(v, (list, tuple)),
  ),
  'train_steps': (
    'a whole number, at least 1, or a function such as @name',
    lambda v: callable(v) or _is_positive(v),
  ),
  'iterations_per_loop': _POSITIVE,
  'save_checkpoints_steps': _POSITIVE,
  'perplexity_eval_steps': _POSITIVE,
  'learning_rate_schedule': (
    'a number, at least 0, a function such as @name, or a list of such',
    lambda v: (
      v is None
      or (all(map(_is_rate, v)) if isinstance(v, list) else _is_rate(v))
    ),
  ),
  'optimizer': ('a function such as @name', callable),
  'init_checkpoint': (
    'the path of a checkpoint',
    lambda v: v is None or isinstance(v, str),
  ),
  'variable_filter': (
    'a regular expression or a function',
    lambda v: v is None or callable(v) or re.compile(v),
  ),
}


def check() -> None:
  """Checks all gin bindings, and the macros given on the command line."""
  faults = []
  for binding in bindings.bindings():
    kind = None if binding.is_call else _declared(binding)
    if kind and gin.REQUIRED not in (binding.raw, binding.value):
      description, test = kind
      try:
        passes = test(binding.value)
      except (ValueError, TypeError, AttributeError, LookupError, re.error):
        passes = False
      if not passes:
        words = description.removeprefix('one of ').split(', ')
        hint = nearest(binding.value, words)
        faults.append(f'{binding}: expected {description}{hint}')
  if faults:
    raise UserError('. '.join(faults) + '.')
  _check_macros()


def _declared(binding: bindings.Binding) -> Optional[Kind]:
  """Returns the kind declared for a parameter; None if it accepts anything."""
  name = binding.parameter
  if binding.selector == _RUN and name in _OF_RUN:
    return _OF_RUN[name]
  declaration = binding.declaration
  if declaration is None:
    return None
  default = declaration.default
  if 'dropout_rate' in name or 'smoothing' in name:
    return (
      'a number from 0 to below 1',
      lambda v: v is default is None or (_is_number(v) and 0 <= v < 1),
    )
  if name.endswith('_filter') and isinstance(default, str):
    return _REGEX
  if declaration.annotation is not declaration.empty:
    return _annotated(declaration.annotation)
  if isinstance(default, bool):
    return _PLAIN[bool]
  if isinstance(default, tf.DType):
    return _one_of('float32', 'bfloat16', 'float16')
  # A required value may also have another type, such as a list.
  if default is gin.REQUIRED or (_is_number(default) and default >= 0):
    return (
      'a number, at least 0',
      lambda v: v >= 0 if _is_number(v) else default is gin.REQUIRED,
    )
  return _PLAIN[float] if _is_number(default) else None


def _annotated(annotation: Any) -> Optional[Kind]:
  options = typing.get_args(annotation)
  if typing.get_origin(annotation) is Literal:
    return _one_of(*options)
  if typing.get_origin(annotation) is not Union:
    return _PLAIN.get(annotation)
  kinds = [kind for kind in map(_annotated, options) if kind]
  return (
    ' or '.join(description for description, _ in kinds),
    lambda v: len(kinds) < len(options) or any(test(v) for _, test in kinds),
  )


def _check_macros() -> None:
  """Rejects a macro on the command line that nothing reads.

  Unused macros in a gin file are fine: it may serve several kinds of runs.
  """
  read = bindings.macros_read()
  params = flags.FLAGS.gin_param if flags.FLAGS.is_parsed() else None
  for name in gin_files.bindings('\n'.join(params or [])):
    if name not in read and not re.search('[./]', name):
      raise UserError(
        f'--gin_param: nothing reads {name}'
        + (nearest(name, read) or f'; what is read: {", ".join(sorted(read))}')
        + '\nA setting starts with the name of its function, as in '
        'utils.run.train_steps.'
      )
