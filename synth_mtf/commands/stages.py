"""The commands of the day's work: pretrain, finetune, evaluate, predict.

Each function returns the commands of `synth-mtf` that a few words stand for,
and refuses what cannot work. What the folder of a run knows is taken from it.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from synth_mtf.commands import command, variants
from synth_mtf.commands.command import Command
from synth_mtf.commands.run_folder import RunFolder
from synth_mtf.errors import UserError

ROWS = 8  # of a batch on a laptop; run files have those of a TPU
_LAPTOP = 'runs/cpu.gin'
_ONE_CORE = 'model:1,batch:1'  # the mesh of this file
_VOCABULARY = 'vocabulary.model'
# A larger vocabulary would double the cost of the smallest size, which has an
# embedding of 2,048 rows with T5's sentinels.
_PIECES = {'tiny': 1948}
_MOST_PIECES = 32_000
# Any task with the vocabulary of the settings.
_ANY_TASK = 'synth_text_span_corruption'
_LENGTH = 512  # of targets, if the run does not say how long its inputs are


@dataclasses.dataclass(frozen=True)
class Given:
  """What every command takes besides its own words.

  Attributes:
    settings: of data, as in `run_folder.SETTINGS`.
    device: as in `--device`; None is the laptop that gin/runs/cpu.gin is for.
    gin_files: included after all others.
    gin_params: bindings, which override all others.
    modules: of the user, which register tasks or names of gin.
    batch_size: the rows of a step.
    learning_rate: of training.
    seed: of training, which then repeats.
  """

  settings: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
  device: str | None = None
  gin_files: Sequence[str] = ()
  gin_params: Sequence[str] = ()
  modules: Sequence[str] = ()
  batch_size: int | None = None
  learning_rate: float | None = None
  seed: int | None = None

  def run(
    self,
    model_dir: str,
    gin_files: Sequence[str],
    bindings: Mapping[str, Any],
    settings: Mapping[str, str | None],
  ) -> Command:
    """Returns a run of `synth-mtf transformer`.

    Args:
      model_dir: its folder.
      gin_files: those in front of the given ones.
      bindings: those in front of the given ones; None is left out.
      settings: those that are known, which the given ones override.
    """
    given = {name: value for name, value in self.settings.items() if value}
    values = {
      name: value for name, value in bindings.items() if value is not None
    }
    return command.transformer(
      model_dir,
      [*gin_files, *self.gin_files],
      [*command.bound(values), *self.gin_params],
      modules=self.modules,
      device=self.device,
      **{**settings, **given},
    )

  def continued(
    self,
    run: RunFolder,
    gin_files: Sequence[str],
    bindings: Mapping[str, Any],
    settings: Mapping[str, str | None],
  ) -> Command:
    """Returns a run with the folder and the configuration of another one.

    Args:
      run: the other one.
      gin_files: those after its own.
      bindings: as in `run`.
      settings: as in `run`.
    """
    mesh = None if self.device or run.has_mesh else _ONE_CORE
    return self.run(
      run.folder,
      [run.gin_file, *gin_files],
      {'utils.run.mesh_shape': mesh, **bindings},
      settings,
    )

  @property
  def rows(self) -> int | None:
    """The rows of a step; None leaves them to the run file."""
    return self.batch_size or (None if self.device else ROWS)

  def training(self, run_files: Sequence[str]) -> list[str]:
    """Returns the files of a run that trains, the machine's last."""
    files = [*run_files]
    if self.seed is not None:
      files.append('runs/repeatable.gin')
    if not self.device:
      files.append(_LAPTOP)
    return files

  def trained(self, steps: int, rows: int | None) -> dict[str, Any]:
    """Returns the bindings of a run that trains up to a step."""
    return {
      'utils.run.train_steps': steps,
      'utils.run.batch_size': rows,
      'learning_rate': self.learning_rate,
      'mesh_train_dataset_fn.seed': self.seed,
      'synth_mtf.train_with_progress.seed': self.seed,
    }


def pretrain(
  folder: str,
  size: str,
  variant: str,
  steps: int,
  given: Given,
  pieces: int | None = None,
) -> list[Command]:
  """Returns the commands that pretrain a new model on text.

  Args:
    folder: of the run.
    size: the name of a gin file.
    variant: the name of a gin file.
    steps: of training.
    given: what the user adds.
    pieces: of the vocabulary that is trained if none is given.
  """
  commands = []
  settings: dict[str, str | None] = {}
  if not given.settings.get('vocabulary'):
    path = os.path.join(folder, _VOCABULARY)
    settings['vocabulary'] = path
    if not os.path.exists(path):
      number = pieces or _PIECES.get(size, _MOST_PIECES)
      data = {x: given.settings.get(x) for x in ('data_dir', 'text')}
      commands.append(command.vocabulary(path, number, **data))
  files = [
    f'sizes/{size}.gin',
    f'variants/{variant}.gin',
    *given.training(['runs/pretrain_text.gin']),
  ]
  bindings = given.trained(steps, given.rows)
  commands.append(given.run(folder, files, bindings, settings))
  return commands


