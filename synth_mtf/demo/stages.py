"""The stages of a demo: command lines of `synth-mtf transformer`."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from synth_mtf.demo.configuration import Configuration, step_of
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.run import process
from synth_mtf.run.console import INTERVAL, Console

PRETRAINING_TASK = 'synth_text_span_corruption'
_ERROR = 'synth-mtf: error: '


@dataclasses.dataclass(frozen=True)
class Stage:
  """A run of `synth-mtf transformer`.

  Attributes:
    name: 'pretrain', 'perplexity', 'finetune' or 'evaluate'.
    run: the folder of the variant, or of the variant and seed.
    model_dir: the folder of its checkpoints, below `run`.
    gin_files: in the order in which they are read.
    gin_params: bindings, read after the files.
    settings: flags of the tasks.
  """

  name: str
  run: pathlib.Path
  model_dir: pathlib.Path
  gin_files: Sequence[str]
  gin_params: Sequence[str]
  settings: Mapping[str, Any]

  @property
  def flags(self) -> list[str]:
    """The words after `synth-mtf transformer`."""
    return [
      f'--model_dir={self.model_dir}',
      *(f'--{name}={value}' for name, value in self.settings.items()),
      *(f'--gin_file={file}' for file in self.gin_files),
      *(f'--gin_param={param}' for param in self.gin_params),
    ]

  @property
  def done(self) -> pathlib.Path:
    """The file that says that the stage is done."""
    return self.run / f'{self.name}.done'


def stages(
  variant: str, seed: int, configuration: Configuration, out: pathlib.Path
) -> list[list[Stage]]:
  """Returns the stages of a variant in their order; those of a list together.

  Args:
    variant: a file of gin/variants.
    seed: of its training.
    configuration: of the demo.
    out: the folder of the demo.
  """
  run = run_folder(variant, seed, configuration, out)
  pretrained, finetuned = run / 'pretrain', run / 'finetune'
  mixture = {'MIXTURE_NAME': configuration.mixture}

  def stage(
    name: str,
    model_dir: pathlib.Path,
    bindings: Mapping[str, Any],
    *gin_files: str,
  ) -> Stage:
    return Stage(
      name=name,
      run=run,
      model_dir=model_dir,
      gin_files=(
        f'sizes/{configuration.size}.gin',
        f'variants/{variant}.gin',
        f'runs/demo_{name}.gin',
        *gin_files,
        *configuration.gin_file,
      ),
      gin_params=(
        *(f'{key} = {value!r}' for key, value in bindings.items()),
        *configuration.gin_param,
      ),
      settings=task_settings(configuration, out),
    )

  def training(steps: int, start: Optional[str]) -> dict[str, Any]:
    first = (step_of(start) or 0) if start else 0
    return {
      'utils.run.init_checkpoint': start,
      'utils.run.train_steps': first + steps,  # the checkpoint's are counted
      'utils.run.seen_data_init_step': first,
      # Five in a run: a kill loses little, and writing takes little time.
      'utils.run.save_checkpoints_steps': min(max(steps // 5, 1), 1000),
      'synth_mtf.train_with_progress.seed': seed,
      'mesh_train_dataset_fn.seed': seed,
    }

  start = configuration.init_checkpoint
  pretrain, perplexity = [], []
  if configuration.pretrain_steps:
    bindings = training(configuration.pretrain_steps, start)
    warm_start = ['common/warm_start.gin'] if start else []
    pretrain = [stage('pretrain', pretrained, bindings, *warm_start)]
    perplexity = [stage('perplexity', pretrained, {})]
    start = str(pretrained / f'model.ckpt-{bindings["utils.run.train_steps"]}')
  bindings = {**mixture, **training(configuration.finetune_steps, start)}
  finetune = stage('finetune', finetuned, bindings)
  examples = {
    'mesh_eval_dataset_fn.num_eval_examples': configuration.eval_examples
  }
  evaluate = stage('evaluate', finetuned, {**mixture, **examples})
  return [pretrain, [finetune, *perplexity], [evaluate]]


def run_folder(
  variant: str, seed: int, configuration: Configuration, out: pathlib.Path
) -> pathlib.Path:
  """Returns the folder of a variant that is trained with a seed."""
  several = len(configuration.seeds) > 1
  return out / variant / f'seed_{seed}' if several else out / variant


def task_settings(
  configuration: Configuration, out: pathlib.Path
) -> dict[str, Any]:
  """Returns the settings of synth_mtf.tasks for a demo's data."""
  settings: dict[str, Any] = {
    'data_dir': configuration.data_dir or str(out / 'data'),
    'vocabulary': configuration.vocabulary or str(out / 'vocabulary.model'),
  }
  if configuration.skip_bad_rows:  # else SYNTH_MTF_SKIP_BAD_ROWS decides
    settings['skip_bad_rows'] = True
  return settings


@contextlib.contextmanager
def started(stage: Stage) -> Iterator[subprocess.Popen[str]]:
  """Runs a stage in a process of its own.

  An exception in the block, such as Ctrl-C, asks the process to end, upon which
  a training run saves a checkpoint; a second one ends it at once.
  """
  script = (
    sys.argv[0]
    if process.is_command()
    else os.path.join(sysconfig.get_path('scripts'), 'synth-mtf')
  )
  with subprocess.Popen(
    [sys.executable, script, 'transformer', *stage.flags],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    encoding='utf-8',
    errors='replace',
    env={
      'TF_FORCE_GPU_ALLOW_GROWTH': 'true',  # two stages can share a GPU
      **os.environ,
      'PYTHONHASHSEED': '0',  # otherwise results would not repeat
      INTERVAL: '1',
    },
  ) as running:
    try:
      yield running
    except BaseException:
      running.terminate()
      running.wait()
      raise
    finally:
      running.kill()


def follow(
  stage: Stage, running: subprocess.Popen[str], title: str, console: Console
) -> None:
  """Shows what a stage prints until it ends, and marks it as done.

  Raises:
    UserError: the stage has found a mistake of the user.
    RunFailed: it has failed in another way.
  """
  console.start(title)
  progress = line = error = ''
  assert running.stdout is not None
  for line in running.stdout:
    if error or line.startswith((_ERROR, 'Traceback')):
      error += line.removeprefix(_ERROR)
    elif line.startswith('warning: '):
      console.finish(line.rstrip())
    else:
      text = line.rstrip().removeprefix('train  ')
      console.update(text)
      if text.startswith('step '):
        progress = text.removesuffix('  0 s left')
  status = running.wait()
  if not status:
    stage.done.touch()
    console.finish(f'{progress}  {line}'.strip())  # ends in 'Done in 42 s.'
    return
  console.finish('failed')
  if status == 2:
    raise UserError(error.strip())
  if not error:
    error = f'the process ended with status {status}'
  if status == -signal.SIGKILL:
    error = 'the process was killed, as happens when memory runs out'
  raise RunFailed(
    f'{title}: {error.strip()}\nThe log is {stage.model_dir / "log"}; the same '
    'command resumes this stage.'
  )
