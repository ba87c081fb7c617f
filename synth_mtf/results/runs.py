"""Reads runs from disk, whichever command wrote them.

A run may be incomplete: checkpoints without evaluations are enough, and so are
event files alone, as the stock command and TPUs write them. metrics.json takes
precedence over T5's own files.
"""

import ast
import contextlib
import functools
import math
import os
import re
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf.message import DecodeError

from synth_mtf import cost, json_files
from synth_mtf.checkpoints import files, names
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import events, foreign, gin_files
from synth_mtf.results import labels, layouts, records

_CONFIGURATION = 'operative_config.gin'
# T5's names for evaluation folders, and for the scores in their event files.
_EVALUATION = re.compile(
  r'eval_(?P<task>.+)_(?P<measured>[^_]+)_\d+(?:_.*)?'
  r'|(?P<split>.+)_eval(?:_.*)?'
)
_SCORE = re.compile(r'eval/([^/]+)/(.+)')
# In the name of a checkpoint.
_SEED = re.compile(r'((?:^|[^a-zA-Z])(?:seed|s)[-_=]?)\d+')


class Run:
  """A trained model, read from its folders.

  Properties read files lazily. `label`, `kind`, `products` call `configure`.

  Attributes:
    name: path of the run, as given.
    folders: checkpoint folders in the order of training: one, or two for a
      demo's pretraining and finetuning.
    folder: the last of `folders`.
    fault: why `label`, `kind` or `products` are unknown.
  """

  fault = ''

  def __init__(self, name: str, folders: Sequence[str]) -> None:
    self.name = name
    self.folders = folders
    self.folder = folders[-1]

  @functools.cached_property
  def gin(self) -> str | None:
    """The operative configuration of the last training, or None."""
    paths = [os.path.join(folder, _CONFIGURATION) for folder in self.folders]
    return next(filter(None, map(foreign.read, reversed(paths))), None)

  @functools.cached_property
  def bindings(self) -> Mapping[str, str]:
    """The configuration's bindings, by name; empty without a configuration."""
    return gin_files.bindings(self.gin, self.name) if self.gin else {}

  @functools.cached_property
  def seed(self) -> int | None:
    """The training seed, or None if it is unknown."""
    return self._setting('train_with_progress.seed')

  @functools.cached_property
  def label(self) -> str:
    """The paper's name for the model.

    Falls back to the folder's name if `kind` is unknown; `fault` says why.
    """
    return self.kind.label if self.kind else os.path.basename(self.name)

  @functools.cached_property
  def kind(self) -> labels.Kind | None:
    """What decides which published rows match; None if that is unknown."""
    return self._of_model(labels.kind)

  @functools.cached_property
  def results(self) -> list[records.Result]:
    """Evaluation results, ordered by step."""
    with _explained(self.name):
      found = {
        result.key: result
        for folder, scalars in self.scalars.items()
        for result in _results(folder, scalars)
      }
    return [found[key] for key in sorted(found)]

  @functools.cached_property
  def origins(self) -> list[records.Origin]:
    """How it was trained and evaluated, oldest first; see run/origin.py."""
    found: list[records.Origin] = []
    for folder in self.folders:
      found += json_files.read(folder, records.ORIGINS, list) or []
      found += [o for p in _places(folder) for _, o in records.read(p)]
    known = [
      origin
      for number, origin in enumerate(found)
      if 'environment' in origin and origin not in found[:number]
    ]
    return sorted(known, key=lambda origin: str(origin.get('date')))

  @functools.cached_property
  def losses(self) -> Mapping[str, Mapping[int, float]]:
    """The training loss, by stage: a folder's name if there are several."""
    several = len(self.folders) > 1
    return {
      os.path.basename(folder) * several: scalars.get('loss', {})
      for folder, scalars in self.scalars.items()
    }

  @functools.cached_property
  def steps_per_second(self) -> float | None:
    """The median speed in the first of `folders`, or None if it is unknown.

    A mean would be skewed: the first step compiles and machines are shared.
    """
    speeds = self.scalars[self.folders[0]].get('global_step/sec')
    return statistics.median(speeds.values()) if speeds else None

  @functools.cached_property
  def parameters(self) -> int | None:
    """The number of trained parameters, or None without a checkpoint.

    Weights that are frozen only in finetuning (`utils.run.variable_filter`) are
    counted; weights that are never trained (Fix) are not.
    """
    checkpoint = self.checkpoint
    if checkpoint is None:
      return None
    owners = {names.slot_owner(slot) for slot in checkpoint.slots}
    trained = owners or checkpoint.weights  # written without the slots
    kept = self._setting('run.variable_filter')
    with foreign.bounded():  # a pattern of somebody else
      return sum(
        int(np.prod(checkpoint.variables[name].shape))
        for name in checkpoint.weights
        if name in trained
        or (isinstance(kept, str) and not re.search(kept, name))
      )

  @functools.cached_property
  def products(self) -> int | None:
    """Multiplications in a forward pass over a pair of sequences.

    The sequences have the lengths used in training. None if a checkpoint or a
    readable configuration is missing.
    """
    lengths, checkpoint = self._setting('run.sequence_length'), self.checkpoint
    if not lengths or not checkpoint:
      return None
    return self._of_model(
      lambda: cost.cost(checkpoint.vocab_size, lengths).flops // 2
    )

  @functools.cached_property
  def checkpoint(self) -> files.Checkpoint | None:
    """The last checkpoint, or None if there is none."""
    written = Folder(self.folder).checkpoints
    return files.Checkpoint(f'{self.folder}/{written[-1]}') if written else None

  @functools.cached_property
  def scalars(self) -> Mapping[str, events.Scalars]:
    """The scalars in event files, such as 'loss', by folder."""
    with _explained(self.name):
      return {folder: events.read(folder) for folder in self.folders}

  def configure(self) -> None:
    """Parses the configuration, which replaces gin's current bindings."""
    if not self.gin:
      raise UserError(
        f'{self.name} has no operative_config.gin, which describes its model'
      )
    foreign.parse(self.gin, os.path.join(self.folder, _CONFIGURATION))

  def _of_model(self, function: Callable[[], Any]) -> Any:
    """Calls a function with the configuration parsed; None if parsing fails."""
    try:
      with foreign.bounded():
        self.configure()
        return function()
    except UserError as error:
      self.fault = str(error)
      return None

  def _setting(self, name: str) -> Any:
    """The value of a binding, or None if it is unset or not a literal.

    Names match by suffix: an operative configuration may omit their modules.
    """
    for bound, value in self.bindings.items():
      if f'.{bound}'.endswith(f'.{name}'):
        with contextlib.suppress(ValueError, SyntaxError):
          return ast.literal_eval(value)
    return None


