"""The configuration of a run of T5's main, and checks of all gin values."""

import inspect
import re
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin

import gin
import mesh_tensorflow as mtf
import seqio
from absl import flags
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError, nearest
from synth_mtf.host import bindings, gin_files

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


def _is_number(value: Any) -> bool:
  return type(value) in (int, float)


def _is_positive(value: Any) -> bool:
  return type(value) is int and value >= 1


# A description for messages, and a test that is falsy or raises for a wrong
# value.
Kind = tuple[str, Callable[[Any], Any]]
_POSITIVE: Kind = ('a whole number, at least 1', _is_positive)
_PLAIN: dict[Any, Kind] = {
  int: ('a whole number', lambda v: type(v) is int),
  float: ('a number', _is_number),
  str: ('a string', lambda v: isinstance(v, str)),
  bool: ('True or False', lambda v: isinstance(v, bool)),
  type(None): ('None', lambda v: v is None),
}
_SHARE: Kind = (
  'a number from 0 to below 1',
  lambda v: _is_number(v) and 0 <= v < 1,
)


def _one_of(*words: str) -> Kind:
  return f'one of {", ".join(words)}', words.__contains__


_OF_RUN: dict[str, Kind] = {
  'mode': _one_of(*MODES),
  'model_type': _one_of(
    'bitransformer', 'lm', 'delimited_lm', 'aligned', 'bi_student_teacher'
  ),
  'sequence_length': (
    "lengths such as {'inputs': 512, 'targets': 114}",
    lambda v: _is_positive(v) or (v and all(map(_is_positive, v.values()))),
  ),
  'batch_size': (
    "a whole number, at least 1, or a pair such as ('tokens_per_batch', 65536)",
    lambda v: (
      _is_positive(v)
      or (
        re.fullmatch('(tokens|sequences)_per_(batch|replica)', v[0])
        and _is_positive(v[1])
        and len(v) == 2
      )
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
    lambda v: isinstance(v, (list, tuple)),
  ),
  'train_steps': (
    'a whole number, at least 1, or a function such as @name',
    lambda v: callable(v) or _is_positive(v),
  ),
  'iterations_per_loop': _POSITIVE,
  'save_checkpoints_steps': _POSITIVE,
  'keep_checkpoint_max': (
    'a whole number, at least 0 (which keeps all)',
    lambda v: v == 0 or _is_positive(v),
  ),
  'total_run_steps': _POSITIVE,
  'perplexity_eval_steps': _POSITIVE,
  'learning_rate_schedule': (
    'a number, at least 0, a function such as @name, or a list of such',
    lambda v: all(
      callable(rate) or (_is_number(rate) and rate >= 0)
      for rate in (v if isinstance(v, list) else [v])
    ),
  ),
  'optimizer': ('a function such as @name', callable),
  'init_checkpoint': (
    'the path of a checkpoint',
    lambda v: isinstance(v, str),
  ),
  'variable_filter': (
    'a regular expression or a function',
    lambda v: callable(v) or re.compile(v),
  ),
}


class RunConfig(types.SimpleNamespace):
  """The arguments of `utils.run`, and values derived from them."""

  @property
  def lengths(self) -> dict[str, int] | None:
    """The length of each feature; None if the examples determine it."""
    if isinstance(self.sequence_length, int):
      return dict.fromkeys(('inputs', 'targets'), self.sequence_length)
    return self.sequence_length

  @property
  def mesh(self) -> mtf.Shape:
    return mtf.convert_to_shape(self.mesh_shape)

  @property
  def layout(self) -> mtf.LayoutRules:
    return mtf.convert_to_layout_rules(self.layout_rules)

  @property
  def examples(self) -> int:
    """The global batch size in examples."""
    if isinstance(self.batch_size, int):
      return self.batch_size
    try:
      return utils.compute_batch_size(
        self.lengths, self.mesh, self.layout, self.batch_size
      )
    except ValueError as error:
      raise UserError(
        f'utils.run.batch_size = {tuple(self.batch_size)}: {error}; the number '
        'of tokens must be a multiple of the longest sequence length'
      ) from error

  @property
  def vocabularies(self) -> tuple[seqio.Vocabulary, seqio.Vocabulary]:
    return (
      utils.inputs_vocabulary(self.vocabulary),
      utils.targets_vocabulary(self.vocabulary),
    )


def read(model_dir: str, tpu: str | None = None) -> RunConfig:
  """Returns the run that gin describes, after checking all gin values."""
  _check_values()
  parameters = inspect.signature(utils.run).parameters
  found = {name: one.default for name, one in parameters.items()}
  found.update(gin.get_bindings(utils.run), model_dir=model_dir, tpu=tpu)
  run = RunConfig(**found)
  if run.lengths is None and run.mode in ('eval', 'score_eval'):
    return run  # the examples determine the lengths
  lengths = run.lengths or {}
  needs_inputs = run.model_type != 'lm' or run.mode in _LM_WITH_INPUTS
  sides = ('inputs', 'targets')[not needs_inputs :]
  missing = [side for side in sides if side not in lengths]
  if missing:
    raise UserError(
      f'utils.run.sequence_length = {run.lengths!r}: mode {run.mode!r} needs '
      f'the length of {" and ".join(map(repr, missing))}'
      + ''.join(nearest(side, lengths) for side in missing)
      + '. Give --gin_param="utils.run.sequence_length = '
      "{'inputs': 512, 'targets': 114}\"."
    )
  return run


def _check_values() -> None:
  """Checks that gin values have the types that their functions expect.

  The host accepts any value, and fails on a wrong one late: while building a
  graph, after the first evaluation, or never. The expected type is read from
  the function's signature: a parameter's annotation, or else its default if
  that is a number. For `utils.run`, which has few of either, a table lists the
  types.
  """
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


def _declared(binding: bindings.Binding) -> Kind | None:
  """Returns the kind declared for a parameter; None if it accepts anything.

  Sizes of the model are checked by building it.
  """
  name, declaration = binding.parameter, binding.declaration
  default: Any = declaration.default if declaration else None
  if declaration is None or binding.value is default is None:
    return None
  if binding.selector.endswith('transformer.utils.run') and name in _OF_RUN:
    return _OF_RUN[name]
  if 'dropout_rate' in name or 'smoothing' in name:
    return _SHARE
  if name.endswith('_filter') and isinstance(default, str):
    return 'a regular expression', re.compile
  if declaration.annotation is not declaration.empty:
    return _annotated(declaration.annotation)
  if isinstance(default, bool):
    return _PLAIN[bool]
  return _PLAIN[float] if _is_number(default) else None


def _annotated(annotation: Any) -> Kind | None:
  options = get_args(annotation)
  if get_origin(annotation) is Literal:
    return _one_of(*options)
  if get_origin(annotation) not in (Union, types.UnionType):
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
