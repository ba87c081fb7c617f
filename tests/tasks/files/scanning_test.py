"""One pass over a file, whose result is kept as long as the file stays."""

import json
import tracemalloc

import gin

from synth_mtf import tasks
from synth_mtf.tasks.files import blocks, scanning
from synth_mtf.tasks.glue import _CONFIGS, ColaReader
from tests.tasks.files import folder


def test_rows_are_counted_once_until_the_file_changes(data_dir, monkeypatch):
  folder.write_cola(data_dir, 300)
  task = tasks.get(folder.COLA)
  assert task.num_input_examples('train') == 300
  with monkeypatch.context() as patched:
    patched.setattr(scanning, 'scan', None)  # must not be called
    assert task.num_input_examples('train') == 300
    assert len(folder.sentences(shuffle=False)) == 300
  folder.write_cola(data_dir, 300, start=1)  # of the same length, nearly
  assert folder.sentences(shuffle=False)[0] == b'Sentence 1.'
  folder.write_cola(data_dir, 200)
  assert task.num_input_examples('train') == 200


def test_counts_lie_beside_the_run(data_dir, tmp_path):
  folder.write_cola(data_dir, 5)
  run_dir = tmp_path / 'run'
  gin.bind_parameter('synth_mtf.tasks.settings.index_dir', str(run_dir))
  assert tasks.get(folder.COLA).num_input_examples('train') == 5
  (stored,) = run_dir.iterdir()
  assert json.loads(stored.read_text())['num_examples'] == 5
  stored.write_text('{"damaged"')
  assert tasks.get(folder.COLA).num_input_examples('train') == 5


def test_folder_that_cannot_keep_counts_is_no_obstacle(data_dir, tmp_path):
  folder.write_cola(data_dir, 5)
  blocked = folder.write(tmp_path / 'file', b'')
  gin.bind_parameter('synth_mtf.tasks.settings.index_dir', str(blocked))
  assert tasks.get(folder.COLA).num_input_examples('train') == 5


def test_memory_does_not_grow_with_the_file(tmp_path):
  reader = ColaReader(_CONFIGS['cola'], labelled=True)
  peaks = []
  for megabytes in (4, 16):
    line = b'x\t1\t\t' + b'word ' * 200 + b'.\n'
    path = folder.write(
      tmp_path / f'{megabytes}.tsv', line * (megabytes * 1000)
    )
    tracemalloc.start()
    index = scanning.scan(str(path), reader)
    rows = sum(
      1 for b in index.blocks for _ in blocks.read(b, reader, False, None)
    )
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert rows == index.num_examples == megabytes * 1000
  assert peaks[1] < peaks[0] + 200_000
  assert peaks[1] < 4_000_000


def test_faults_are_counted_and_the_first_are_shown(tmp_path):
  good, bad = b'x\t1\t\tGood.\n', b'x\t7\t\tBad.\n'
  path = folder.write(tmp_path / 'a.tsv', bad + good + bad)
  index = scanning.scan(str(path), ColaReader(_CONFIGS['cola'], labelled=True))
  assert index.num_examples == 1
  assert index.num_faults == 2
  assert [fault.split(': ')[0] for fault in index.faults] == [
    f'{path}:1',
    f'{path}:3',
  ]


def test_more_faults_than_are_shown():
  assert scanning.describe_faults(['a', 'b'], 2) == 'a\nb'
  assert scanning.describe_faults(['a', 'b'], 5) == 'a\nb\n... and 3 more'
