"""What the worker processes do: check, run a stage, make the table.

Each function runs in a process of its own (see workers.py). This module imports
TensorFlow and T5; the command itself does not.
"""

import glob
import os
import pathlib
import shutil
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import gin
import tensorflow.compat.v1 as tf
from absl import flags
from mesh_tensorflow.transformer import utils
from t5.evaluation import eval_utils
from t5.models import mesh_transformer

from synth_mtf import paths, tasks
from synth_mtf.attention import examples
from synth_mtf.attention import runs as attention_runs
from synth_mtf.checkpoints import folder as checkpoints
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.demo import corpus
from synth_mtf.demo.stages import PRETRAINING_TASK, Stage
from synth_mtf.errors import RunFailed
from synth_mtf.host import errors, gin_files, model
from synth_mtf.report import page as pages
from synth_mtf.results import records, runs
from synth_mtf.results.printing import Grid
from synth_mtf.results.tables import checkpoints as checkpoints_shown
from synth_mtf.results.tables import grid, layouts, table
from synth_mtf.run import main, training
from synth_mtf.tasks import vocabulary_training

Report = Callable[[Any], None]

_VOCABULARY_SIZE = 128
_MODES = {  # modes of the host's run that are no evaluation without decoding
  'train': tf.estimator.ModeKeys.TRAIN,
  'eval': tf.estimator.ModeKeys.PREDICT,
}


def check_models(stages: Sequence[Stage], mixture: str, report: Report) -> None:
  """Checks the mixture's name, the gin files and the graphs of all stages.

  Raises:
    UserError: what is wrong in the first stage that cannot work.
  """
  del report
  tasks.get(mixture)
  for stage in stages:
    with errors.explained():
      _build(stage)


def _build(stage: Stage) -> None:
  """Builds a stage's model before anything is trained.

  Parsing finds an unknown name; only building finds a sequence that is longer
  than a table, or an argument that a layer does not have. Nothing is computed.
  """
  gin_files.parse(stage.gin_files, stage.gin_params)
  run = gin.get_bindings(utils.run)
  training = gin.get_bindings(mesh_transformer.mesh_train_dataset_fn)
  mode = run.get('mode', 'train')
  model.build(
    # Whatever shapes gin files may get wrong, none depends on the vocabulary.
    _VOCABULARY_SIZE,
    lengths=run['sequence_length'],
    mode=_MODES.get(mode, tf.estimator.ModeKeys.EVAL),
    packed=mode == 'train' and training.get('pack', True),
  )


def check_data(settings: dict[str, str], mixture: str, report: Report) -> None:
  """Checks every row of the data that the run reads.

  Raises:
    UserError: one message with all faults.
  """
  del report
  _apply(settings)
  with errors.explained():
    tasks.check([PRETRAINING_TASK, mixture], ['train', 'validation'])


def make_data(folder: pathlib.Path, report: Report) -> None:
  """Copies the shipped samples and gathers text to pretrain on."""
  del report
  partial = folder.with_name(f'.{folder.name}.partial')
  shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
  shutil.copytree(paths.samples_path(), partial)
  corpus.write(partial / 'corpus')
  os.replace(partial, folder)


def train_vocabulary(
  settings: dict[str, str], model: pathlib.Path, report: Report
) -> None:
  """Trains the vocabulary of a run that was given none."""
  del report
  _apply(settings)
  source = tasks.get(PRETRAINING_TASK).source
  rows = source.get_dataset('train', shuffle=False).as_numpy_iterator()
  vocabulary_training.train(
    (row['text'].decode('utf-8') for row in rows), model
  )


def run_stage(stage: Stage, report: Report) -> dict[str, Any]:
  """Runs T5's main for a stage and returns what it measured."""
  training.listen(report)
  if stage.trains:
    checkpoints.repair_pointer(str(stage.model_dir))
  else:
    _forget_summaries(stage)
  # What it says goes to this process's log, as all here does.
  status = main.run([*stage.flags, '--verbose'])
  if status:
    raise RunFailed(f'T5 has ended with status {status} before it was done')
  return _MEASURES[stage.name](stage)


def tabulate(folder: str, variants: Sequence[str], report: Report) -> Grid:
  """Returns the table of results, as `synth-mtf table` makes it.

  Args:
    folder: of the demo.
    variants: those that are done, in their order.
    report: not used.
  """
  del report
  found = runs.read_all([os.path.join(folder, name) for name in variants])
  return grid.grid(
    table.make(found, layouts.overview(found), checkpoints_shown.Last())
  )


def make_page(
  folder: str, variants: Sequence[str], page: str, report: Report
) -> None:
  """Makes the page of the demo, as `synth-mtf report` makes it.

  Args:
    folder: of the demo.
    variants: those that are done, in their order.
    page: its path.
    report: not used.
  """
  del report
  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  found = runs.read_all([os.path.join(folder, name) for name in variants])
  looked, missing = attention_runs.look_at_each(
    pages.one_per_model(found), examples.defaults
  )
  command = ['synth-mtf', 'report', folder, '--out', page]
  pages.write(page, found, looked, (), [command], missing)


def _apply(settings: dict[str, str]) -> None:
  tasks.define_flags()
  flags.FLAGS(['demo', *(f'--{k}={v}' for k, v in settings.items())])


def _forget_summaries(stage: Stage) -> None:
  """Removes what a killed evaluation left behind: it starts again."""
  for folder in glob.glob(str(stage.model_dir / stage.summaries)):
    shutil.rmtree(folder)


def _events(folder: pathlib.Path) -> dict[str, list[float]]:
  """Returns the values of each TensorBoard tag, in the order of the steps."""
  with tf.Graph().as_default():
    events = eval_utils.parse_events_files(str(folder))
  return {
    tag: [event.value for event in sorted(values, key=lambda one: one.step)]
    for tag, values in events.items()
  }


def _trained(stage: Stage) -> dict[str, Any]:
  # A process that ends with its first step measures none.
  speeds = _events(stage.model_dir).get('global_step/sec')
  return {
    # The median: the first step compiles, and others use the machine too.
    'steps_per_second': statistics.median(speeds) if speeds else None,
    'parameters': Checkpoint(str(stage.model_dir)).trained_parameters,
  }


def _perplexity(stage: Stage) -> dict[str, Any]:
  (folder,) = glob.glob(str(stage.model_dir / stage.summaries))
  found = {result.metric: result for result, _ in records.read(folder)}
  measured = found['neg_log_perplexity']
  value = measured.value
  return {
    'log_perplexity': None if value is None else -value,
    'tokens': measured.n,
  }


def _evaluated(stage: Stage) -> dict[str, Any]:
  """Returns metrics and their standard errors by T5's tags, n by task."""
  found = [
    result for result, _ in records.read(str(stage.model_dir / stage.summaries))
  ]
  return {
    'metrics': {f'{one.task}/{one.metric}': one.value for one in found},
    'standard_errors': {
      f'{one.task}/{one.metric}': one.standard_error for one in found
    },
    'n': {one.task: one.n for one in found},
  }


_MEASURES = {
  'pretrain': _trained,
  'perplexity': _perplexity,
  'finetune': _trained,
  'evaluate': _evaluated,
}
