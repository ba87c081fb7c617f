"""Reads the configuration of a run of T5's main, and checks all gin values."""

import inspect
import re
import types
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf.errors import UserError, nearest
from synth_mtf.host import bindings, explanations, gin_files
from synth_mtf.host.run_config import FEATURES, RunConfig

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
# Those in which a model of type 'lm' needs the length of the inputs.
_LM_WITH_INPUTS = ('eval', 'score_eval', 'infer', 'export_infer', 'export')


class Check(NamedTuple):
  """What values a parameter accepts.

  Attributes:
    expected: a description for messages.
    test: returns something falsy or raises for a wrong value.
    words: the values, if they are a few words.
  """

  expected: str
  test: Callable[[Any], Any]
  words: tuple[str, ...] = ()

  def passes(self, value: Any) -> bool:
    try:
      return bool(self.test(value))
    except (ValueError, TypeError, AttributeError, LookupError, re.error):
      return False


def _is_number(value: Any) -> bool:
  return type(value) in (int, float)


def _is_text(value: Any) -> bool:
  return isinstance(value, str)


def _is_positive(value: Any) -> bool:
  return type(value) is int and value >= 1


def _are_lengths(value: Any) -> bool:
  if isinstance(value, dict):
    return bool(value) and all(map(_is_positive, value.values()))
  return _is_positive(value)


def _is_batch_size(value: Any) -> bool:
  if _is_positive(value):
    return True
  unit, number = value
  is_unit = re.fullmatch('(tokens|sequences)_per_(batch|replica)', unit)
  return is_unit is not None and _is_positive(number)


def _are_layout_rules(value: Any) -> bool:
  mtf.convert_to_layout_rules(value)
  rules = value
  if isinstance(value, str):
    texts = filter(None, re.split('[;,]', value))
    rules = [tuple(text.split(':')) for text in texts]
  return len({dim for dim, _ in set(rules)}) == len(set(rules))


def _is_learning_rate(value: Any) -> bool:
  rates = value if isinstance(value, list) else [value]
  for rate in rates:
    if callable(rate):
      _check_takes(rate, 'step', 'total_train_steps')
    elif not _is_number(rate) or rate < 0:
      return False
  return bool(rates)


def _is_optimizer(value: Any) -> bool:
  _check_takes(value, 'learning_rate')
  return True


def _check_takes(function: Any, *arguments: str) -> None:
  """Raises a TypeError if a function does not take arguments of these names."""
  inspect.signature(function).bind_partial(**dict.fromkeys(arguments))


def _are_functions(value: Any) -> bool:
  return isinstance(value, (list, tuple)) and all(map(callable, value))


def _is_float_type(value: Any) -> bool:
  return tf.as_dtype(value) in (tf.float32, tf.bfloat16, tf.float16)


def _one_of(*words: str) -> Check:
  return Check(f'one of {", ".join(words)}', words.__contains__, words)


_POSITIVE = Check(
  'a whole number, at least 1', lambda v: _is_positive(v) and v < 2**63
)
_PLAIN: dict[Any, Check] = {
  int: Check('a whole number', lambda v: type(v) is int),
  float: Check('a number', _is_number),
  str: Check('a string', _is_text),
  bool: Check('True or False', lambda v: isinstance(v, bool)),
  type(None): Check('None', lambda v: v is None),
}
_SHARE = Check(
  'a number from 0 to below 1',
  lambda v: _is_number(v) and 0 <= v < 1,
)
_SEED = Check(
  'a whole number of 64 bits',
  lambda v: type(v) is int and -(2**63) <= v < 2**63,
)
_PATTERN = Check('a regular expression', re.compile)
_FUNCTION = Check('a function or class such as @name', callable)
_FUNCTIONS = Check(
  'a list of functions or classes such as [@name]', _are_functions
)
_FLOAT_TYPE = Check("a type such as 'float32' or 'bfloat16'", _is_float_type)
# Names of parameters that are sizes in every function of the host and of ours.
# Their default may be None.
_SIZE = re.compile(
  r'num_(heads|memory_heads|layers|unique_depth_filters)|d_model|ensemble|'
  r'(?!batch_)\w+_(size|divisor|buckets|relative_pos)|'
  r'(tile|max|memory_max)_length'
)
_OF_RUN: dict[str, Check] = {
  'mode': _one_of(*MODES),
  'model_type': _one_of(
    'bitransformer', 'lm', 'delimited_lm', 'aligned', 'bi_student_teacher'
  ),
  'sequence_length': Check(
    "lengths such as {'inputs': 512, 'targets': 114}", _are_lengths
  ),
  'batch_size': Check(
    "a whole number, at least 1, or a pair such as ('tokens_per_batch', 65536)",
    _is_batch_size,
  ),
  'mesh_shape': Check(
    "a mesh such as 'model:2,batch:4'",
    lambda v: all(dim.size > 0 for dim in mtf.convert_to_shape(v).dims),
  ),
  'layout_rules': Check(
    "rules such as 'batch:batch,d_ff:model', one for each dimension",
    _are_layout_rules,
  ),
  'mesh_devices': Check(
    "a list of names such as ['gpu:0', 'gpu:1']",
    lambda v: isinstance(v, (list, tuple)) and all(map(_is_text, v)),
  ),
  'train_steps': Check(
    'a whole number, at least 1, or a function such as @name',
    lambda v: callable(v) or _POSITIVE.test(v),
  ),
  'iterations_per_loop': _POSITIVE,
  'save_checkpoints_steps': _POSITIVE,
  'keep_checkpoint_max': Check(
    'a whole number, at least 0 (which keeps all)',
    lambda v: v == 0 or _POSITIVE.test(v),
  ),
  'total_run_steps': _POSITIVE,
  'perplexity_eval_steps': _POSITIVE,
  'learning_rate_schedule': Check(
    'a number, at least 0, a schedule such as '
    '@learning_rate_schedules.constant, or a list of such',
    _is_learning_rate,
  ),
  'optimizer': Check(
    'a class of optimizers such as @AdafactorOptimizer', _is_optimizer
  ),
  'init_checkpoint': Check('the path of a checkpoint', _is_text),
  'eval_summary_dir': Check('the path of a folder', _is_text),
  'eval_dir_suffix': _PLAIN[str],
  'ensemble_inputs': _PLAIN[int],
  'export_path': Check('the path of a folder', _is_text),
  'variable_filter': Check(
    'a regular expression or a function',
    lambda v: callable(v) or re.compile(v),
  ),
}


