"""What there is: the files and rows of each split, and rates."""

import gin
import pytest

from synth_mtf import tasks
from synth_mtf.tasks import overview
from synth_mtf.tasks.overview import FileRows, SplitRows

COLA = 'synth_glue_cola_v002'
ROWS = [b'gj04\t%d\t\tA sentence.\n' % (i % 2) for i in range(5)]


@pytest.fixture
def cola(tmp_path):
  """The task over a folder of our own, and its file of training rows."""
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(tmp_path))
  path = tmp_path / 'glue' / 'CoLA' / 'train.tsv'
  path.parent.mkdir(parents=True)
  path.write_bytes(b''.join(ROWS))
  return tasks.get(COLA), path


def test_rows_of_a_split():
  def split(*rows):
    return SplitRows(COLA, 'train', tuple(FileRows('a', n) for n in rows))

  assert split(3, 4).rows == 7
  assert split(3, None).rows is None
  assert split().rows is None
  assert split(8_551).released == 'as released'
  assert split(8_550).released == '1 missing'
  assert split(None).released == ''


def test_splits_of_files(cola):
  task, path = cola
  train, validation = overview.splits_of(task)
  assert (train.task, train.split, train.rows) == (COLA, 'train', 5)
  (file,) = train.files
  assert (file.path, file.rows, file.num_faults) == (str(path), 5, 0)
  assert file.digest
  assert (validation.split, validation.files) == ('validation', ())
  assert 'no file glue/CoLA/dev.tsv' in validation.missing


def test_faults_are_counted(cola):
  task, path = cola
  path.write_bytes(ROWS[0] + b'gj04\t7\t\tA sentence.\n' + ROWS[1])
  train, *_ = overview.splits_of(task)
  (file,) = train.files
  assert (file.rows, file.num_faults) == (2, 1)
  assert f'{path}:2' in file.faults[0]


def test_a_task_over_tfds_has_no_files_to_look_at():
  task = tasks.get(COLA)
  assert overview.files_of(task) is None
  assert list(overview.splits_of(task)) == []


def test_rates_count_the_files_that_are_there(cola):
  rates = {r.task: r for r in overview.rates_of(tasks.get('synth_glue'))}
  counted = rates[COLA]
  assert (counted.rows, counted.known, counted.rate) == (5, 'files', 5)
  released = rates['synth_glue_rte_v002']
  assert (released.rows, released.known) == (2_490, 'released')
  assert released.rate == 2_490


def test_names_are_ours():
  for names in (overview.task_names(), overview.mixture_names()):
    assert names == sorted(names)
    assert all(name.startswith('synth_') for name in names)
  assert COLA in overview.task_names()
  assert 'synth_en_mix' in overview.mixture_names()
