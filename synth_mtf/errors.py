"""Errors with messages for users."""

import difflib
import re
from collections.abc import Callable, Iterable

_MOST_SUGGESTIONS = 3


class UserError(Exception):
  """A mistake that the user can fix, shown as a message without a traceback.

  The message says what was found, what was expected and what to do. Every
  command prints it as `synth-mtf: error: <message>` and exits with status 2.
  """


class ConfigurationError(UserError, ValueError):
  """A setting that cannot work, found while the layer or graph is built.

  The message names the gin binding to change.
  """


class RunFailed(Exception):
  """A run failed with an unknown error; its log has the traceback.

  Every command prints the message and exits with status 1.
  """


class Terminated(KeyboardInterrupt):
  """SIGTERM ends a command, as Ctrl-C does; the status is then 143."""


def nearest(
  name: object,
  options: Iterable[object],
  compared: Callable[[str], str] = str,
) -> str:
  """`; did you mean 'x' or 'y'?` for the options similar to a name, or ''.

  Args:
    name: what was given.
    options: what there is; only texts are suggested.
    compared: returns the part of a name or an option that is compared.
  """
  by_part: dict[str, list[str]] = {}
  for option in sorted({x for x in options if isinstance(x, str)}):
    by_part.setdefault(compared(option), []).append(option)
  parts = difflib.get_close_matches(compared(str(name)), by_part)
  return question(option for part in parts for option in by_part[part])


def nearest_task(name: object, known: Iterable[str]) -> str:
  """`nearest` for tasks and mixtures.

  Those that have all words of the name come first, and ours before T5's.
  """
  words = f'_{_words_of_task(str(name))}_'
  tasks = sorted(known, key=lambda task: (not _is_ours(task), len(task), task))
  having = [task for task in tasks if words in f'_{_words_of_task(task)}_']
  if having:
    return question(having)
  ours = [task for task in tasks if _is_ours(task)]
  return nearest(name, ours, _words_of_task) or nearest(
    name, tasks, _words_of_task
  )


def _is_ours(task: str) -> bool:
  return task.startswith('synth_')


def _words_of_task(name: str) -> str:
  """Returns a name without what many names have in common."""
  return re.sub(r'^synth_|_v\d+$', '', name)


def question(options: Iterable[str]) -> str:
  """`; did you mean 'x' or 'y'?` for the first options, or ''."""
  shown = [*map(repr, options)][:_MOST_SUGGESTIONS]
  return f'; did you mean {" or ".join(shown)}?' if shown else ''