def resume(run: RunFolder, steps: int | None, given: Given) -> list[Command]:
  """Returns the command that continues a run, up to `steps` after its start.

  Without `steps`, it trains the steps that the run was going to.
  """
  if steps is None:
    last = run.setting('run.train_steps')
  else:
    last = run.first_step + steps
  at = run.last_step or run.first_step
  if last < at:
    raise UserError(
      f'{run.name} has trained {at - run.first_step:,} steps: --steps counts '
      f'all steps since its start, of which {steps:,} are fewer. Give more to '
      'continue, or another folder for another model.'
    )
  bindings = given.trained(last, given.batch_size)
  return [given.continued(run, [], bindings, run.settings)]


def finetune(
  folder: str,
  source: RunFolder,
  step: int | None,
  task: str,
  steps: int,
  given: Given,
) -> list[Command]:
  """Returns the command that finetunes a trained model on a task.

  Args:
    folder: of the new run.
    source: the run whose model is trained further.
    step: of its checkpoint; None is the latest.
    task: a task or a mixture.
    steps: of finetuning.
    given: what the user adds.
  """
  start = source.checkpoint(step)
  first = int(start.rpartition('-')[2])
  files = [source.gin_file, *given.training(['runs/finetune_en_mix.gin'])]
  bindings = {
    'MIXTURE_NAME': task,
    'utils.run.init_checkpoint': start,
    'utils.run.seen_data_init_step': first,
    **given.trained(first + steps, given.rows),
    'utils.run.sequence_length': _within_tables(source),
  }
  known = {
    name: source.settings.get(name) for name in ('vocabulary', 'data_dir')
  }
  return [given.run(folder, files, bindings, known)]


def evaluate(
  run: RunFolder,
  step: int | str | None,
  task: str | None,
  split: str,
  perplexity: bool,
  given: Given,
) -> list[Command]:
  """Returns the command that scores a run's checkpoint.

  Args:
    run: the run.
    step: of the checkpoint, or 'all'; None is the latest.
    task: another task than that of the run.
    split: of the task.
    perplexity: measures the log perplexity in place of the task's metrics. Of
      pretraining, there is nothing else to measure.
    given: what the user adds.
  """
  if isinstance(step, int):
    run.checkpoint(step)
  else:
    run.checkpoint()
  is_perplexity = perplexity or (run.is_pretraining and task is None)
  modes = ['eval.gin', 'greedy_decode.gin']
  if is_perplexity:
    modes = ['perplexity_eval.gin']
  bindings = {
    'MIXTURE_NAME': task,
    'eval_checkpoint_step': -1 if step is None else step,
    'utils.run.dataset_split': split,
    'utils.run.batch_size': given.batch_size or run.setting('run.batch_size'),
    # The noise is drawn at each reading; all models get the same.
    'mesh_eval_dataset_fn.seed': 0 if is_perplexity else None,
  }
  return [given.continued(run, modes, bindings, run.settings)]


def predict(
  run: RunFolder,
  step: int | None,
  inputs: str,
  outputs: str,
  beams: int,
  max_length: int | None,
  given: Given,
) -> list[Command]:
  """Returns the command that writes the targets that a model finds for inputs.

  They are those of `synth_mtf.load(...).predict`.

  Args:
    run: the run.
    step: of its checkpoint; None is the latest.
    inputs: a file with one in each line.
    outputs: where the targets are written, followed by `-` and the step.
    beams: of beam search.
    max_length: the most tokens of a target; None is the length of inputs.
    given: what the user adds.
  """
  at = int(run.checkpoint(step).rpartition('-')[2])
  lengths = run.setting('run.sequence_length') or {}
  length = max_length or lengths.get('inputs', _LENGTH)
  bindings = {
    # A prediction needs no data, and the files of a task may be elsewhere.
    'MIXTURE_NAME': _ANY_TASK if run.settings.get('task_file') else None,
    'infer_checkpoint_step': at,
    'input_filename': inputs,
    'output_filename': outputs,
    'Bitransformer.decode.beam_size': beams,
    'Bitransformer.decode.max_decode_length': length,
    # By default, a target's length would depend on the other inputs.
    'Bitransformer.decode.decode_length_multiplier': 0.0,
    'Bitransformer.decode.decode_length_constant': float(length),
    'utils.run.batch_size': given.batch_size or ROWS,
  }
  known = {'vocabulary': run.settings.get('vocabulary')}
  return [given.continued(run, ['infer.gin'], bindings, known)]


def _within_tables(run: RunFolder) -> dict[str, int] | None:
  """Returns the lengths of finetuning, if a model's tables are shorter."""
  most = run.setting('decoder/Unitransformer.max_length')
  if not isinstance(most, int) or most >= _LENGTH:
    return None
  return {'inputs': most, 'targets': min(most, 114)}


def check_same(run: RunFolder, size: str | None, variant: str | None) -> None:
  """Refuses another size or variant than that of a run's folder."""
  given = {'sizes': size, 'variants': variant}
  for kind, name in given.items():
    there = run.gin_name(kind)
    if name and there and name != there:
      flag = f'--{kind.removesuffix("s")}'
      if kind == 'variants':
        name, there = variants.name_of(name), variants.name_of(there)
      raise UserError(
        f'{run.name} holds a model of {flag}={there}, not {name}: leave '
        f'{flag} out to continue it, or give another folder for {name}'
      )
