"""English prose for pretraining: the documentation of the installed packages.

Docstrings are read from the source text with `ast`; no module is imported. What
looks like prose is kept, paragraph by paragraph: sentences, not signatures,
examples or tables.
"""

import ast
import importlib.util
import pathlib
import re
import sysconfig
import warnings
from collections.abc import Iterator
from typing import Optional

from synth_mtf.errors import UserError

# In this order. TensorFlow has by far the most; the host's own come last.
PACKAGES = (
  'stdlib',
  'numpy',
  'keras',
  'tensorflow',
  'scipy',
  'mesh_tensorflow',
  'seqio',
  't5',
)
# Enough for a demo; a longer corpus would only take longer to gather.
BYTES_PER_PACKAGE = 2_000_000
# If less than this is found, the packages were not found.
LEAST_BYTES = 500_000

_SKIPPED_FOLDERS = frozenset(
  ('site-packages', 'test', 'tests', 'testing', 'idlelib', 'lib2to3')
)
_DOCUMENTED = (
  ast.Module,
  ast.ClassDef,
  ast.FunctionDef,
  ast.AsyncFunctionDef,
)
_SENTENCE_START = re.compile(r'[A-Z][a-z]* ')
_MARKUP = re.compile(r':\w+:(?=`)|[`*]+')
_LEAST_WORDS = 8
_LEAST_LETTERS = 0.92  # of the characters: letters, spaces and , . ' -


def write(folder: pathlib.Path) -> int:
  """Writes one text file per package; an empty line ends each paragraph.

  Args:
    folder: where the files `<package>.txt` go; made if need be.

  Returns:
    The number of bytes written. The same packages give the same files.

  Raises:
    UserError: too little documentation was found.
  """
  folder.mkdir(parents=True, exist_ok=True)
  seen: set[str] = set()
  total = 0
  for package in PACKAGES:
    text = _first(BYTES_PER_PACKAGE, _new(seen, _package_prose(package)))
    if text:
      (folder / f'{package}.txt').write_bytes(text)
      total += len(text)
  if total < LEAST_BYTES:
    raise UserError(
      f'only {total:,} bytes of documentation were found in the installed '
      f'packages ({", ".join(PACKAGES)}), at least {LEAST_BYTES:,} are needed '
      'for pretraining; docstrings may have been stripped. Pass --data_dir '
      'with your own text in corpus/.'
    )
  return total


def prose(docstring: str) -> Iterator[str]:
  """Yields the paragraphs of a docstring that read as English."""
  for block in re.split(r'\n\s*\n', docstring):
    lines = block.strip('\n').split('\n')
    indents = {len(line) - len(line.lstrip()) for line in lines[1:]}
    # Prose has one left edge; argument lists, tables and code are ragged.
    if len(indents) > 1:
      continue
    text = _MARKUP.sub('', ' '.join(block.split()))
    if _reads_as_english(text):
      yield text


def _reads_as_english(text: str) -> bool:
  if not _SENTENCE_START.match(text) or not text.endswith(('.', '!', '?')):
    return False
  if len(text.split()) < _LEAST_WORDS:
    return False
  plain = sum(one.isalpha() or one in " ,.'-" for one in text)
  return plain >= _LEAST_LETTERS * len(text)


def _package_prose(package: str) -> Iterator[str]:
  root = _root(package)
  if root is None:
    return
  for path in sorted(root.rglob('*.py')):
    inside = path.relative_to(root)
    if _SKIPPED_FOLDERS.isdisjoint(inside.parts) and not _is_test(path):
      for docstring in _docstrings(path):
        yield from prose(docstring)


def _root(package: str) -> Optional[pathlib.Path]:
  """Returns the folder of a package without importing it."""
  if package == 'stdlib':
    return pathlib.Path(sysconfig.get_path('stdlib'))
  spec = importlib.util.find_spec(package)
  return pathlib.Path(spec.origin).parent if spec and spec.origin else None


def _is_test(path: pathlib.Path) -> bool:
  return path.stem.startswith('test_') or path.stem.endswith('_test')


def _docstrings(path: pathlib.Path) -> Iterator[str]:
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # escape sequences that are not ours
      tree = ast.parse(path.read_bytes())
  except (OSError, SyntaxError, ValueError, RecursionError):
    return  # a template or a file for another Python: there are plenty more
  todo: list[ast.AST] = [tree]
  while todo:
    node = todo.pop()
    if isinstance(node, _DOCUMENTED):
      yield ast.get_docstring(node) or ''
      todo += reversed(node.body)


def _new(seen: set[str], paragraphs: Iterator[str]) -> Iterator[str]:
  """Drops repetitions: much documentation is inherited or copied."""
  for paragraph in paragraphs:
    if paragraph not in seen:
      seen.add(paragraph)
      yield paragraph


def _first(size: int, paragraphs: Iterator[str]) -> bytes:
  """Joins paragraphs until they have `size` bytes."""
  lines = []
  left = size
  for paragraph in paragraphs:
    line = paragraph.encode() + b'\n\n'
    left -= len(line)
    if left < 0:
      break
    lines.append(line)
  return b''.join(lines)
