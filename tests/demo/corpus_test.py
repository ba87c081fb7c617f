"""What stands in for real data: text of documentation, and samples."""

import sys

import pytest

from synth_mtf import paths, tasks
from synth_mtf.demo import corpus
from tests.official_files import VALIDATION_ROWS

DOCSTRING = """Returns the mean of the values along an axis.

The result has the shape of the input without the axis, and it is computed in
the precision of the input.

Args:
  values: A tensor with at least one dimension, of any floating type.
  axis: The dimension that is left out of the result, or all of them.

>>> mean([1, 2, 3])
2.0

A `mean` of ``nothing`` is an error, as it is in :class:`Other` libraries.
"""


def test_prose_keeps_sentences_and_drops_the_rest():
  assert list(corpus.prose(DOCSTRING)) == [
    'Returns the mean of the values along an axis.',
    'The result has the shape of the input without the axis, and it is '
    'computed in the precision of the input.',
    'A mean of nothing is an error, as it is in Other libraries.',
  ]


@pytest.mark.slow  # reads all that is installed
def test_gathering_imports_nothing_and_repeats(tmp_path, monkeypatch):
  monkeypatch.setattr(corpus, 'PACKAGES', ['nltk', 'seqio', 'no_such_package'])
  before = set(sys.modules)
  first, second = tmp_path / 'new' / 'first.txt', tmp_path / 'second.txt'
  for path in (first, second):
    corpus.write(path)
  assert not {name for name in set(sys.modules) - before if 'nltk' in name}
  assert first.read_bytes() == second.read_bytes()
  paragraphs = first.read_text().split('\n\n')
  assert len(set(paragraphs)) == len(paragraphs) > 100


def test_every_task_accepts_the_shipped_samples(tmp_path, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', paths.samples_path())
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path))
  names = ['synth_en_mix', 'synth_glue_wnli_v002']
  tasks.check(names, ['train', 'validation'])
  task = tasks.get('synth_glue_wnli_v002')
  assert task.source.num_input_examples('validation') == VALIDATION_ROWS
