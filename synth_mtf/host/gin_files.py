"""Finds and parses gin files: ours, T5's and the user's."""

import logging
import pathlib
from collections.abc import Iterator, Sequence

import gin
import gin.config_parser
import mesh_tensorflow.transformer

from synth_mtf.host import errors, patches
from synth_mtf.paths import gin_path

# Packages whose modules an untrusted file may import.
_OURS_AND_THE_HOSTS = ('synth_mtf', 'mesh_tensorflow', 't5', 'seqio')


def make_readable() -> None:
  """Adds our folder to gin's search path."""
  _search(gin_path())
  patches.find_packaged_gin_files()


def parse(files: Sequence[str], bindings: Sequence[str] = ()) -> None:
  """Loads the configuration of a run with these files and bindings.

  Args:
    files: as in --gin_file; searched in the working folder, ours and T5's.
    bindings: as in --gin_param.
  """
  from t5.models import mesh_transformer  # takes seconds to import

  gin.clear_config()
  make_readable()
  _search(str(pathlib.Path(mesh_transformer.__file__).parent / 'gin'))
  host = pathlib.Path(mesh_tensorflow.transformer.__file__).parent
  logging.disable(logging.ERROR)  # gin logs each file that it looks for
  try:
    with errors.explained():
      gin.parse_config_files_and_bindings(
        [str(host / 'gin' / 'defaults.gin'), *files],
        list(bindings),
        # Names in old configurations.
        skip_unknown=mesh_transformer.DEPRECATED_GIN_REFERENCES,
      )
  finally:
    logging.disable(logging.NOTSET)


def parse_foreign(text: str, file: str) -> list[str]:
  """Loads the configuration in an untrusted file.

  An `import` line runs a module's code. Imports of modules other than ours and
  the host's are skipped, and so is `include`, which would read other files.

  Args:
    text: the content of the file.
    file: its name, for messages.

  Returns:
    The skipped statements.
  """
  with errors.explained():
    left_out = dict(_reaching_out(text))
    lines = enumerate(text.split('\n'), 1)
    text = '\n'.join('' if n in left_out else line for n, line in lines)
    if dict(_reaching_out(text)):
      raise SyntaxError(f'{file}: two statements in a line')
  parse([], text.split('\n'))
  return list(left_out.values())


def bindings(text: str) -> dict[str, str]:
  """Returns the bindings in the text of a gin file, without executing it.

  For example `{'SyntheticAttention.mixing': "'softmax'", 'd_model': '8'}`.
  """
  found = {}
  with errors.explained():
    for one in gin.config_parser.ConfigParser(text, _AsWritten()):
      if isinstance(one, gin.config_parser.BindingStatement):
        scope = f'{one.scope}/' if one.scope else ''
        argument = f'.{one.arg_name}' if one.arg_name else ''
        found[f'{scope}{one.selector}{argument}'] = repr(one.value)
  return found


class _Written(str):
  """Text whose repr has no quotes."""

  __slots__ = ()
  __repr__ = str.__str__


class _AsWritten(gin.config_parser.ParserDelegate):
  """Keeps references and macros as they are written."""

  def configurable_reference(self, name: str, evaluate: bool) -> _Written:
    return _Written(f'@{name}{"()" if evaluate else ""}')

  def macro(self, name: str) -> _Written:
    return _Written(f'%{name}')


def _reaching_out(text: str) -> Iterator[tuple[int, str]]:
  """Yields line and text of each `include` and each foreign `import`."""
  for one in gin.config_parser.ConfigParser(text, _AsWritten()):
    if isinstance(one, gin.config_parser.IncludeStatement):
      yield one.location.line_num, f"include '{one.filename}'"
    elif (
      isinstance(one, gin.config_parser.ImportStatement)
      and one.module.split('.')[0] not in _OURS_AND_THE_HOSTS
    ):
      yield one.location.line_num, one.format()


def _search(folder: str) -> None:
  if folder not in gin.config._LOCATION_PREFIXES:
    gin.add_config_file_search_path(folder)
