"""Which runs are of one model: those that differ by their seeds alone."""

import itertools
import re
from collections.abc import Hashable, Sequence

from synth_mtf.results.runs import Run

# What they may differ by.
_OF_A_SEED = re.compile(r'(^|[./_])seed$')
_START = re.compile(r'(^|[./])init_checkpoint$')
_SEED_IN_A_NAME = re.compile(r'((?:^|[^a-zA-Z])(?:seed|s)[-_=]?)\d+')


def by_model(runs: Sequence[Run]) -> dict[str, list[Run]]:
  """Puts runs together whose labels and configurations agree but for seeds.

  Returns:
    The runs of each model, by a name that no other has, in their order.
  """
  models: dict[Hashable, list[Run]] = {}
  for run in runs:
    models.setdefault(_identity(run), []).append(run)
  names = _distinct(list(models.values()))
  return dict(zip(names, models.values()))


def _identity(run: Run) -> Hashable:
  """What runs of one model have in common."""
  if not run.bindings:
    return run.name
  settings = {
    name: _SEED_IN_A_NAME.sub(r'\1', value) if _START.search(name) else value
    for name, value in run.bindings.items()
    if not _OF_A_SEED.search(name)
  }
  return run.label, frozenset(settings.items())


def _distinct(models: Sequence[Sequence[Run]]) -> list[str]:
  """The models' names; where several have the same, with what folders tell."""
  labels = [runs[0].label for runs in models]
  places = [
    _common([run.name for run in runs]) or runs[0].name for runs in models
  ]
  return [
    _named(label, place, [p for one, p in zip(labels, places) if one == label])
    for label, place in zip(labels, places)
  ]


def _named(label: str, place: str, places: Sequence[str]) -> str:
  """A label with its place, if there are several: behind what all share."""
  if len(places) == 1:
    return label
  shared = len(_common(places))
  apart = {one: one[shared:].lstrip('/') for one in places}
  return f'{label}, {apart[place] if all(apart.values()) else place}'


def _common(names: Sequence[str]) -> str:
  """The folder that all names are in."""
  levels = zip(*(name.split('/') for name in names))
  common = itertools.takewhile(lambda level: len(set(level)) == 1, levels)
  return '/'.join(level[0] for level in common)
