"""Reads runs from disk, whichever command wrote them.

A run may be incomplete: checkpoints without evaluations are enough, and so are
event files alone, as the stock command and TPUs write them. metrics.json takes
precedence over T5's own files.
"""

import ast
import contextlib
import dataclasses
import functools
import math
import os
import re
import statistics
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from synth_mtf import paths
from synth_mtf.checkpoints import files, names
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import bounds, events, gin_files
from synth_mtf.results import layouts, model_facts, records
from synth_mtf.storage import filesystem, json_files

# T5's names for evaluation folders, and for the scores in their event files.
_EVALUATION = re.compile(
  r'eval_(?P<task>.+)_(?P<measured>[^_]+)_\d+(?:_.*)?'
  r'|(?P<split>.+)_eval(?:_.*)?'
)
_SCORE = re.compile(r'eval/([^/]+)/(.+)')
# What `ast.literal_eval` raises, also for what is nested too deeply.
_NOT_LITERAL = (
  ValueError,
  SyntaxError,
  TypeError,
  MemoryError,
  RecursionError,
)
# The greatest number of float32.
_MOST = float(np.finfo(np.float32).max)
# In the name of a checkpoint.
_SEED = re.compile(r'((?:^|[^a-zA-Z])(?:seed|s)[-_=]?)\d+')


# Of `Run.checkpoint_at`; before training, there is no checkpoint.
INITIAL = 'initial'
LAST = 'last'


