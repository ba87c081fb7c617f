"""Errors with messages for users."""

import difflib
from collections.abc import Iterable


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


def nearest(name: object, options: Iterable[object]) -> str:
  """`; did you mean 'x' or 'y'?` for the options similar to a name, or ''."""
  words = {option for option in options if isinstance(option, str)}
  near = difflib.get_close_matches(str(name), sorted(words))
  return f'; did you mean {" or ".join(map(repr, near))}?' if near else ''
