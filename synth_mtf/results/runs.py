"""Reads runs from disk, whichever command made them.

A run need not be complete: checkpoints without evaluations will do, and so will
event files alone, as the stock command and TPUs write them. metrics.json takes
precedence over T5's own files.
"""

import ast
import contextlib
import functools
import itertools
import json
import math
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf

from synth_mtf import cost
from synth_mtf.checkpoints import folder as checkpoints
from synth_mtf.checkpoints import names
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import events, gin_files
from synth_mtf.results import labels, records
from synth_mtf.results.records import Result

LOSS = 'loss'
SPEED = 'global_step/sec'
LEARNING_RATE = 'learning_rate'

_CONFIGURATION = 'operative_config.gin'
_CONFIGURATION_TAG = 'gin/operative_config'
# Folders of a demo: docs/runs.md.
_DEMO = 'run.json'
_STAGES = ('pretrain', 'finetune')
_SEED = re.compile(r'seed_(\d+)')
_SEED_SETTING = 'train_with_progress.seed'
# T5's names of the folders of evaluations, and of what it measures there.
_EVALUATED = re.compile(r'(?P<split>.+)_eval(?:_.*)?')
_MEASURED = re.compile(r'eval_(?P<task>.+)_(?P<split>[^_]+)_\d+(?:_.*)?')
_SCORE = re.compile(r'eval/(?P<task>[^/]+)/(?P<metric>.+)')
_UNKNOWN = 'unknown'
_OF_SEQUENCES = 'sequence_accuracy'
_ACCURACY = 'accuracy'  # in percent
_MEASURES = ('neg_log_perplexity', 'token_accuracy', _OF_SEQUENCES)
_TOKENS = 'num_eval_tokens'
_LONGEST = 'max_targets_length'

Curve = npt.NDArray[np.float64]


class Run:
  """A model that was trained, as read from its folders.

  Each property reads files when it is first used. `label` and `products` parse
  its configuration, which replaces what gin holds.

  Attributes:
    name: its path, as given.
    folders: of its checkpoints, in the order of training: one, or a demo's for
      pretraining and finetuning.
  """

  def __init__(self, name: str, folders: Sequence[str]) -> None:
    self.name = name
    self.folders = folders

  @property
  def folder(self) -> str:
    """The folder of its last checkpoints."""
    return self.folders[-1]

  @functools.cached_property
  def gin(self) -> Optional[str]:
    """Its operative configuration, that of its last training."""
    for folder in reversed(self.folders):
      path = os.path.join(folder, _CONFIGURATION)
      if tf.io.gfile.exists(path):
        with _explained(path), tf.io.gfile.GFile(path) as stream:
          return stream.read()
      shown = self._events[folder].texts.get(_CONFIGURATION_TAG)
      if shown:
        return _out_of_markdown(shown)
      for recorded in _recorded(folder):
        return recorded.gin
    return None

  @functools.cached_property
  def bindings(self) -> Mapping[str, str]:
    """What its configuration binds, by name; empty if there is none."""
    return gin_files.bindings(self.gin) if self.gin else {}

  @functools.cached_property
  def seed(self) -> Optional[int]:
    """The seed of its training, or None if it is unknown."""
    found = self._setting(_SEED_SETTING)
    return found if isinstance(found, int) else _seed_of(self.name)

  @functools.cached_property
  def label(self) -> str:
    """The paper's name of its model, or else the name of its folder.

    That is if it has no configuration, or one with names of modules that are
    neither ours nor the host's.
    """
    with contextlib.suppress(UserError):
      if self._parse():
        return labels.label()
    return os.path.basename(self.name)

  @functools.cached_property
  def steps(self) -> list[int]:
    """The steps of the checkpoints in its last folder."""
    return list(map(checkpoints.step_of, checkpoints.written(self.folder)))

  @functools.cached_property
  def results(self) -> list[Result]:
    """The results of its evaluations, in the order of their steps."""
    found = {}
    for folder in self.folders:
      with _explained(folder):
        scalars = self._events[folder].scalars
        for result in itertools.chain(
          _scores_elsewhere(folder, scalars), _results(folder)
        ):
          found[result.key] = result
    return [found[key] for key in sorted(found)]

  @functools.cached_property
  def curves(self) -> Mapping[str, Curve]:
    """What training wrote to event files: [step, (step, value)] by tag.

    T5's are `LOSS`, `SPEED` (steps a second) and `LEARNING_RATE`.
    """
    values: dict[str, dict[int, float]] = {}
    for found in self._events.values():
      for tag, curve in found.scalars.items():
        if not _SCORE.fullmatch(tag):
          values.setdefault(tag, {}).update(curve)
    return {
      tag: np.array(sorted(curve.items()), np.float64)
      for tag, curve in values.items()
    }

  @functools.cached_property
  def steps_per_second(self) -> Optional[float]:
    """The median over its first training, or None if it is unknown.

    A mean would be off: the first step compiles, and the machine is shared.
    """
    speeds = self._events[self.folders[0]].scalars.get(SPEED)
    return statistics.median(speeds.values()) if speeds else None

  @functools.cached_property
  def parameters(self) -> Optional[int]:
    """The number of trained parameters, or None without a checkpoint.

    Weights that only finetuning keeps fixed (`utils.run.variable_filter`) are
    counted; those that never change (Fix) are not.
    """
    checkpoint = self._checkpoint
    if checkpoint is None:
      return None
    if not checkpoint.slots:  # left out by whoever wrote it
      return checkpoint.parameters
    trained = {names.slot_owner(slot) for slot in checkpoint.slots}
    kept = self._setting('run.variable_filter')
    return sum(
      int(np.prod(checkpoint.kinds[name].shape))
      for name in checkpoint.weights
      if name in trained
      or (isinstance(kept, str) and not re.search(kept, name))
    )

  @functools.cached_property
  def products(self) -> Optional[int]:
    """Multiplications in a forward pass over a pair of sequences.

    Sequences are as long as in training. None if a checkpoint or a readable
    configuration is missing.
    """
    lengths = self._setting('run.sequence_length')
    if not lengths or self._checkpoint is None:
      return None
    with contextlib.suppress(UserError):
      if self._parse():
        return cost.cost(self._checkpoint.vocab_size, lengths).flops // 2
    return None

  @functools.cached_property
  def _checkpoint(self) -> Optional[Checkpoint]:
    written = checkpoints.written(self.folder)
    if not written:
      return None
    return Checkpoint(os.path.join(self.folder, written[-1]))

  @functools.cached_property
  def _events(self) -> Mapping[str, events.Events]:
    found = {}
    for folder in self.folders:
      with _explained(folder):
        found[folder] = events.read(folder)
    return found

  def _parse(self) -> bool:
    """Makes gin hold its configuration; returns whether there is one."""
    if self.gin:
      gin_files.parse_foreign(self.gin, self.name)
    return bool(self.gin)

  def _setting(self, name: str) -> Any:
    """The value of a binding if it is a literal, or None.

    Args:
      name: without the modules that an operative configuration may leave out.
    """
    for bound, value in self.bindings.items():
      if f'.{bound}'.endswith(f'.{name}'):
        return _literal(value)
    return None


