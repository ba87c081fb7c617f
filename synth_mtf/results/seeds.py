"""Groups runs into models: those of one differ only in their seeds."""

import itertools
import re
from collections.abc import Hashable, Sequence

from synth_mtf.results.runs import Run

# What they may differ in.
_SEED = re.compile(r'(^|[./_])seed$')
_START = re.compile(r'(^|[./])init_checkpoint$')
_SEED_IN_A_NAME = re.compile(r'((?:^|[^a-zA-Z])(?:seed|s)[-_=]?)\d+')


def by_model(runs: Sequence[Run]) -> dict[str, list[Run]]:
  """Returns the runs of each model by its name, which no other model has.

  Runs are of one model if their labels and configurations differ only in seeds.
  """
  models: dict[Hashable, list[Run]] = {}
  for run in runs:
    models.setdefault(_identity(run), []).append(run)
  names = _distinct(list(models.values()))
  return dict(zip(names, models.values()))


def _identity(run: Run) -> Hashable:
  """What is equal for runs of one model, and different for others."""
  if not run.bindings:
    return run.name
  settings = {
    name: _SEED_IN_A_NAME.sub(r'\1', value) if _START.search(name) else value
    for name, value in run.bindings.items()
    if not _SEED.search(name)
  }
  return run.label, frozenset(settings.items())


def _distinct(models: Sequence[Sequence[Run]]) -> list[str]:
  """The models' names, with folders where several have the same."""
  labels = [runs[0].label for runs in models]
  places = [
    _common([run.name for run in runs]) or runs[0].name for runs in models
  ]
  return [
    _named(label, place, [p for one, p in zip(labels, places) if one == label])
    for label, place in zip(labels, places)
  ]


def _named(label: str, place: str, places: Sequence[str]) -> str:
  """A label, with the part of its place that others do not share."""
  if len(places) == 1:
    return label
  shared = len(_common(places))
  apart = {one: one[shared:].lstrip('/') for one in places}
  return f'{label}, {apart[place] if all(apart.values()) else place}'


def _common(names: Sequence[str]) -> str:
  """The folder that contains all names."""
  levels = zip(*(name.split('/') for name in names))
  common = itertools.takewhile(lambda level: len(set(level)) == 1, levels)
  return '/'.join(level[0] for level in common)