class Run:
  """A trained model, read from its folders.

  Properties read files when they are first asked for.

  Attributes:
    name: path of the run, as given.
    folders: checkpoint folders in the order of training: one, or two for a
      demo's pretraining and finetuning.
    folder: the last of `folders`.
  """

  def __init__(self, name: str, folders: Sequence[str]) -> None:
    self.name = name
    self.folders = folders
    self.folder = folders[-1]

  @property
  def gin(self) -> str | None:
    """The operative configuration of the last training, or None."""
    return self._configuration[0]

  @property
  def gin_file(self) -> str:
    """The path of `gin`."""
    return self._configuration[1]

  @functools.cached_property
  def _configuration(self) -> tuple[str | None, str]:
    for folder in reversed(self.folders):
      path = os.path.join(folder, paths.OPERATIVE_CONFIG)
      text = filesystem.text(path)
      if text:
        return text, path
    return None, os.path.join(self.folder, paths.OPERATIVE_CONFIG)

  @functools.cached_property
  def bindings(self) -> Mapping[str, str]:
    """The configuration's bindings, by name; empty without a configuration."""
    return gin_files.bindings(self.gin, self.name) if self.gin else {}

  @functools.cached_property
  def seed(self) -> int | None:
    """The training seed, or None if it is unknown or not one."""
    seed = self.setting('train_with_progress.seed')
    is_seed = type(seed) is int and abs(seed) < 2**63
    return seed if is_seed else None

  @property
  def is_known(self) -> bool:
    """Whether `facts` need no TensorFlow."""
    return model_facts.known(self.gin, self.gin_file) is not None

  def describe(self) -> None:
    """Builds the model, for `facts`, and remembers them."""
    self.facts = model_facts.read(self.gin, self.gin_file)

  @functools.cached_property
  def facts(self) -> model_facts.ModelFacts:
    """What the configuration says about the model."""
    return model_facts.read(self.gin, self.gin_file)

  @property
  def label(self) -> str:
    """The paper's name for the model; the folder's if that is unknown."""
    kind = self.facts.kind
    return kind.label if kind else os.path.basename(self.name)

  @functools.cached_property
  def results(self) -> list[records.Result]:
    """Evaluation results, ordered by step."""
    by_key = {}
    for folder, scalars in self.scalars.items():
      for result in _results(folder, scalars):
        by_key[result.key] = _within_range(result)
    return [by_key[key] for key in sorted(by_key)]

  @functools.cached_property
  def origins(self) -> list[records.Origin]:
    """How it was trained and evaluated, oldest first; see run/origin.py."""
    origins: list[records.Origin] = []
    for folder in self.folders:
      origins += json_files.read(folder, records.ORIGINS, list) or []
      for subfolder in _with_results(folder):
        origins += [origin for _, origin in records.read(subfolder)]
    known = []
    for origin in origins:
      if 'environment' in origin and origin not in known:
        known.append(origin)
    return sorted(known, key=lambda origin: str(origin.get('date')))

  @functools.cached_property
  def losses(self) -> Mapping[str, Mapping[int, float]]:
    """The training loss in nats per token, by stage.

    A stage is a folder, and its name is '' if there is only one.
    """
    return self._curves(events.NATS_PER_TOKEN)

  @functools.cached_property
  def host_losses(self) -> Mapping[str, Mapping[int, float]]:
    """T5's training loss of stages without, or not always with, `losses`."""
    known = self.losses
    return {
      stage: curve
      for stage, curve in self._curves('loss').items()
      if min(curve, default=0) < min(known[stage], default=math.inf)
    }

  def _curves(self, tag: str) -> Mapping[str, Mapping[int, float]]:
    if len(self.folders) == 1:
      return {'': self.scalars[self.folder].get(tag, {})}
    return {
      os.path.basename(folder): scalars.get(tag, {})
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
    # A checkpoint may have been written without the slots.
    trained = owners or checkpoint.weights
    kept = self.setting('run.variable_filter')
    total = 0
    with _of_their_filter(self.gin_file):
      for name in checkpoint.weights:
        is_frozen = isinstance(kept, str) and not re.search(kept, name)
        if name in trained or is_frozen:
          total += int(np.prod(checkpoint.variables[name].shape))
    return total

  @functools.cached_property
  def products(self) -> int | None:
    """Multiplications in a forward pass over a pair of sequences.

    The sequences have the lengths used in training. None if a checkpoint or a
    readable configuration is missing.
    """
    lengths = self.setting('run.sequence_length')
    checkpoint = self.checkpoint
    if not lengths or not checkpoint:
      return None
    return model_facts.products(
      self.gin, self.gin_file, checkpoint.vocab_size, lengths
    )

  @functools.cached_property
  def checkpoint(self) -> files.Checkpoint | None:
    """The last checkpoint, or None if there is none."""
    written = Folder(self.folder).checkpoints
    return files.Checkpoint(f'{self.folder}/{written[-1]}') if written else None

  def checkpoint_at(self, step: int | str) -> files.Checkpoint | None:
    """Opens the checkpoint at a step, or at `LAST`; None for `INITIAL`."""
    if step == INITIAL:
      return None
    name = '' if step == LAST else f'model.ckpt-{step}'
    return files.Checkpoint(os.path.join(self.folder, name))

  @functools.cached_property
  def scalars(self) -> Mapping[str, events.Scalars]:
    """The scalars in event files, such as 'loss', by folder."""
    return {folder: events.read(folder) for folder in self.folders}

  def setting(self, name: str) -> Any:
    """The value of a binding, or None if it is unset or not a literal.

    Names match by suffix: an operative configuration may omit their modules.
    """
    for bound, value in self.bindings.items():
      if f'.{bound}'.endswith(f'.{name}'):
        with contextlib.suppress(*_NOT_LITERAL):
          return ast.literal_eval(value)
    return None


def read(*folders: str) -> list[Run]:
  """Returns the runs in folders, without duplicates.

  Args:
    *folders: those of models or of demos, or any with some of these inside.

  Raises:
    UserError: a folder does not exist or holds no run.
  """
  runs: dict[str, Run] = {}
  for folder in folders:
    name = folder.rstrip('/') or folder
    inside = list(_runs(name, seen=set()))
    if not inside:
      raise UserError(
        f'{name} does not exist or holds no run; expected a model folder '
        '(checkpoints, operative_config.gin or event files, and what '
        'evaluations wrote below it), the folder of a demo, or one with such '
        'folders inside.' + files.instead(name)
      )
    for run in inside:  # for a bucket, this is a key like any other
      runs.setdefault(os.path.realpath(run.name), run)
  return list(runs.values())


def only(folder: str) -> Run:
  """Returns the run in a folder, which holds one."""
  run, *others = read(folder)
  if others:
    names = ' '.join(other.name for other in (run, *others))
    raise UserError(
      f'{folder} holds {1 + len(others)} runs; give one of them: {names}'
    )
  return run


def by_model(runs: Sequence[Run]) -> dict[str, list[Run]]:
  """Groups runs by model, under a unique name for each model.

  Runs belong to one model if their labels and all settings but seeds agree.
  Models with the same label are told apart by the folder of their first run.
  """
  groups: dict[Hashable, list[Run]] = {}
  for run in runs:
    groups.setdefault(_identity(run), []).append(run)
  model_labels = [first.label for first, *_ in groups.values()]
  folder = common_folder([run.name for run in runs])
  models = {}
  for label, same in zip(model_labels, groups.values(), strict=True):
    if model_labels.count(label) > 1:
      label += f', {same[0].name.removeprefix(folder)}'
    models[label] = same
  return models


def common_folder(names: Sequence[str]) -> str:
  """Returns the folder that all runs are in, with a `/`, or ''."""
  common = os.path.commonprefix(names)
  return common[: common.rfind('/') + 1]


def _identity(run: Run) -> Hashable:
  """Returns a key that runs share if and only if they are of the same model."""
  if not run.bindings:
    return run.name
  settings = []
  for name, value in run.bindings.items():
    if re.search(r'(^|[./_])seed$', name):
      continue
    if name.endswith('init_checkpoint'):
      value = _SEED.sub(r'\1', value)
    settings.append((name, value))
  return run.label, frozenset(settings)


def _runs(folder: str, seen: set[str], depth: int = 3) -> Iterator[Run]:
  """Yields the runs in a folder; docs/runs.md describes that of a demo.

  Args:
    folder: a run, or a folder of runs.
    seen: the folders that were searched, to which links may lead back.
    depth: how far below the folder runs may be.
  """
  place = os.path.realpath(folder)  # for a bucket, this is a key like any other
  if place in seen:
    return
  seen.add(place)
  stages = [os.path.join(folder, stage) for stage in ('pretrain', 'finetune')]
  stages = [stage for stage in stages if _is_model_folder(stage)]
  is_demo = filesystem.exists(os.path.join(folder, 'run.json'))
  if stages or (not is_demo and _is_model_folder(folder)):
    yield Run(folder, stages or [folder])
    return
  if depth:
    inside = _in_order_of_table(folder) if is_demo else _by_number(folder)
    for name in inside:
      yield from _runs(os.path.join(folder, name), seen, depth - 1)


def _in_order_of_table(folder: str) -> list[str]:
  """Returns a demo's subfolders; variants in its table come first."""
  variants = json_files.read(
    folder, records.METRICS, lambda metrics: list(metrics['models'])
  )
  inside = filesystem.subfolders(folder)
  order = [*(variants or ()), *inside]
  return sorted(inside, key=order.index)


def _by_number(folder: str) -> list[str]:
  """Returns the subfolders, of which seed_2 comes before seed_10."""
  return sorted(filesystem.subfolders(folder), key=_texts_and_numbers)


def _texts_and_numbers(name: str) -> list[str | int]:
  """Returns the parts of a name, which are texts and numbers in turn."""
  parts = re.split('([0-9]+)', name)
  return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _is_model_folder(folder: str) -> bool:
  return (
    bool(Folder(folder).checkpoints)
    or filesystem.exists(os.path.join(folder, paths.OPERATIVE_CONFIG))
    or bool(events.files(folder))
    or any(_results(folder, {}))
  )


def _results(folder: str, scalars: events.Scalars) -> Iterator[records.Result]:
  """Yields results in a folder and its subfolders, the most reliable last.

  The folder may belong to a run or to an evaluation. `scalars` has scores if
  the run was evaluated there (`utils.run.eval_summary_dir`).
  """
  for subfolder in _with_results(folder):
    values = scalars if subfolder == folder else events.read(subfolder)
    recorded = [result for result, _ in records.read(subfolder)]
    name = _EVALUATION.fullmatch(os.path.basename(subfolder))
    if name and name['task']:
      yield from _measures(values, name['task'], name['measured'])
    elif name:
      yield from _scores(values, name['split'])
    else:
      yield from _scores(values, recorded[0].split if recorded else 'unknown')
    yield from recorded


def _with_results(folder: str) -> list[str]:
  """Returns a folder and those of its subfolders that hold evaluations."""
  folders = [folder]
  for name in filesystem.subfolders(folder):
    if _EVALUATION.fullmatch(name):
      folders.append(os.path.join(folder, name))
  return folders


def _scores(scalars: events.Scalars, split: str) -> Iterator[records.Result]:
  """Yields scores of tasks; event files have no n and no standard errors."""
  for tag, values in scalars.items():
    score = _SCORE.fullmatch(tag)
    if score:
      task, metric = score.groups()
      for step, value in values.items():
        yield _result(value, task=task, split=split, metric=metric, step=step)


def _measures(
  scalars: events.Scalars, task: str, split: str
) -> Iterator[records.Result]:
  """Yields metrics measured per token or per sequence."""
  for step, tokens in scalars.get('num_eval_tokens', {}).items():
    measured = {tag: at[step] for tag, at in scalars.items() if step in at}
    for metric in layouts.PER_TOKEN:
      if metric not in measured:
        continue
      n: int | None = round(tokens)
      unit = 'token'
      if metric == 'sequence_accuracy':
        unit = 'example'
        # Tokens are sequences only if targets are single tokens.
        if measured.get('max_targets_length') != 1:
          n = None
      yield _result(
        measured[metric],
        n,
        unit,
        metric=metric,
        step=step,
        task=task,
        split=split,
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


def _within_range(result: records.Result) -> records.Result:
  """Returns a result whose numbers can be averaged, squared and drawn.

  No score is outside of float32, in which models compute.
  """
  error = result.standard_error
  if error is not None and not abs(error) <= _MOST:
    result = dataclasses.replace(result, standard_error=None)
  value = result.value
  if value is None or abs(value) <= _MOST:
    return result
  reason = f'{value:g} is outside the range of float32'
  return dataclasses.replace(result, value=None, reason=reason)


@contextlib.contextmanager
def _of_their_filter(gin_file: str) -> Iterator[None]:
  """Ends a search for somebody else's pattern; explains an invalid one."""
  try:
    with bounds.bounded():
      yield
  except re.error as error:
    raise UserError(
      f'{gin_file}: utils.run.variable_filter is not a regular expression: '
      f'{error}'
    ) from error