def read(folder: str) -> list[Run]:
  """Finds the runs of a folder.

  Args:
    folder: a model folder or a demo's, which holds several runs; local or in a
      bucket.

  Returns:
    At least one; those of a demo in the order of its table.

  Raises:
    UserError: there is no such folder, or no run in it.
  """
  name = folder.rstrip('/') or folder
  with _explained(name):
    found = list(_runs(name))
    if not found:
      raise _no_run(name)
  return found


def read_all(folders: Sequence[str]) -> list[Run]:
  """Finds the runs of several folders, each of them once.

  Raises:
    UserError: a folder does not exist, or holds no run.
  """
  found: dict[tuple[str, ...], Run] = {}
  for folder in folders:
    for run in read(folder):
      found.setdefault(tuple(map(_real, run.folders)), run)
  return list(found.values())


def _runs(folder: str) -> Iterator[Run]:
  below = _subfolders(folder)
  stages = [
    path
    for path in (os.path.join(folder, stage) for stage in _STAGES)
    if os.path.basename(path) in below and _is_model_folder(path)
  ]
  seeds = sorted((_seed_of(n), n) for n in below if _seed_of(n) is not None)
  if stages:
    yield Run(folder, stages)
  elif _is_model_folder(folder):
    yield Run(folder, [folder])
  elif tf.io.gfile.exists(os.path.join(folder, _DEMO)):
    for variant in _variants(folder, below):
      yield from _runs(os.path.join(folder, variant))
  else:
    for _, seed in seeds:
      yield from _runs(os.path.join(folder, seed))


def _variants(folder: str, below: Sequence[str]) -> list[str]:
  """The folders of a demo's variants, those of its last command first."""
  path = os.path.join(folder, records.METRICS)
  shown: list[str] = []
  if tf.io.gfile.exists(path):
    try:
      with tf.io.gfile.GFile(path) as stream:
        shown = list(json.load(stream)['models'])
    except (ValueError, KeyError, TypeError):
      shown = []  # the order of the folders will do
  return [
    *(one for one in shown if one in below),
    *(one for one in below if one not in shown),
  ]


def _is_model_folder(folder: str) -> bool:
  return (
    bool(checkpoints.written(folder))
    or tf.io.gfile.exists(os.path.join(folder, _CONFIGURATION))
    or events.are_in(folder)
    or bool(list(_evaluations(folder)))
  )


def _no_run(folder: str) -> UserError:
  expected = (
    'expected a model folder (checkpoints, operative_config.gin or event '
    'files, and what evaluations wrote below it) or the folder of a demo'
  )
  if not tf.io.gfile.exists(folder):
    return UserError(f'{folder} does not exist; {expected}.')
  if not tf.io.gfile.isdir(folder):
    return UserError(f'{folder} is a file; {expected}.')
  below = [os.path.join(folder, name) for name in _subfolders(folder)]
  there = [path for path in below if any(_runs(path))]
  hint = f' There are runs below it: {" ".join(there)}.' if there else ''
  return UserError(f'{folder} holds no run; {expected}.{hint}')


