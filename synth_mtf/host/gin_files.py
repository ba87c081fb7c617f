"""Finds and parses gin files: ours, T5's and the user's."""

import logging
import pathlib
from collections.abc import Sequence
from typing import Any

import gin

from synth_mtf.errors import UserError
from synth_mtf.host import explanations

_MOST_CHARACTERS = 2**20  # no configuration comes close


def parse(files: Sequence[str], bindings: Sequence[str] = ()) -> None:
  """Loads the configuration of a run with these files and bindings.

  Args:
    files: as in --gin_file; searched in the working folder, ours and T5's.
    bindings: as in --gin_param.
  """
  import mesh_tensorflow.transformer  # takes seconds, as does the next
  from t5.models import mesh_transformer

  gin.clear_config()
  t5s = str(pathlib.Path(mesh_transformer.__file__).parent / 'gin')
  if t5s not in gin.config._LOCATION_PREFIXES:
    gin.add_config_file_search_path(t5s)
  host = pathlib.Path(mesh_tensorflow.transformer.__file__).parent
  disabled = logging.root.manager.disable
  logging.disable(logging.ERROR)  # gin logs each file that it looks for
  try:
    with explanations.explained():
      gin.parse_config_files_and_bindings(
        [str(host / 'gin' / 'defaults.gin'), *files],
        list(bindings),
        # Names that old configurations may still bind.
        skip_unknown=mesh_transformer.DEPRECATED_GIN_REFERENCES,
      )
  finally:
    logging.disable(disabled)


def bindings(text: str, file: str = '') -> dict[str, str]:
  """Returns the bindings in the text of a gin file, without executing it.

  For example `{'SyntheticAttention.mixing': "'softmax'", 'd_model': '8'}`.
  """
  return {
    name_of(statement): repr(statement.value)
    for statement in statements(text, file)
    if isinstance(statement, gin.config_parser.BindingStatement)
  }


def statements(text: str, file: str = '') -> list[Any]:
  """Parses gin; references and macros are `Written`. Errors name the file."""
  where = file and f'{file}: '
  if len(text) > _MOST_CHARACTERS:
    raise UserError(f'{where}more than {_MOST_CHARACTERS:,} characters of gin')
  try:
    with explanations.explained():
      return list(gin.config_parser.ConfigParser(text, _AsWritten()))
  except (UserError, TypeError) as error:  # a list may be a dictionary's key
    raise UserError(f'{where}{error!s:.300}') from error


def name_of(binding: gin.config_parser.BindingStatement) -> str:
  """Returns a binding's name: the text before its equals sign."""
  scope = f'{binding.scope}/' if binding.scope else ''
  argument = f'.{binding.arg_name}' if binding.arg_name else ''
  return f'{scope}{binding.selector}{argument}'


class Written(str):
  """A reference, such as '@Dense()' or '%d_model'; its repr has no quotes."""

  __repr__ = str.__str__


class _AsWritten(gin.config_parser.ParserDelegate):
  """Keeps references and macros as they are written."""

  def configurable_reference(self, name: str, evaluate: bool) -> Written:
    return Written(f'@{name}{"()" if evaluate else ""}')

  def macro(self, name: str) -> Written:
    return Written(f'%{name}')