_BY_NAME: dict[str, Check] = {
  'seed': _SEED,
  'mixture_or_task_name': _PLAIN[str],
  'layers': _FUNCTIONS,
  'layer': _FUNCTION,
  'cls': _FUNCTION,
  'tokens_per_microbatch_per_replica': _POSITIVE,
}


def read(model_dir: str, tpu: str | None = None) -> RunConfig:
  """Returns the run that gin describes, after checking all gin values."""
  check_values()
  run = RunConfig(model_dir=model_dir, tpu=tpu)
  run.resolve()
  if run.lengths is not None or run.mode not in ('eval', 'score_eval'):
    _check_lengths(run)  # else the examples determine the lengths
  return run


def _check_lengths(run: RunConfig) -> None:
  """Checks that the lengths of the features that a run reads are known."""
  lengths = run.lengths or {}
  needs_inputs = run.model_type != 'lm' or run.mode in _LM_WITH_INPUTS
  needed = FEATURES if needs_inputs else ('targets',)
  missing = [feature for feature in needed if feature not in lengths]
  if missing:
    hint = ''.join(nearest(feature, lengths) for feature in missing) or '.'
    raise UserError(
      f'utils.run.sequence_length = {run.lengths!r}: mode {run.mode!r} needs '
      f'the length of {" and ".join(map(repr, missing))}{hint} Give '
      '--gin_param="utils.run.sequence_length = '
      "{'inputs': 512, 'targets': 114}\"."
    )
  if needs_inputs and lengths['inputs'] < 2:
    raise UserError(
      f'utils.run.sequence_length = {run.lengths!r}: inputs of one token '
      "hold only the end-of-sequence token, and T5's span corruption would "
      'split a text into empty parts forever; give inputs at least 2'
    )


def check_values() -> None:
  """Checks that gin values have the types that their functions expect.

  The host accepts any value, and fails on a wrong one late: while building a
  graph, after the first evaluation, or never. The expected type is read from
  the function's signature: a parameter's annotation, or else its default if
  that is a number. For `utils.run`, which has few of either, a table lists the
  types.
  """
  faults: dict[str, str] = {}
  for binding in bindings.bindings():
    check = None if binding.is_call else _declared(binding)
    if check is None or gin.REQUIRED in (binding.raw, binding.value):
      continue
    if not check.passes(binding.value):
      hint = nearest(binding.value, check.words)
      # Many bindings may have their value from one macro.
      cause = bindings.macro_of(binding.raw) or str(binding)
      faults.setdefault(
        cause, f'{binding}: expected {check.expected}{hint or "."}'
      )
  if faults:
    raise UserError(' '.join(faults.values()))
  _check_macros()


def _declared(binding: bindings.Binding) -> Check | None:
  """Returns the check declared for a parameter; None if it accepts anything.

  That sizes are at least 1 is checked by building the model.
  """
  name, declaration = binding.parameter, binding.declaration
  if declaration is None:
    return None
  default: Any = declaration.default
  if default is None and binding.value is None:
    return None
  if binding.selector.endswith('transformer.utils.run') and name in _OF_RUN:
    return _OF_RUN[name]
  if name in _BY_NAME:
    return _BY_NAME[name]
  if binding.selector.endswith('utils.get_variable_dtype'):
    return _FLOAT_TYPE
  if 'dropout_rate' in name or 'smoothing' in name:
    return _SHARE
  if name.endswith('_filter') and isinstance(default, str):
    return _PATTERN
  if name.startswith('sublayers_'):
    return _FUNCTIONS
  if isinstance(default, bool):
    return _PLAIN[bool]
  is_function = callable(default) and default is not declaration.empty
  if is_function or name.endswith(('_fn', '_cls')):
    return _FUNCTION
  if _SIZE.fullmatch(name):
    return _PLAIN[int]
  if declaration.annotation is not declaration.empty:
    return _annotated(declaration.annotation)
  return _PLAIN[float] if _is_number(default) else None


def _annotated(annotation: Any) -> Check | None:
  """Returns the check for a type; None if it accepts anything."""
  options = get_args(annotation)
  if get_origin(annotation) is Literal:
    return _one_of(*options)
  if get_origin(annotation) not in (Union, types.UnionType):
    return _PLAIN.get(annotation)
  checks = []
  for option in options:
    check = _annotated(option)
    if check is None:
      return None
    checks.append(check)
  return Check(
    ' or '.join(check.expected for check in checks),
    lambda value: any(check.passes(value) for check in checks),
  )


def _check_macros() -> None:
  """Rejects a macro on the command line that nothing reads.

  Unused macros in a gin file are fine: it may serve several kinds of runs.
  """
  read = bindings.macros_read()
  params = flags.FLAGS.gin_param if flags.FLAGS.is_parsed() else None
  for name in gin_files.bindings('\n'.join(params or [])):
    if name not in read and not re.search('[./]', name):
      raise UserError(explanations.unread_macro(name, read))