def _results(folder: str) -> Iterator[Result]:
  """Yields the results of a folder's evaluations, the most reliable last."""
  for place, split, task in _evaluations(folder):
    recorded = [result for result, _ in records.read(place)]
    scalars = events.read(place).scalars
    if task is None:
      yield from _scores(place, split, scalars, {one.key for one in recorded})
    else:
      yield from _measures(task, split, scalars)
    yield from recorded


def _scores_elsewhere(
  folder: str, scalars: Mapping[str, Mapping[int, float]]
) -> Iterator[Result]:
  """Yields scores in a folder of any name (`utils.run.eval_summary_dir`)."""
  if not _EVALUATED.fullmatch(os.path.basename(folder)):
    yield from _scores(folder, _UNKNOWN, scalars, set())


def _evaluations(folder: str) -> Iterator[tuple[str, str, Optional[str]]]:
  """Yields the folder, split and (of log perplexity) task of each evaluation.

  The folder may itself be that of an evaluation.
  """
  for place in (
    folder,
    *(os.path.join(folder, n) for n in _subfolders(folder)),
  ):
    measured = _MEASURED.fullmatch(os.path.basename(place))
    evaluated = _EVALUATED.fullmatch(os.path.basename(place))
    if measured and _has_results(place):
      yield place, measured['split'], measured['task']
    elif evaluated and _has_results(place):
      yield place, evaluated['split'], None


def _has_results(folder: str) -> bool:
  return events.are_in(folder) or tf.io.gfile.exists(
    os.path.join(folder, records.METRICS)
  )


def _scores(
  folder: str,
  split: str,
  scalars: Mapping[str, Mapping[int, float]],
  recorded: set[tuple[int, str, str, str]],
) -> Iterator[Result]:
  """Yields the scores in T5's event files, but for those that are recorded.

  An accuracy has the standard error of a share, other metrics have none.
  """
  for tag, values in scalars.items():
    score = _SCORE.fullmatch(tag)
    if not score:
      continue
    for step, value in values.items():
      task, metric = score['task'], score['metric']
      if (step, task, split, metric) in recorded:
        continue
      n = _examples(folder, task, step)
      error = None
      if metric == _ACCURACY and n and 0 <= value <= 100:
        error = math.sqrt(value * (100 - value) / n)
      yield Result(
        task=task,
        split=split,
        metric=metric,
        value=value if math.isfinite(value) else None,
        n=n,
        unit='example',
        standard_error=error,
        step=step,
      )


def _examples(folder: str, task: str, step: int) -> Optional[int]:
  """How many examples T5's text files of an evaluation have, if they agree."""
  counts = set()
  for name in (f'{task}_targets', f'{task}_{step}_predictions'):
    path = os.path.join(folder, name)
    if not tf.io.gfile.exists(path):
      return None
    with tf.io.gfile.GFile(path, 'rb') as stream:
      counts.add(stream.read().count(b'\n'))
  return counts.pop() or None if len(counts) == 1 else None


def _measures(
  task: str, split: str, scalars: Mapping[str, Mapping[int, float]]
) -> Iterator[Result]:
  """Yields what was measured on tokens."""
  for step, tokens in scalars.get(_TOKENS, {}).items():
    # A class is a single token.
    is_class = scalars.get(_LONGEST, {}).get(step) == 1
    for metric in _MEASURES:
      value = scalars.get(metric, {}).get(step)
      if value is None:
        continue
      by_token = metric != _OF_SEQUENCES
      counted = round(tokens) if by_token or is_class else None
      yield Result(
        task=task,
        split=split,
        metric=metric,
        value=value if math.isfinite(value) else None,
        n=counted,
        unit='token' if by_token else 'example',
        standard_error=(
          math.sqrt(value * (1 - value) / counted)
          if counted and not by_token and 0 <= value <= 1
          else None
        ),
        step=step,
      )


def _recorded(folder: str) -> Iterator[records.Run]:
  for place, _, _ in _evaluations(folder):
    for _, run in records.read(place):
      yield run


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
  """Raises a `UserError` where a file or folder cannot be read."""
  try:
    yield
  except (tf.errors.OpError, UnicodeDecodeError) as error:
    raise UserError(f'{path} cannot be read: {error}') from error


def _out_of_markdown(text: str) -> str:
  """The configuration that gin wrote for TensorBoard, without headers."""
  indent = 4 * ' '
  lines = text.split('\n')
  return '\n'.join(
    line[len(indent) :] for line in lines if line.startswith(indent)
  )


def _literal(text: str) -> Any:
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return None  # a reference to something else


def _subfolders(folder: str) -> list[str]:
  if not tf.io.gfile.isdir(folder):
    return []
  found = (name.rstrip('/') for name in tf.io.gfile.listdir(folder))
  return sorted(
    name
    for name in found
    if not name.startswith('.')
    and tf.io.gfile.isdir(os.path.join(folder, name))
  )


def _seed_of(folder: str) -> Optional[int]:
  match = _SEED.fullmatch(os.path.basename(folder))
  return int(match[1]) if match else None


def _real(folder: str) -> str:
  return folder if '://' in folder else os.path.realpath(folder)
