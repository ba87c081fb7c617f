"""The benchmarks run and their JSON is complete; no test looks at a time."""

import json
import re
import sys

import pytest

from benchmarks import speed, tables
from benchmarks._worker import Worker
from tests.checkout import CHECKOUT

TINY = (
  *('--size', 'tiny', '--batch', '2', '--length', '12', '--targets', '5'),
  *('--rounds', '2'),
)


def test_the_tables_of_the_document_are_made_from_the_results():
  document = tables.DOCUMENT.read_text()
  assert document == tables.updated(document)
  shown = re.findall(r'<!-- table: (.*) -->\n\|', document)
  assert shown == [*tables.TABLES]


def test_every_variant_and_every_mode_of_the_rival_takes_part():
  names = speed.names()
  assert {'mtf factorized', 'mtf dense_plus_alpha'} < {*names['layer']}
  assert {'vanilla', 'random', 'dense', 'random_vanilla', 'glu'} < {
    *names['layer']
  }
  for section in names.values():
    layers = {name.removesuffix(', fast_cpu') for name in section}
    assert layers <= {speed.BASELINE, *names['layer']}


@pytest.mark.parametrize(
  'words, message',
  [
    (['layer', '--names', 'mtf radnom'], 'mtf radnom: expected some of'),
    (['layers'], 'layers: expected some of'),
  ],
)
def test_an_unknown_name_is_refused(capsys, words, message):
  with pytest.raises(SystemExit):
    speed.main([*words, *TINY])
  assert message in capsys.readouterr().err


@pytest.mark.slow  # starts processes
def test_layers_beside_those_of_another_checkout(tmp_path):
  path = tmp_path / 'results.json'
  words = ['--names', 'random', '--checkout', str(CHECKOUT)]
  speed.main(['packed', *TINY, *words, '--json', str(path)])
  names = ['SelfAttention', 'random']
  names += [f'before: {name}' for name in names]
  found = json.loads(path.read_text())['packed']
  assert list(found) == names
  for layer in found.values():
    assert layer['seconds'] > 0
    assert len(layer['speed']) == 3
    assert [*layer['over']] == names


@pytest.mark.slow  # starts processes
def test_whole_models():
  names = ['random, fast_cpu']
  words = ['model', 'decode', *TINY, '--names', *names, '--beams', '2']
  results = speed.main(words)
  for section in ('model', 'decode'):
    assert list(results[section]) == ['SelfAttention', *names]


@pytest.mark.slow  # starts processes
def test_each_length_is_a_process_until_memory_would_not_do():
  lengths = ['65536', '8']  # the first one would take terabytes
  words = ['--names', 'random', '--lengths', *lengths]
  curves = speed.main(['memory', *TINY, *words])['memory']
  for curve in (curves['random'], curves['random, full rows']):
    assert list(curve) == [8]
    for point in curve.values():
      assert point['seconds'] > 0
      assert point['bytes'] > curves['nothing'][0]['bytes']


def test_a_worker_that_ends_is_an_error():
  with pytest.raises(RuntimeError, match='ended with status 3'):
    Worker([sys.executable, '-c', 'raise SystemExit(3)'])
