"""Span corruption is T5's, over C4's own files and over any text."""

import collections
import gzip
import json

import gin
import pytest
import seqio

from synth_mtf import tasks
from tests.tasks.rows import frozen, run


def test_c4_over_its_own_files(official_data, tmp_path, prepared):
  text = (official_data / 'corpus/books/moby_dick.txt').read_text()
  texts = [text[i : i + 2000] for i in range(0, 40_000, 2000)]
  lines = [json.dumps({'text': t, 'url': 'x'}) for t in texts]
  for name, part in (('train.00000', lines[:15]), ('validation.00000', lines)):
    path = tmp_path / 'c4/en' / f'c4-{name}-of-00001.json.gz'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress('\n'.join(part).encode()))
  rows = [
    {
      'text': t,
      'url': 'x',
      'timestamp': '',
      'content-length': '',
      'content-type': '',
    }
    for t in texts
  ]
  prepared('c4/en:2.2.0', train=rows[:15], validation=rows)
  ours = tasks.get('synth_c4_span_corruption')
  t5_own = seqio.TaskRegistry.get('c4_v220_span_corruption')

  def texts_of(source, split):
    rows = run(lambda: source.get_dataset(split, shuffle=False))
    return collections.Counter(row['text'] for row in rows)

  for split in ('train', 'validation'):
    gin.clear_config()
    expected = texts_of(t5_own.source, split)
    assert texts_of(ours.source, split) == expected
    gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(tmp_path))
    assert texts_of(ours.source, split) == expected
    assert sum(expected.values()) == (15 if split == 'train' else 20)
  assert ours.preprocessors == t5_own.preprocessors


@pytest.mark.slow  # reads a corpus, twice
def test_rows_of_any_text_are_full(official_data):
  """512 inputs and 114 targets are full rows, and the stream repeats."""
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(official_data))
  lengths = {'inputs': 512, 'targets': 114}
  rows = [
    run(
      lambda: tasks.get('synth_text_span_corruption').get_dataset(
        lengths, 'train', seed=1
      ),
      limit=50,
    )
    for _ in range(2)
  ]
  assert list(map(frozen, rows[0])) == list(map(frozen, rows[1]))
  full = [
    r for r in rows[0] if (len(r['inputs']), len(r['targets'])) == (512, 114)
  ]
  assert len(full) > 45
  first_sentinel = tasks.VOCABULARY.vocab_size - 1
  noise = sum((r['targets'] < first_sentinel - 99).sum() - 1 for r in full)
  text = sum((r['inputs'] < first_sentinel - 99).sum() - 1 for r in full)
  assert noise / (noise + text) == pytest.approx(0.15, abs=0.005)
  spans = sum((r['inputs'] > first_sentinel - 99).sum() for r in full)
  assert noise / spans == pytest.approx(3.0, abs=0.1)
