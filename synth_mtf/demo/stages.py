"""The stages of a run, each a command line of `synth-mtf transformer`.

Nothing here trains or evaluates: T5's own main does, with the gin files of
gin/runs. Each stage can be run again by hand with the flags that it has here.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from synth_mtf.demo.configuration import Configuration, step_of
from synth_mtf.demo.run_folder import RunFolder

PRETRAINING_TASK = 'synth_text_span_corruption'


@dataclasses.dataclass(frozen=True)
class Stage:
  """One run of T5's main.

  Attributes:
    name: 'pretrain', 'perplexity', 'finetune' or 'evaluate'.
    variant: a file of gin/variants.
    seed: of its training.
    model_dir: where its checkpoints are.
    summaries: the folder below `model_dir` that holds what it measures.
    gin_files: in the order in which they are read.
    gin_params: bindings, read after the files and in this order.
    settings: settings of the tasks, as flags.
  """

  name: str
  variant: str
  seed: int
  model_dir: pathlib.Path
  summaries: str
  gin_files: Sequence[str]
  gin_params: Sequence[str]
  settings: Mapping[str, str]

  @property
  def trains(self) -> bool:
    """Whether the stage makes checkpoints; otherwise it reads them."""
    return not self.summaries

  @property
  def flags(self) -> list[str]:
    """The words after `synth-mtf transformer`."""
    return [
      f'--model_dir={self.model_dir}',
      *(f'--{name}={value}' for name, value in self.settings.items()),
      *(f'--gin_file={file}' for file in self.gin_files),
      *(f'--gin_param={param}' for param in self.gin_params),
    ]


def stages(
  variant: str, seed: int, configuration: Configuration, folder: RunFolder
) -> list[Stage]:
  """Returns the stages of a variant, in the order in which they run.

  Args:
    variant: a file of gin/variants.
    seed: of its training.
    configuration: of the demo.
    folder: of the demo.
  """
  run = folder.run(variant, seed)
  pretrained, finetuned = run / 'pretrain', run / 'finetune'
  mixture = {'MIXTURE_NAME': configuration.mixture}

  def stage(
    name: str,
    model_dir: pathlib.Path,
    bindings: Mapping[str, Any],
    summaries: str = '',
    gin_files: Sequence[str] = (),
  ) -> Stage:
    return Stage(
      name=name,
      variant=variant,
      seed=seed,
      model_dir=model_dir,
      summaries=summaries,
      gin_files=(
        f'sizes/{configuration.size}.gin',
        f'variants/{variant}.gin',
        f'runs/demo_{name}.gin',
        *gin_files,
        *configuration.gin_files,
      ),
      gin_params=(
        *(f'{key} = {value!r}' for key, value in bindings.items()),
        *configuration.gin_params,
      ),
      settings=task_settings(configuration, folder),
    )

  def training(
    steps: int, start: Optional[str], bindings: Mapping[str, Any]
  ) -> dict[str, Any]:
    first = (step_of(start) or 0) if start else 0
    return {
      **bindings,
      'utils.run.init_checkpoint': start,
      'utils.run.train_steps': first + steps,  # the checkpoint's are counted
      'utils.run.seen_data_init_step': first,
      'utils.run.save_checkpoints_steps': _steps_between_checkpoints(steps),
      'synth_mtf.train_with_progress.seed': seed,
      'mesh_train_dataset_fn.seed': seed,
    }

  start = configuration.init_checkpoint
  pretraining = []
  if configuration.pretrain_steps:
    bindings = training(configuration.pretrain_steps, start, {})
    pretraining = [
      stage(
        'pretrain',
        pretrained,
        bindings,
        gin_files=['common/warm_start.gin'] if start else [],
      ),
      stage('perplexity', pretrained, {}, summaries='eval_*'),
    ]
    last = bindings['utils.run.train_steps']
    start = str(pretrained / f'model.ckpt-{last}')
  return [
    *pretraining,
    stage(
      'finetune',
      finetuned,
      training(configuration.finetune_steps, start, mixture),
    ),
    stage(
      'evaluate',
      finetuned,
      {
        **mixture,
        'mesh_eval_dataset_fn.num_eval_examples': configuration.eval_examples,
      },
      summaries='validation_eval',
    ),
  ]


def task_settings(
  configuration: Configuration, folder: RunFolder
) -> dict[str, str]:
  """Returns the flags of synth_mtf.tasks for the data of a run."""
  settings = {
    'data_dir': configuration.data_dir or str(folder.data),
    'vocabulary': configuration.vocabulary or str(folder.vocabulary),
    'index_dir': str(folder.index),
  }
  # Left out if it is not asked for, so that the environment may ask for it.
  return settings | (
    {'skip_bad_rows': 'true'} if configuration.skip_bad_rows else {}
  )


def _steps_between_checkpoints(steps: int) -> int:
  # Five in a run: a kill loses little, and little time goes into writing.
  return min(max(steps // 5, 1), 1000)
