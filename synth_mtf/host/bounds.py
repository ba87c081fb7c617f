"""Ends what somebody else's run makes us compute, if it takes forever."""

import contextlib
import signal
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

from synth_mtf.errors import UserError

# Functions that cannot be left halfway: gin would confuse its scopes.
_ENTERING = {'config_scope', '__enter__', '__exit__'}
_MOST_SECONDS = 30  # of the processor; T5's largest model takes three


@contextlib.contextmanager
def bounded() -> Iterator[None]:
  """Raises a `UserError` in a block that takes too long, on the main thread.

  Only that one receives signals.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  before = signal.signal(signal.SIGPROF, _end)
  signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS, 0.01)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def _end(_signal: int, frame: FrameType | None) -> None:
  functions = {f.f_code.co_name for f, _ in traceback.walk_stack(frame)}
  if functions.isdisjoint(_ENTERING):  # else wait for the next signal
    raise UserError(
      f'the model takes more than {_MOST_SECONDS} seconds to build: no real '
      'one has so many layers, heads or references'
    )
