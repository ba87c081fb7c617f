"""English text for pretraining: the documentation of installed packages.

Docstrings are read from the source files; no module is imported. Paragraphs
that read as prose are kept: no signatures, examples or tables.
"""

import importlib.util
import inspect
import pathlib
import re
from collections.abc import Iterator

from synth_mtf.storage import atomic

PACKAGES = (
  'numpy',
  'keras',
  'tensorflow',
  'scipy',
  'mesh_tensorflow',
  'seqio',
  't5',
)
_TEST_FILE = re.compile(r'(^|/)(tests?|testing)/|(^|/)test_[^/]*$|_test\.py$')
_DOCSTRING = re.compile('"""(.*?)"""', re.S)
_PROSE = re.compile(r'[A-Z][a-z]* +(?:\S+ +){6,}\S*[.!?]')
_MARKUP = re.compile(r':\w+:(?=`)|[`*]+')
_MIN_LETTERS = 0.92  # share of letters, spaces and , . ' -


def write(path: pathlib.Path) -> None:
  """Writes the text into a file, in which empty lines separate paragraphs.

  The same packages produce the same file.
  """
  paragraphs: dict[str, None] = {}  # each once: much is inherited or copied
  for package in PACKAGES:
    paragraphs.update(dict.fromkeys(_paragraphs(package)))
  path.parent.mkdir(parents=True, exist_ok=True)
  atomic.write(path, '\n\n'.join(paragraphs) + '\n')


def _paragraphs(package: str) -> Iterator[str]:
  """Yields the prose in the source files of a package, without its tests."""
  spec = importlib.util.find_spec(package)
  if spec is None or spec.origin is None:
    return
  root = pathlib.Path(spec.origin).parent
  for path in sorted(root.rglob('*.py')):
    if _TEST_FILE.search(path.relative_to(root).as_posix()):
      continue
    for docstring in _DOCSTRING.findall(path.read_text('utf-8', 'ignore')):
      yield from prose(inspect.cleandoc(docstring))


def prose(docstring: str) -> Iterator[str]:
  """Yields the paragraphs of a docstring that read as English."""
  for block in re.split(r'\n\s*\n', docstring):
    lines = block.strip('\n').split('\n')
    # Prose has one indentation; argument lists, tables and code have several.
    indentations = {len(line) - len(line.lstrip()) for line in lines[1:]}
    if len(indentations) > 1:
      continue
    text = _MARKUP.sub('', ' '.join(block.split()))
    letters = sum(char.isalpha() or char in " ,.'-" for char in text)
    if _PROSE.fullmatch(text) and letters >= _MIN_LETTERS * len(text):
      yield text
