"""The paper's names of variants, as in its tables: R+V is random_vanilla."""

import os
import re
from collections.abc import Sequence

from synth_mtf import paths
from synth_mtf.errors import UserError, nearest

# The letters of functions, by what the paper and the gin files call them.
_LETTERS = {
  'random': 'R',
  'fixed random': 'Fix',
  'fixed': 'Fix',
  'factorized random': 'FR',
  'dense': 'D',
  'factorized dense': 'FD',
  'vanilla': 'V',
  't5': 'V',
  'transformer': 'V',
  'selfattention': 'V',
  'dot product': 'V',
}
_FILES = {
  'V': 'vanilla',
  'R': 'random',
  'Fix': 'fixed_random',
  'FR': 'factorized_random',
  'D': 'dense',
  'FD': 'factorized_dense',
  'R+D': 'random_dense',
  'R+V': 'random_vanilla',
  'D+V': 'dense_vanilla',
  'FR+V': 'factorized_random_vanilla',
  'FR+D': 'factorized_random_dense',
  'R+D+V': 'random_dense_vanilla',
}
NAMES = tuple(_FILES)  # of the paper
_BY_PARTS = {frozenset(name.lower().split('+')): name for name in NAMES}


def known() -> Sequence[str]:
  """Returns all names: the paper's, then those of the gin files."""
  return [*NAMES, *paths.gin_names('variants')]


def file_of(name: str) -> str:
  """Returns the name of the gin file of a variant.

  Args:
    name: such as 'R+V', 'Syn (R+V)', 'random + vanilla' or 'random_vanilla'.

  Raises:
    UserError: there is no such variant.
  """
  name = name.removeprefix('variants/').removesuffix('.gin')
  file = paper_file(name) or name.strip().lower().replace('-', '_')
  if file in paths.gin_names('variants'):
    return file
  if os.path.exists(f'variants/{name}.gin'):  # the user's
    return name
  raise UserError(
    f'there is no variant {name!r}{nearest(name, known())}\n'
    f"The paper's: {', '.join(NAMES)}. gin/variants/ has: "
    f'{", ".join(paths.gin_names("variants"))}.'
  )


def paper_file(name: str) -> str | None:
  """Returns the file of a variant that the paper names so, or None."""
  inside = re.fullmatch(r'\s*syn(?:thesizer)?\s*\((.*)\)\s*', name, re.I)
  parts = (inside[1] if inside else name).split('+')
  letters = frozenset(_letter(part).lower() for part in parts)
  return _FILES.get(_BY_PARTS.get(letters, ''))


def name_of(file: str) -> str:
  """Returns the paper's name of a gin file, or else the file's."""
  return next((name for name, x in _FILES.items() if x == file), file)


def _letter(part: str) -> str:
  words = ' '.join(re.split(r'[\s_-]+', part.strip()))
  return _LETTERS.get(words.lower(), words)
