"""Which files a task reads, and what seqio's own tools make of them."""

import collections
import json
import os
import subprocess
import sys

import gin
import pytest
import seqio

from synth_mtf import tasks
from synth_mtf.errors import UserError
from tests.tasks.files import folder
from tests.tasks.rows import run


def test_other_spellings_of_the_layout(data_dir):
  row = {'question': 'q', 'passage': 'p', 'idx': 0, 'label': True}
  folder.write(data_dir / 'glue_data/CoLA/train.tsv', b'x\t1\t\tA sentence.\n')
  folder.write(data_dir / 'BoolQ/train.jsonl', json.dumps(row).encode() + b'\n')
  tasks.check([folder.COLA, 'synth_super_glue_boolq_v102'], ['train'])


def test_source_of_a_single_task(data_dir, tmp_path):
  other = tmp_path / 'other'
  folder.write(other / 'glue/CoLA/train.tsv', b'x\t1\t\tFrom elsewhere.\n')
  gin.bind_parameter(
    'synth_mtf.tasks.settings.task_data_dirs',
    {'synth_glue_rte*': 'tfds', 'synth_glue_c*': str(other)},
  )
  assert folder.sentences(shuffle=False) == [b'From elsewhere.']
  rte = tasks.get('synth_glue_rte_v002').source.chosen
  assert isinstance(rte, seqio.TfdsDataSource)
  sst2 = tasks.get('synth_glue_sst2_v002').source
  with pytest.raises(UserError, match=str(data_dir)):
    sst2.get_dataset('train')


@pytest.mark.slow  # a process of its own
def test_cache_job_of_seqio(some_data, tmp_path, monkeypatch):
  """seqio's own command caches a task, and the cached rows are the task's."""
  pytest.importorskip('apache_beam', reason='needs synth-mtf[cache]')
  environment = {**os.environ, 'SYNTH_MTF_DATA_DIR': str(some_data)}
  subprocess.run(
    [
      sys.executable,
      '-m',
      'seqio.scripts.cache_tasks_main',
      '--module_import=synth_mtf.tasks',
      '--tasks=synth_super_glue_record_v102',
      f'--output_cache_dir={tmp_path}',
    ],
    check=True,
    env=environment,
    cwd=tmp_path,
  )
  cache = tmp_path / 'synth_super_glue_record_v102'
  stats = json.loads((cache / 'stats.train.json').read_text())
  # One example for each answer of each query, in whatever words it is given.
  file = some_data / 'superglue/ReCoRD/train.jsonl'
  expected = sum(
    len({answer['text'] for answer in query['answers']})
    for line in file.read_text(encoding='utf-8').splitlines()
    for query in json.loads(line)['qas']
  )
  assert stats['examples'] == expected
  assert (cache / 'COMPLETED').exists()

  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(some_data))
  before = seqio.get_global_cache_dirs()
  seqio.add_global_cache_dirs([str(tmp_path)])
  try:
    cached, direct = (
      _tokens('synth_super_glue_record_v102', use_cached)
      for use_cached in (True, False)
    )
  finally:
    seqio.set_global_cache_dirs(before)
  assert sum(cached.values()) == expected
  assert cached == direct


def _tokens(name, use_cached) -> collections.Counter[tuple[bytes, bytes]]:
  rows = run(
    lambda: tasks.get(name).get_dataset(
      {'inputs': 512, 'targets': 114}, 'train', use_cached, shuffle=False
    )
  )
  return collections.Counter(
    (row['inputs'].tobytes(), row['targets'].tobytes()) for row in rows
  )