def read(*folders: str) -> list[Run]:
  """Returns the runs in model folders and demo folders, without duplicates.

  Raises:
    UserError: a folder does not exist or holds no run.
  """
  found: dict[str, Run] = {}
  for folder in folders:
    name = folder.rstrip('/') or folder
    with _explained(name):
      inside = list(_runs(name))
    if not inside:
      raise UserError(
        f'{name} does not exist or holds no run; expected a model folder '
        '(checkpoints, operative_config.gin or event files, and what '
        'evaluations wrote below it) or the folder of a demo.'
      )
    for run in inside:  # for a bucket, this is a key like any other
      found.setdefault(os.path.realpath(run.name), run)
  return list(found.values())


def by_model(runs: Sequence[Run]) -> dict[str, list[Run]]:
  """Groups runs by model, under a unique name for each model.

  Runs belong to one model if their labels and all settings but seeds agree.
  Models with the same label are told apart by the folder of their first run.
  """
  groups: dict[Hashable, list[Run]] = {}
  for run in runs:
    groups.setdefault(_identity(run), []).append(run)
  model_labels = [first.label for first, *_ in groups.values()]
  common = os.path.commonprefix([run.name for run in runs])
  folder = common[: common.rfind('/') + 1]
  models = {}
  for label, same in zip(model_labels, groups.values(), strict=True):
    if model_labels.count(label) > 1:
      label += f', {same[0].name.removeprefix(folder)}'
    models[label] = same
  return models


def _identity(run: Run) -> Hashable:
  """Returns a key that runs share if and only if they are of the same model."""
  if not run.bindings:
    return run.name
  settings = {
    name: _SEED.sub(r'\1', value) if name.endswith('init_checkpoint') else value
    for name, value in run.bindings.items()
    if not re.search(r'(^|[./_])seed$', name)
  }
  return run.label, frozenset(settings.items())


