"""How gin finds and reads files: ours, T5's and those of a user."""

import contextlib
import logging
import pathlib
from collections.abc import Iterator, Sequence

import gin
import gin.config_parser
import mesh_tensorflow.transformer

from synth_mtf.host import errors, imports, patches
from synth_mtf.paths import gin_path

_DEFAULTS = str(
  pathlib.Path(mesh_tensorflow.transformer.__file__).parent
  / 'gin'
  / 'defaults.gin'
)

# Whose modules an untrusted file may import.
_OURS_AND_THE_HOSTS = ('synth_mtf', 'mesh_tensorflow', 't5', 'seqio')


def make_readable() -> None:
  """Has gin search our folder."""
  _search(gin_path())
  patches.find_packaged_gin_files()


def parse(files: Sequence[str], bindings: Sequence[str] = ()) -> None:
  """Makes gin hold what a run with these files and bindings would have.

  Args:
    files: as in --gin_file; found in the working folder, in ours and in T5's.
    bindings: as in --gin_param.

  Raises:
    UserError: a file, a name or a value is wrong.
  """
  with imports.quick():
    import t5.models

  gin.clear_config()
  _search(str(pathlib.Path(t5.models.__file__).parent / 'gin'))
  make_readable()
  with errors.explained(), _quiet():
    gin.parse_config_files_and_bindings(
      [_DEFAULTS, *files],
      list(bindings),
      skip_unknown=_deprecated(),
    )


def parse_foreign(text: str, file: str) -> list[str]:
  """Makes gin hold what an untrusted file says.

  An `import` line runs a module's code. Imports of modules that are not ours or
  the host's are left out, and so is `include`, which would reach other files.

  Args:
    text: the content of the file.
    file: its name, for messages.

  Returns:
    The statements that were left out.

  Raises:
    UserError: a name or a value is wrong.
  """
  with errors.explained():
    left_out = dict(_reaching_out(text))
    lines = [
      '' if number in left_out else line
      for number, line in enumerate(text.split('\n'), 1)
    ]
    text = '\n'.join(lines)
    if list(_reaching_out(text)):
      raise SyntaxError(f'{file}: two statements in a line')
  parse([])
  with errors.explained(), _quiet(), gin.unlock_config():
    gin.parse_config(text, skip_unknown=_deprecated())
  return list(left_out.values())


def bindings(text: str) -> dict[str, str]:
  """Returns what the text of a gin file binds, without running any of it.

  Returns:
    `{'SyntheticAttention.mixing': "'softmax'"}`, with macros by their names.

  Raises:
    UserError: the text is not valid gin.
  """
  with errors.explained():
    statements = gin.config_parser.ConfigParser(text, _AsWritten())
    return {
      _name(statement): repr(statement.value)
      for statement in statements
      if isinstance(statement, gin.config_parser.BindingStatement)
    }


class _Written(str):
  """Text whose repr has no quotes."""

  __slots__ = ()

  def __repr__(self) -> str:
    return str(self)


class _AsWritten(gin.config_parser.ParserDelegate):
  """Leaves references and macros as they are written."""

  def configurable_reference(
    self, scoped_configurable_name: str, evaluate: bool
  ) -> _Written:
    """Returns `@name` or `@name()`."""
    return _Written(f'@{scoped_configurable_name}{"()" if evaluate else ""}')

  def macro(self, macro_name: str) -> _Written:
    """Returns `%name`."""
    return _Written(f'%{macro_name}')


def _name(statement: gin.config_parser.BindingStatement) -> str:
  scope = f'{statement.scope}/' if statement.scope else ''
  argument = f'.{statement.arg_name}' if statement.arg_name else ''
  return f'{scope}{statement.selector}{argument}'


def _reaching_out(text: str) -> Iterator[tuple[int, str]]:
  """Yields line and text of each statement that reads more than its file."""
  statements = gin.config_parser.ConfigParser(
    text, gin.config.ParserDelegate(skip_unknown=True)
  )
  for statement in statements:
    if isinstance(statement, gin.config_parser.IncludeStatement):
      yield statement.location.line_num, f"include '{statement.filename}'"
    elif (
      isinstance(statement, gin.config_parser.ImportStatement)
      and statement.module.split('.')[0] not in _OURS_AND_THE_HOSTS
    ):
      yield statement.location.line_num, statement.format()


def _deprecated() -> Sequence[str]:
  """Names in old configs that T5 passes over."""
  from t5.models import mesh_transformer

  return mesh_transformer.DEPRECATED_GIN_REFERENCES


def _search(folder: str) -> None:
  if folder not in gin.config._LOCATION_PREFIXES:
    gin.add_config_file_search_path(folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Keeps gin from logging each file that it looks for."""
  logging.disable(logging.ERROR)
  try:
    yield
  finally:
    logging.disable(logging.NOTSET)
