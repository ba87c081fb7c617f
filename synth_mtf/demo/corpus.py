"""English text for pretraining: the documentation of installed packages.

Docstrings are parsed from the source files; no module is imported. Paragraphs
that read as prose are kept: no signatures, examples or tables.
"""

import ast
import importlib.util
import pathlib
import re
import sysconfig
import warnings
from collections.abc import Iterator

# TensorFlow has by far the most text; the host's packages come last.
PACKAGES = (
  *('stdlib', 'numpy', 'keras', 'tensorflow', 'scipy'),
  *('mesh_tensorflow', 'seqio', 't5'),
)
BYTES_PER_PACKAGE = 2_000_000  # more would only take longer to gather

_SKIPPED_FOLDERS = {
  *('site-packages', 'test', 'tests', 'testing', 'idlelib', 'lib2to3')
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_PROSE = re.compile(r'[A-Z][a-z]* +(?:\S+ +){6,}\S*[.!?]')
_MARKUP = re.compile(r':\w+:(?=`)|[`*]+')
_MIN_LETTERS = 0.92  # share of letters, spaces and , . ' -


def write(folder: pathlib.Path) -> None:
  """Writes one text file per package; an empty line ends each paragraph.

  The same packages produce the same files.
  """
  folder.mkdir(parents=True, exist_ok=True)
  seen: set[bytes] = set()
  for package in PACKAGES:
    text = b''
    for line in (f'{one}\n\n'.encode() for one in _paragraphs(package)):
      if line in seen:  # much documentation is inherited or copied
        continue
      seen.add(line)
      if len(text) + len(line) > BYTES_PER_PACKAGE:
        break
      text += line
    if text:
      (folder / f'{package}.txt').write_bytes(text)


def _paragraphs(package: str) -> Iterator[str]:
  """Yields the prose in the source files of a package, without its tests."""
  root = pathlib.Path(sysconfig.get_path('stdlib'))
  if package != 'stdlib':
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
      return
    root = pathlib.Path(spec.origin).parent
  for path in sorted(root.rglob('*.py')):
    is_test = re.search('^test_|_test$', path.stem)
    folders = path.relative_to(root).parts
    if not is_test and _SKIPPED_FOLDERS.isdisjoint(folders):
      for docstring in _docstrings(path):
        yield from prose(docstring)


def _docstrings(path: pathlib.Path) -> Iterator[str]:
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # invalid escape sequences
      todo: list[ast.AST] = [ast.parse(path.read_bytes())]
  except (OSError, SyntaxError, ValueError, RecursionError):
    return  # a template, or a file for another Python
  while todo:
    node = todo.pop()
    if isinstance(node, _DOCUMENTED):
      yield ast.get_docstring(node) or ''
      todo += reversed(node.body)


def prose(docstring: str) -> Iterator[str]:
  """Yields the paragraphs of a docstring that read as English."""
  for block in re.split(r'\n\s*\n', docstring):
    lines = block.strip('\n').split('\n')
    # Prose has one indentation; argument lists, tables and code have several.
    if len({len(line) - len(line.lstrip()) for line in lines[1:]}) > 1:
      continue
    text = _MARKUP.sub('', ' '.join(block.split()))
    letters = sum(one.isalpha() or one in " ,.'-" for one in text)
    if _PROSE.fullmatch(text) and letters >= _MIN_LETTERS * len(text):
      yield text
