"""Metrics of dialogue: pycocoevalcap's, and the similarity of embeddings."""

import shutil
import sys

import pytest

from synth_mtf.tasks import dialogue_metrics

_EXTRA = 'needs the extra [metrics]'
_SAID = ['i like my two dogs a lot', 'hello , how are you ?', 'yes i do']
_HEARD = ['i like dogs', 'hello , how are you today ?', 'no']


@pytest.mark.parametrize('name', ['bleu', 'rouge_l', 'cider', 'meteor'])
def test_they_are_pycocoevalcaps(name, capsys):
  pytest.importorskip('pycocoevalcap', reason=_EXTRA)
  metric = getattr(dialogue_metrics, name)
  assert metric.__name__ == name
  perfect, other = metric(_SAID, _SAID), metric(_SAID, _HEARD)
  if name == 'meteor' and not shutil.which('java'):
    assert perfect == {}
    return
  assert perfect.keys() == other.keys()
  for key in perfect:
    assert 0 < other[key] < perfect[key]
    if name != 'cider':
      assert perfect[key] == pytest.approx(100, abs=1e-4)
  assert not capsys.readouterr().out


def test_metric_without_its_package_is_left_out(monkeypatch, caplog):
  monkeypatch.setitem(sys.modules, 'pycocoevalcap.bleu.bleu', None)
  with caplog.at_level('WARNING', logger='absl'):
    assert dialogue_metrics.bleu(_SAID, _HEARD) == {}
  assert "pip install -c constraints.txt '.[metrics]'" in caplog.text


def test_embedding_similarity(tmp_path, monkeypatch, caplog):
  with caplog.at_level('WARNING', logger='absl'):
    assert dialogue_metrics.embedding_similarity(_SAID, _HEARD) == {}
  assert 'SYNTH_MTF_WORD_VECTORS' in caplog.text
  pytest.importorskip('gensim', reason=_EXTRA)
  vectors = tmp_path / 'vectors.txt'
  vectors.write_text('a 1 0\nb 0 1\n')
  monkeypatch.setenv('SYNTH_MTF_WORD_VECTORS', str(vectors))
  score = dialogue_metrics.embedding_similarity(
    ['a', 'a', 'a b', 'x'], ['a', 'b', 'a', 'x']
  )
  expected = 100 * (1 + 0 + 0.5**0.5 + 0) / 4
  assert score == {'embedding_similarity': pytest.approx(expected)}
  missing = tmp_path / 'absent.txt'
  monkeypatch.setenv('SYNTH_MTF_WORD_VECTORS', str(missing))
  with caplog.at_level('WARNING', logger='absl'):
    assert dialogue_metrics.embedding_similarity(_SAID, _HEARD) == {}
  assert str(missing) in caplog.text
