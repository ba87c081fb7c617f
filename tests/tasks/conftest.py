"""Data of the tests of the tasks: settings, and T5's datasets on disk."""

import itertools
import json
import pathlib

import gin
import pytest
import tensorflow_datasets as tfds

from tests.tasks import comparison, tfds_samples
from tests.tasks.folder import write

# Without the sets for tests only, and WSC before TFDS corrected it.
_GLUE = {*tfds.text.glue.Glue.builder_configs} - {'ax'}
_SUPER_GLUE = {*tfds.text.super_glue.SuperGlue.builder_configs} - {
  *('axb', 'axg', 'wsc')
}


@pytest.fixture(autouse=True)
def settings_of_tests(monkeypatch, tmp_path):
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path / 'index'))
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'bytes')


@pytest.fixture
def data_dir(tmp_path) -> pathlib.Path:
  """An empty folder that the settings name, for files that a test writes."""
  folder = tmp_path / 'data'
  folder.mkdir()
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(folder))
  return folder


@pytest.fixture(scope='session')
def sample_data(some_data, tmp_path_factory) -> pathlib.Path:
  """The first rows of each official file, in the same layout."""
  folder = tmp_path_factory.mktemp('data')
  for pattern, lines in (('glue/*/*.tsv', 150), ('superglue/*/*.jsonl', 8)):
    for path in some_data.glob(pattern):
      start = itertools.islice(path.open('rb'), lines)
      write(folder / path.relative_to(some_data), b''.join(start))
  for path in some_data.glob('squad/*.json'):
    squad = json.loads(path.read_text())
    squad['data'] = squad['data'][:1]
    write(folder / 'squad' / path.name, json.dumps(squad).encode())
  return folder


@pytest.fixture(scope='session')
def tfds_dir(sample_data, tmp_path_factory) -> str:
  """T5's datasets, made from the same files by TFDS's own builders."""
  folder = str(tmp_path_factory.mktemp('tfds'))
  for name in _GLUE:
    files = _mrpc(sample_data, tmp_path_factory) if name == 'mrpc' else None
    tfds_samples.prepare(
      f'glue/{name}:1.0.0', files or str(sample_data / 'glue'), folder
    )
  for name in _SUPER_GLUE:
    tfds_samples.prepare(
      f'super_glue/{name}:1.0.2', str(sample_data / 'superglue'), folder
    )
  parts = 'train', 'dev'
  squad = {p: str(sample_data / f'squad/{p}-v1.1.json') for p in parts}
  tfds_samples.prepare('squad/v1.1:3.0.0', squad, folder)
  return folder


@pytest.fixture
def use_tfds(tfds_dir):
  """Points seqio at the datasets on disk."""
  with comparison.tfds_at(tfds_dir):
    yield


def _mrpc(sample_data, tmp_path_factory):
  """Returns Microsoft's two files, of which GLUE's are the parts."""
  folder = tmp_path_factory.mktemp('mrpc')
  parts = {
    part: (sample_data / 'glue' / 'MRPC' / f'{part}.tsv').read_bytes()
    for part in ('train', 'dev')
  }
  header, *dev_rows = parts['dev'].splitlines(keepends=True)
  ids = (b'\t'.join(line.split(b'\t')[1:3]) + b'\n' for line in dev_rows)
  files = {
    'train': b''.join([parts['train'], *dev_rows]),
    'dev_ids': b''.join(ids),
    'test': header + dev_rows[0],
  }
  for name, data in files.items():
    write(folder / name, data)
  return {name: str(folder / name) for name in files}


@pytest.fixture
def prepared(tmp_path):
  """Makes a TFDS dataset of given rows, which seqio then finds."""
  folder = str(tmp_path / 'tfds')

  def prepare(name, files=None, **splits):
    generators = {s: iter(enumerate(rows)) for s, rows in splits.items()}
    tfds_samples.prepare(name, files, folder, generators or None)

  with comparison.tfds_at(folder):
    yield prepare
