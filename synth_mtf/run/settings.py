"""Whether the values of a run's settings are of the kind that they must be.

The host takes any value, and meets a wrong one late: in the middle of building
a graph, after the first evaluation, or never.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Optional

import gin
import mesh_tensorflow as mtf
from absl import flags

from synth_mtf.errors import UserError, nearest
from synth_mtf.host import bindings

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
_MODEL_TYPES = (
  'bitransformer',
  'lm',
  'delimited_lm',
  'aligned',
  'bi_student_teacher',
)
_DTYPES = ('float32', 'bfloat16', 'float16')
_BATCH_METHODS = (
  'sequences_per_batch',
  'tokens_per_batch',
  'sequences_per_replica',
  'tokens_per_replica',
)


class Kind(NamedTuple):
  """A kind of value.

  Attributes:
    expected: what it is, for a message.
    accepts: whether a value is one.
    options: words to choose from, where it is one of them.
  """

  expected: str
  accepts: Callable[[Any], bool]
  options: Collection[str] = ()

  def __or__(self, other: 'Kind') -> 'Kind':
    return Kind(
      f'{self.expected} or {other.expected}',
      lambda value: self.accepts(value) or other.accepts(value),
      (*self.options, *other.options),
    )


def _whole(minimum: int) -> Kind:
  return Kind(
    f'a whole number, at least {minimum}',
    # A bool is an int, and 1e5 is none.
    lambda value: type(value) is int and value >= minimum,
  )


def _one_of(*options: str) -> Kind:
  expected = f'one of {", ".join(options)}'
  return Kind(expected, lambda value: value in options, options)


def _is_number(value: Any) -> bool:
  return type(value) in (int, float)


def _compiles(value: Any) -> bool:
  try:
    re.compile(value)
  except (re.error, TypeError):
    return False
  return True


def _is_batch_size(value: Any) -> bool:
  return (
    isinstance(value, (list, tuple))
    and len(value) == 2
    and value[0] in _BATCH_METHODS
    and _POSITIVE.accepts(value[1])
  )


def _is_lengths(value: Any) -> bool:
  return (
    isinstance(value, dict)
    and bool(value)
    and all(isinstance(name, str) for name in value)
    and all(map(_POSITIVE.accepts, value.values()))
  )


def _is_factors(value: Any) -> bool:
  return isinstance(value, (list, tuple)) and all(
    _FUNCTION.accepts(item) or _is_number(item) for item in value
  )


def _is_mesh(value: Any) -> bool:
  try:
    return all(dim.size > 0 for dim in mtf.convert_to_shape(value).dims)
  except (ValueError, TypeError):
    return False


def _is_layout(value: Any) -> bool:
  try:
    mtf.convert_to_layout_rules(value)
  except (ValueError, TypeError):
    return False
  return True


_NOTHING = Kind('None', lambda value: value is None)
_TRUTH = Kind('True or False', lambda value: isinstance(value, bool))
_TEXT = Kind('a text', lambda value: isinstance(value, str))
_FUNCTION = Kind('a function such as @name', callable)
_POSITIVE = _whole(1)
_COUNT = _whole(0)
_ANY_WHOLE = Kind('a whole number', lambda value: type(value) is int)
_REGEX = Kind(
  'a regular expression',
  lambda value: isinstance(value, str) and _compiles(value),
)
_SHARE = Kind(
  'a number from 0 to below 1',
  lambda value: _is_number(value) and 0 <= value < 1,
)
_RATE = Kind(
  'a number, at least 0', lambda value: _is_number(value) and value >= 0
)

# By function or class, as gin names it, and parameter.
_KINDS: dict[str, dict[str, Kind]] = {
  'run': {
    'mode': _one_of(*MODES),
    'model_type': _one_of(*_MODEL_TYPES),
    'train_steps': _POSITIVE | _FUNCTION,
    'total_run_steps': _POSITIVE | _NOTHING,
    'batch_size': _POSITIVE
    | Kind(
      f'a pair of {" / ".join(_BATCH_METHODS)} and a number', _is_batch_size
    ),
    'sequence_length': _POSITIVE
    | Kind("lengths such as {'inputs': 512, 'targets': 114}", _is_lengths)
    | _NOTHING,
    'save_checkpoints_steps': _POSITIVE,
    'iterations_per_loop': _POSITIVE,
    'keep_checkpoint_max': _COUNT | _NOTHING,
    'perplexity_eval_steps': _POSITIVE,
    'seen_data_init_step': _COUNT,
    'ensemble_inputs': _POSITIVE | _NOTHING,
    'learning_rate_schedule': _RATE
    | _FUNCTION
    | Kind('a list of such', _is_factors)
    | _NOTHING,
    'optimizer': _FUNCTION | _NOTHING,
    'train_dataset_fn': _FUNCTION | _NOTHING,
    'eval_dataset_fn': _FUNCTION | _NOTHING,
    'train_model_fn': _FUNCTION,
    'predict_fn': _FUNCTION | _NOTHING,
    'variable_filter': _REGEX | _FUNCTION | _NOTHING,
    'dataset_split': _TEXT,
    'init_checkpoint': _TEXT | _NOTHING,
    'export_path': _TEXT,
    'eval_summary_dir': _TEXT | _NOTHING,
    'eval_dir_suffix': _TEXT | _NOTHING,
    'autostack': _TRUTH,
    'skip_seen_data': _TRUTH,
    'output_eval_examples': _TRUTH,
    'checkpoint_input_pipeline': _TRUTH,
    'mesh_shape': Kind("a mesh such as 'model:2,batch:4'", _is_mesh),
    'layout_rules': Kind("rules such as 'batch:batch,d_ff:model'", _is_layout),
    'mesh_devices': Kind(
      "a list of names such as ['gpu:0', 'gpu:1']",
      lambda value: (
        isinstance(value, (list, tuple)) and all(map(_TEXT.accepts, value))
      ),
    )
    | _NOTHING,
  },
  'get_variable_dtype': {
    'master_dtype': _one_of(*_DTYPES),
    'slice_dtype': _one_of(*_DTYPES),
    'activation_dtype': _one_of(*_DTYPES),
  },
  'serialize_num_microbatches': {
    'tokens_per_microbatch_per_replica': _POSITIVE | _NOTHING
  },
  'tpu_estimator_model_fn': {'init_variable_filter': _REGEX},
  'tpu_mesh_shape': {'model_parallelism': _POSITIVE},
  'get_checkpoint_iterator': {
    'skip_until': _COUNT,
    'stop_after': _COUNT | _NOTHING,
    'find_closest': _TRUTH,
  },
  'mesh_train_dataset_fn': {
    'mixture_or_task_name': _TEXT,
    'seed': _ANY_WHOLE | _NOTHING,
    'shuffle': _TRUTH,
    'use_cached': _TRUTH,
    'pack': _TRUTH,
  },
  'mesh_eval_dataset_fn': {
    'mixture_or_task_name': _TEXT,
    'num_eval_examples': _ANY_WHOLE | _NOTHING,
    'use_cached': _TRUTH,
    'pack': _TRUTH,
    'shuffle_eval_examples': _TRUTH,
  },
  'decode_from_file': {
    'input_filename': _TEXT,
    'output_filename': _TEXT,
    'repeats': _POSITIVE,
  },
  'train_with_progress': {
    'seed': _COUNT | _NOTHING,
    'attention_every': _POSITIVE | _NOTHING,
  },
  'make_layer_stack': {'num_layers': _POSITIVE},
  'Unitransformer': {
    'd_model': _POSITIVE,
    'max_length': _POSITIVE,
    'label_smoothing': _SHARE,
    'positional_embedding': _TRUTH,
    'shared_embedding_and_softmax_weights': _TRUTH,
  },
  'DenseReluDense': {'hidden_size': _POSITIVE, 'dropout_rate': _SHARE},
  'SelfAttention': {
    'num_heads': _POSITIVE,
    'key_value_size': _POSITIVE,
    'dropout_rate': _SHARE,
    'relative_attention_num_buckets': _POSITIVE,
  },
  'LayerStack': {'dropout_rate': _SHARE | _NOTHING},
  'sublayer_dropout': {'dropout_rate': _SHARE},
  'rate_num_examples': {'maximum': _RATE | _NOTHING, 'scale': _RATE},
}


def check() -> None:
  """Checks what gin holds.

  Raises:
    UserError: all wrong values, or macros that nothing reads.
  """
  faults = [fault for fault in map(_fault, bindings.bindings()) if fault]
  if faults:
    raise UserError('. '.join(faults) + '.')
  _check_macros()


def check_lengths(run: dict[str, Any]) -> None:
  """Checks that each side of the model has a length.

  Args:
    run: gin's bindings of `utils.run`.

  Raises:
    UserError: one is missing.
  """
  lengths = run.get('sequence_length')
  is_pair = run.get('model_type', 'bitransformer').startswith('bi')
  wanted = ('inputs', 'targets') if is_pair else ('targets',)
  if lengths is None:
    mode = run.get('mode', 'train')
    if mode in ('eval', 'score_eval'):  # found in the examples
      return
    raise UserError(
      f'utils.run.sequence_length is not set, and mode {mode!r} needs it: give '
      "--gin_param=\"utils.run.sequence_length = {'inputs': 512, 'targets': "
      '114}".'
    )
  missing = [
    name for name in wanted if isinstance(lengths, dict) and name not in lengths
  ]
  if missing:
    raise UserError(
      f'utils.run.sequence_length = {lengths!r} has no length of '
      f'{" and ".join(map(repr, missing))}'
      + ''.join(nearest(name, lengths) for name in missing)
    )


def _fault(binding: bindings.Binding) -> Optional[str]:
  kind = _KINDS.get(binding.owner, {}).get(binding.parameter)
  if kind is None or binding.raw is gin.REQUIRED:
    return None
  value = binding.value
  if value is gin.REQUIRED or kind.accepts(value):
    return None
  macro = bindings.macro_of(binding.raw)
  return (
    f'{binding.shown} = {value!r}'
    + (f' (through {macro} = {value!r})' if macro else '')
    + f': expected {kind.expected}{nearest(value, kind.options)}'
  )


def _check_macros() -> None:
  """Refuses a macro of the command line that changes nothing.

  In a gin file it is no mistake: a file may serve several kinds of runs.
  """
  read = bindings.macros_read()
  for name in bindings.macros_defined(flags.FLAGS.gin_param or []):
    if name not in read:
      raise UserError(
        f'--gin_param: nothing reads {name}'
        + (nearest(name, read) or f'; what is read: {", ".join(sorted(read))}')
        + '\nA setting is written with the name of its owner, as in '
        'utils.run.train_steps.'
      )
