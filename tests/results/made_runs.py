"""Folders of runs, written by TensorFlow's and T5's own writers.

They are what the stock command leaves: event files, T5's text files, a
configuration, checkpoints; without metrics.json. `fake` makes a run without any
folder, of results from `result`.
"""

import itertools
import json
import os
import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import gin
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import files
from synth_mtf.host import gin_files
from synth_mtf.results import paper, runs
from synth_mtf.results.kinds import ModelKind
from synth_mtf.results.model_facts import ModelFacts
from synth_mtf.results.records import Result
from synth_mtf.results.runs import Run

_NUMBERS = itertools.count()

Folder: TypeAlias = str | pathlib.Path
_BASE = paper.SIZES['base'], 'encoder-decoder'
KINDS = {
  'Syn (R)': ModelKind('R', '', *_BASE, '8 x 128', 'learned'),
  'T5 (V)': ModelKind('V', '', *_BASE, '12 x 64', 'learned'),
}
COLA = 'synth_glue_cola_v002'


def only(folder: Folder) -> Run:
  """Reads the only run of a folder."""
  (run,) = runs.read(str(folder))
  return run


def result(**changes: Any) -> Result:
  """A score of CoLA of which little is known, but for some changes."""
  return Result(
    **{
      'task': COLA,
      'split': 'validation',
      'metric': 'matthews_corrcoef',
      'value': 12.5,
      'n': None,
      'unit': 'example',
      'standard_error': None,
      'step': 100,
      **changes,
    }
  )


def fake(name: str, *results: Result, label: str = '', **facts: Any) -> Any:
  """A run that was read; those with a label have a configuration."""
  known: dict[str, Any] = {
    'name': name,
    'label': label or name,
    'facts': ModelFacts(KINDS.get(label), fault=f'{name} has no configuration'),
    'bindings': {'x': label} if label else {},
    'results': list(results),
    'losses': {'': {}},
    'host_losses': {'': {}},
    **dict.fromkeys(['seed', 'parameters', 'products', 'steps_per_second']),
  }
  return types.SimpleNamespace(**{**known, **facts})


def events(folder: Folder, *steps: tuple[int, Mapping[str, float]]) -> None:
  """Writes an event file: what each tag is at each step."""
  # Those of the same second would have the same name.
  suffix = f'.{next(_NUMBERS):04}'
  with tf.Graph().as_default():
    writer = tf.summary.FileWriter(str(folder), filename_suffix=suffix)
  for step, values in steps:
    summary = tf.Summary()
    for tag, value in values.items():
      summary.value.add(tag=tag, simple_value=value)
    writer.add_summary(summary, step)
  writer.close()


def evaluated(
  model_dir: Folder,
  task: str,
  step: int,
  scores: Mapping[str, float],
  targets: Sequence[Any] = (),
  predictions: Sequence[Any] = (),
  split: str = 'validation',
) -> str:
  """Writes what T5 writes of a task at a checkpoint; returns the folder."""
  folder = os.path.join(str(model_dir), f'{split}_eval')
  tags = {f'eval/{task}/{metric}': value for metric, value in scores.items()}
  events(folder, (step, tags))
  if targets:
    name = os.path.join(folder, task)
    utils.write_lines_to_file(targets, f'{name}_targets')
    utils.write_lines_to_file(predictions, f'{name}_{step}_predictions')
  return folder


def measured(
  model_dir: Folder, task: str, step: int, measures: Mapping[str, float]
) -> None:
  """Writes what the host writes of log perplexity."""
  folder = os.path.join(str(model_dir), f'eval_{task}_validation_320')
  events(folder, (step, measures))


def trained(
  model_dir: Folder,
  variant: str = 'random',
  bindings: Sequence[str] = (),
  step: int = 100,
) -> None:
  """Writes configuration, curves and a checkpoint of a small model."""
  folder = str(model_dir)
  gin_files.parse(['sizes/tiny.gin', f'variants/{variant}.gin'], bindings)
  tf.io.gfile.makedirs(folder)
  with tf.io.gfile.GFile(f'{folder}/operative_config.gin', 'w') as stream:
    stream.write(gin.config_str())
  gin.clear_config()
  speed = 'global_step/sec'
  events(
    folder,
    (1, {'loss': 5.0, 'learning_rate': 0.01}),
    *((n, {speed: n / 10, 'loss': 5 - n / 100}) for n in (20, 40, 60)),
  )
  values: dict[str, npt.NDArray[Any]] = {
    'global_step': np.array(step, np.int64),
    'shared/embedding': np.zeros([128, 8], np.float32),
    'decoder/w': np.zeros([8, 4], np.float32),
    'decoder/w_slot_v': np.zeros([8, 4], np.float32),
    'decoder/fixed': np.zeros([7], np.float32),
  }
  files.write(folder, step, values)


def demo(folder: pathlib.Path, variants: Sequence[str]) -> None:
  """Marks a folder as a demo's, whose runs are below it."""
  (folder / 'run.json').write_text('{"seeds": [0]}')
  (folder / 'metrics.json').write_text(
    json.dumps({'configuration': {}, 'models': dict.fromkeys(variants, [])})
  )
