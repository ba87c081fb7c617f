"""The run of T5's main that this process is in.

T5 calls our code through gin and through names that we replace, which carry no
argument of ours; they find their run here. All else is handed on. It is a
ContextVar, so threads do not inherit it: what a thread needs of a run, it gets
from whoever starts it.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from synth_mtf.run.outcome import Outcome
from synth_mtf.run.ways import InSession, Way


def _now() -> str:
  return datetime.datetime.now(datetime.timezone.utc).isoformat('T', 'seconds')


@dataclasses.dataclass
class Evaluation:
  """How far the evaluations of a run are.

  Attributes:
    step: that of the checkpoint that decodes.
    total: the number of examples to decode; 0 if it is unknown.
    word_counts: of the data of language models, by name; None if unknown.
    has_named_bucket: whether the user knows that a bucket has no locks.
  """

  step: int = 0
  total: int = 0
  word_counts: dict[str, Any] = dataclasses.field(default_factory=dict)
  has_named_bucket: bool = False


@dataclasses.dataclass(frozen=True)
class Run:
  """A run of T5's main.

  Attributes:
    way: where it computes.
    started: the time, in ISO format. All results of an evaluation have it, so
      that they share one origin.
    outcome: what it has measured and written.
    evaluation: how far it is.
  """

  way: Way = dataclasses.field(default_factory=InSession)
  started: str = dataclasses.field(default_factory=_now)
  outcome: Outcome = dataclasses.field(default_factory=Outcome)
  evaluation: Evaluation = dataclasses.field(default_factory=Evaluation)


_run: ContextVar[Run] = ContextVar('run')


def run() -> Run:
  """Returns the current run; it begins here if nobody has begun it."""
  try:
    return _run.get()
  except LookupError:
    _run.set(Run())
    return _run.get()


@contextlib.contextmanager
def begun(new: Run) -> Iterator[Run]:
  """Makes a run the current one."""
  token = _run.set(new)
  try:
    yield new
  finally:
    _run.reset(token)
