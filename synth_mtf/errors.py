"""The error that is meant for a person rather than for a debugger."""


class UserError(Exception):
  """A mistake that the user can mend: shown as one message, no traceback.

  The message says what came, what was expected and what to do. Every command
  prints it as `synth-mtf: error: <message>` and exits with status 2.
  """


class ConfigurationError(UserError, ValueError):
  """A setting that cannot work, found when the layer or the graph is built.

  The message names the gin binding to change.
  """
