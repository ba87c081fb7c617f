"""What a run of T5's main has been asked to do."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Optional, Union

import gin
import mesh_tensorflow as mtf
import seqio
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer

from synth_mtf.errors import UserError, nearest
from synth_mtf.run import values
from synth_mtf.run.values import (
  Layout,
  Mesh,
  Names,
  NonNegative,
  Positive,
  Regex,
)

Function = Callable[..., Any]
Mode = Literal[
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
]
_BatchMethod = Literal[
  'sequences_per_batch',
  'tokens_per_batch',
  'sequences_per_replica',
  'tokens_per_replica',
]
_Rate = Union[NonNegative, Function]


@dataclasses.dataclass(frozen=True)
class RunConfig:
  """The arguments of `utils.run`, with the types that gin may bind them to."""

  model_dir: str
  tpu: Optional[str]
  mode: Mode
  model_type: Literal[
    'bitransformer', 'lm', 'delimited_lm', 'aligned', 'bi_student_teacher'
  ]
  vocabulary: Any
  dataset_split: str
  sequence_length: Union[Positive, Mapping[str, Positive], None]
  batch_size: Union[Positive, tuple[_BatchMethod, Positive]]
  mesh_shape: Mesh
  layout_rules: Layout
  mesh_devices: Optional[Names]
  train_dataset_fn: Optional[Function]
  eval_dataset_fn: Optional[Function]
  train_model_fn: Function
  predict_fn: Optional[Function]
  train_steps: Union[Positive, Function]
  total_run_steps: Optional[Positive]
  iterations_per_loop: Positive
  save_checkpoints_steps: Positive
  keep_checkpoint_max: Optional[Positive]
  perplexity_eval_steps: Positive
  learning_rate_schedule: Union[
    _Rate, Annotated[Sequence[_Rate], 'a list of such'], None
  ]
  optimizer: Optional[Function]
  variable_filter: Union[Regex, Function, None]
  init_checkpoint: Optional[str]
  # A step, a list of them, 'all' or -1: see `checkpoint_choice`.
  eval_checkpoint_step: Any
  export_checkpoint_step: Any
  export_path: str
  eval_summary_dir: Optional[str]
  eval_dir_suffix: Optional[str]
  ensemble_inputs: Optional[Positive]
  autostack: bool
  skip_seen_data: bool
  seen_data_init_step: int
  output_eval_examples: bool
  checkpoint_input_pipeline: bool

  @property
  def lengths(self) -> Optional[dict[str, int]]:
    """The length of each feature; None where the examples decide."""
    if isinstance(self.sequence_length, int):
      return dict.fromkeys(('inputs', 'targets'), self.sequence_length)
    return dict(self.sequence_length) if self.sequence_length else None

  @property
  def mesh(self) -> mtf.Shape:
    """The named dimensions of the mesh."""
    return mtf.convert_to_shape(self.mesh_shape)

  @property
  def layout(self) -> mtf.LayoutRules:
    """Which dimensions of tensors are split over the mesh."""
    return mtf.convert_to_layout_rules(self.layout_rules)

  @property
  def examples(self) -> int:
    """How many examples a batch has, across the mesh."""
    if isinstance(self.batch_size, int):
      return self.batch_size
    try:
      return utils.compute_batch_size(
        self.lengths, self.mesh, self.layout, self.batch_size
      )
    except ValueError as error:
      raise UserError(
        f'utils.run.batch_size = {tuple(self.batch_size)}: {error}, the number '
        'of tokens by the length of a sequence'
      ) from error

  @property
  def vocabularies(self) -> tuple[seqio.Vocabulary, seqio.Vocabulary]:
    """The vocabularies of inputs and targets."""
    return (
      utils.inputs_vocabulary(self.vocabulary),
      utils.targets_vocabulary(self.vocabulary),
    )

  @property
  def task(self) -> Optional[str]:
    """The task or mixture that the mode reads; None where it reads text."""
    readers = {
      'train': mesh_transformer.mesh_train_dataset_fn,
      'eval': mesh_transformer.mesh_eval_dataset_fn,
      'perplexity_eval': mesh_transformer.mesh_eval_dataset_fn,
    }
    if self.mode not in readers:
      return None
    return gin.get_bindings(readers[self.mode]).get('mixture_or_task_name')


def read(model_dir: str, tpu: Optional[str] = None) -> RunConfig:
  """Returns the run that gin describes.

  Args:
    model_dir: as in --model_dir.
    tpu: as in --tpu.

  Raises:
    UserError: a value has a wrong type, wherever gin holds it; a length is
      missing; or nothing reads a macro of the command line.
  """
  values.check(typing.get_type_hints(RunConfig, include_extras=True))
  parameters = inspect.signature(utils.run).parameters.values()
  found = {p.name: p.default for p in parameters}
  found.update(gin.get_bindings(utils.run), model_dir=model_dir, tpu=tpu)
  names = {field.name for field in dataclasses.fields(RunConfig)}
  run = RunConfig(**{name: found[name] for name in names})
  check_lengths(run)
  return run


def check_lengths(run: RunConfig) -> None:
  """Checks that each side of the model has a length.

  Raises:
    UserError: one is missing.
  """
  lengths = run.sequence_length
  if lengths is None:
    if run.mode in ('eval', 'score_eval'):  # found in the examples
      return
    raise UserError(
      f'utils.run.sequence_length is not set, and mode {run.mode!r} needs it: '
      "give --gin_param=\"utils.run.sequence_length = {'inputs': 512, "
      "'targets': 114}\"."
    )
  sides = ('inputs', 'targets')
  wanted = sides if run.model_type.startswith('bi') else sides[1:]
  if isinstance(lengths, int):
    return
  missing = [name for name in wanted if name not in lengths]
  if missing:
    raise UserError(
      f'utils.run.sequence_length = {lengths!r} has no length of '
      f'{" and ".join(map(repr, missing))}'
      + ''.join(nearest(name, lengths) for name in missing)
    )