def _runs(folder: str, depth: int = 3) -> Iterator[Run]:
  """Yields the runs in a folder; docs/runs.md describes that of a demo."""
  paths = (os.path.join(folder, stage) for stage in ('pretrain', 'finetune'))
  stages = list(filter(_is_model_folder, paths))
  is_demo = tf.io.gfile.exists(os.path.join(folder, 'run.json'))
  inside = _subfolders(folder)
  if stages or (not is_demo and _is_model_folder(folder)):
    yield Run(folder, stages or [folder])
    return
  if is_demo:
    # Variants in the demo's table come first, in the table's order.
    models = json_files.read(
      folder, records.METRICS, lambda metrics: list(metrics['models'])
    )
    inside.sort(key=[*(models or ()), *inside].index)
  else:
    seeds = filter(re.compile(r'seed_\d+').fullmatch, inside)
    inside = sorted(seeds, key=len)  # 2 before 10
  for name in inside if depth else ():  # links may form circles
    yield from _runs(os.path.join(folder, name), depth - 1)


def _is_model_folder(folder: str) -> bool:
  return (
    bool(Folder(folder).checkpoints)
    or tf.io.gfile.exists(os.path.join(folder, _CONFIGURATION))
    or bool(events.files(folder))
    or any(_results(folder, {}))
  )


def _results(folder: str, scalars: events.Scalars) -> Iterator[records.Result]:
  """Yields results in a folder and its subfolders, the most reliable last.

  The folder may belong to a run or to an evaluation. `scalars` has scores if
  the run was evaluated there (`utils.run.eval_summary_dir`).
  """
  for place in _places(folder):
    found = scalars if place == folder else events.read(place)
    recorded = [result for result, _ in records.read(place)]
    name = _EVALUATION.fullmatch(os.path.basename(place))
    if name and name['task']:
      yield from _measures(found, task=name['task'], split=name['measured'])
    else:
      splits = [name['split']] if name else [x.split for x in recorded]
      yield from _scores(found, split=[*splits, 'unknown'][0])
    yield from recorded


def _places(folder: str) -> list[str]:
  names = filter(_EVALUATION.fullmatch, _subfolders(folder))
  return [folder, *(os.path.join(folder, name) for name in names)]


def _scores(scalars: events.Scalars, split: str) -> Iterator[records.Result]:
  """Yields scores of tasks; event files have no n and no standard errors."""
  for tag, values in scalars.items():
    if score := _SCORE.fullmatch(tag):
      task, metric = score.groups()
      for step, value in values.items():
        yield _result(value, task=task, split=split, metric=metric, step=step)


def _measures(
  scalars: events.Scalars, **about: str
) -> Iterator[records.Result]:
  """Yields metrics measured per token or per sequence."""
  for step, tokens in scalars.get('num_eval_tokens', {}).items():
    found = {tag: at[step] for tag, at in scalars.items() if step in at}
    for metric in layouts.PER_TOKEN:
      # Tokens are sequences only if targets are single tokens.
      is_whole = metric == 'sequence_accuracy'
      counted = not is_whole or found.get('max_targets_length') == 1
      if metric in found:
        yield _result(
          found[metric],
          round(tokens) if counted else None,
          'example' if is_whole else 'token',
          metric=metric,
          step=step,
          **about,
        )


def _result(
  value: float, n: int | None = None, unit: str = 'example', **about: Any
) -> records.Result:
  """Makes a result, with a standard error if it is a share of examples."""
  error = None
  if n and n > 1 and unit == 'example' and 0 <= value <= 1:
    error = math.sqrt(value * (1 - value) / (n - 1))
  return records.Result(
    value=value if math.isfinite(value) else None,
    n=n,
    unit=unit,
    standard_error=error,
    **about,
  )


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
  """Raises a `UserError` if a file or folder cannot be read."""
  try:
    yield
  except (tf.errors.OpError, UnicodeDecodeError, DecodeError) as error:
    raise UserError(f'{path} cannot be read: {error}') from error


def _subfolders(folder: str) -> list[str]:
  _, names, _ = next(tf.io.gfile.walk(folder), ('', [], []))
  return sorted(name.rstrip('/') for name in names if name[0] != '.')
