"""Caches hold what the files hold, and one that does not fit is refused."""

import collections
import json
import os
import re

import pytest
import seqio

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.storage import atomic
from synth_mtf.tasks import cache_record, cached, caching, inspection
from tests.cli import command
from tests.tasks import caches
from tests.tasks.folder import write
from tests.tasks.rows import frozen, run

RTE = 'synth_glue_rte_v002'
CB = 'synth_super_glue_cb_v102'
NLI = b"""\
name: nli
files: {train: train.tsv, validation: dev.tsv}
inputs: 'nli premise: {premise} hypothesis: {hypothesis}'
targets: '{label}'
metrics: [accuracy]
mixtures: {three: {synth_glue_rte_v002: 2, synth_super_glue_cb_v102: 1, nli: 1}}
"""


@pytest.fixture
def data_dir(tmp_path, made_data, monkeypatch):
  """Files of two tasks, and the file of a third one."""
  folder = tmp_path / 'data'
  for name in ('glue/RTE/train.tsv', 'glue/RTE/dev.tsv'):
    write(folder / name, (made_data / name).read_bytes())
  for name in ('train', 'val'):
    file = f'superglue/CB/{name}.jsonl'
    write(folder / file, (made_data / file).read_bytes())
  row = b'It ran %d times.\tIt {x}.\tyes\n'
  for name, count in (('train', 50), ('dev', 20)):
    rows = b''.join(row % number for number in range(count))
    write(folder / f'{name}.tsv', b'premise\thypothesis\tlabel\n' + rows)
  write(folder / 'task.yaml', NLI)
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(folder))
  monkeypatch.setenv('SYNTH_MTF_TASK_FILE', str(folder / 'task.yaml'))
  return folder


def cache(out, *words, task='three'):
  return command.run('cache', f'--task={task}', f'--out={out}', *words)


@pytest.fixture
def out(tmp_path):
  """A folder that seqio searches for caches."""
  folder = tmp_path / 'cache'
  with caches.used(str(folder)):
    yield folder


def examples(task, split, **kwargs):
  lengths = {'inputs': 512, 'targets': 512}

  def make():
    return task.get_dataset(lengths, split, shuffle=False, seed=0, **kwargs)

  return [frozen(row) for row in run(make)]


@pytest.mark.slow  # reads each family
def test_a_cache_has_the_examples_of_all_families(made_data, out, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(made_data))
  for name in inspection.names(seqio.TaskRegistry):
    task = tasks.get(name)
    official = task.source.official
    present = [s for s in official.splits if official.existing_files(s)]
    if not present:
      continue
    status, _, err = cache(out, task=name)
    assert status == 0, err
    for split in present:
      cached_rows = examples(task, split, use_cached=True)
      rows = examples(task, split)
      assert cached_rows, (name, split)
      if split == 'train':  # they are in another order
        assert len(rows) == len(cached_rows)
      if 'span_corruption' in name and split == 'train':
        continue  # the order decides what is noise
      if split == 'train':
        rows, cached_rows = map(collections.Counter, (rows, cached_rows))
      assert rows == cached_rows, (name, split)


def test_what_seqio_knows_of_a_cache(data_dir, out):
  assert cache(out)[0] == 0
  task = tasks.get(CB)
  rows = examples(task, 'train')
  stats = task.get_cached_stats('train')
  lengths = {}
  for feature in ('inputs', 'targets'):
    lengths[feature] = [len(dict(row)[feature]) - 1 for row in rows]  # EOS
  assert stats == {
    'examples': len(rows),
    'inputs_tokens': sum(lengths['inputs']),
    'targets_tokens': sum(lengths['targets']),
    'inputs_max_tokens': max(lengths['inputs']),
    'targets_max_tokens': max(lengths['targets']),
  }
  info = json.loads((out / CB / 'info.train.json').read_text())
  assert info['num_shards'] == 1
  assert info['seqio_version'] == seqio.__version__
  assert info['features']['idx'] == {'shape': [], 'dtype': 'int32'}
  assert info['features']['inputs'] == {'shape': [None], 'dtype': 'int32'}


def test_the_files_are_not_needed_any_more(data_dir, out, monkeypatch):
  mixture = tasks.get('three')
  expected = sorted(task.name for task in mixture.tasks)
  tasks_of_glue = tasks.get('synth_glue')
  rte = next(task for task in tasks_of_glue.tasks if task.name == RTE)
  rate = tasks_of_glue.get_rate(rte)
  rows = examples(tasks.get('nli'), 'validation')
  assert cache(out)[0] == 0
  for file in data_dir.glob('**/*.[tj]s*'):
    file.unlink()
  monkeypatch.delenv('SYNTH_MTF_DATA_DIR')
  monkeypatch.setenv('SYNTH_MTF_CACHE_DIR', str(out))
  task_file = data_dir / 'task.yaml'
  write(task_file, NLI + b'# another time\n')  # so that it is read again
  cached.check('three', 'train')
  assert sorted(t.name for t in tasks.get('three').tasks) == expected
  assert examples(tasks.get('nli'), 'validation', use_cached=True) == rows
  assert [*tasks.get(RTE).splits] == ['train', 'validation']
  assert tasks_of_glue.get_rate(rte) == rate == 480
  assert inspection.digest(RTE, 'validation')


def test_rates_count_rows_whether_or_not_a_task_is_cached(
  made_data, out, monkeypatch
):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(made_data))
  mixture = tasks.get('synth_super_glue')
  wsc = tasks.get('synth_super_glue_wsc_v102_simple_train')
  rate = mixture.get_rate(wsc)
  assert cache(out, task=wsc.name)[0] == 0
  monkeypatch.setenv('SYNTH_MTF_CACHE_DIR', str(out))
  assert wsc.get_cached_stats('train')['examples'] < rate  # T5 leaves some out
  assert mixture.get_rate(wsc) == rate


def test_definitions_are_the_same_in_every_process():
  for name in inspection.names(seqio.TaskRegistry):
    for split, files in tasks.get(name).source.split_files.items():
      assert ' at 0x' not in repr(files.layouts), (name, split)


class TestOneThatDoesNotFit:
  @pytest.fixture(autouse=True)
  def written(self, data_dir, out):
    assert cache(out, '--split=train')[0] == 0
    cached.check('three', 'train')

  def refused(self, match, name='three', split='train'):
    with pytest.raises(UserError, match=f'(?s){match}') as caught:
      cached.check(name, split)
    return str(caught.value)

  def test_another_vocabulary(self, out):
    for record in out.glob(f'*/{cache_record.RECORD}'):
      known = json.loads(record.read_text())
      for vocabulary in known['vocabularies'].values():
        vocabulary['sha256'] = 'of other pieces'
      record.write_text(json.dumps(known))
    vocabulary = "nli was written with the vocabulary 'ByteVocabulary' of 359 "
    message = self.refused(vocabulary)
    assert re.search(
      r'or write another cache:\nsynth-mtf cache .*ANOTHER_CACHE$', message
    )
    status, _, err = cache(out)
    assert status == 2
    assert 'was written with the vocabulary' in err
    assert 'give `synth-mtf cache` another --out' in err

  def test_a_changed_file(self, data_dir, out):
    file = data_dir / 'glue/RTE/train.tsv'
    file.write_text(file.read_text().replace('the', 'teh', 1))
    message = self.refused("rte_v002 was written from other data of 'train'")
    assert 'nli' not in message
    status, _, err = cache(out)
    assert (status, 'was written from other data' in err) == (2, True)

  def test_another_template(self, data_dir):
    write(data_dir / 'task.yaml', NLI.replace(b'hypothesis:', b'then:'))
    self.refused('nli was written for another definition of the task')

  def test_another_split_which_the_command_adds(self, out):
    message = self.refused("has no 'validation'.*adds it", split='validation')
    assert '--split=validation' in message
    before = {p: p.stat().st_mtime_ns for p in out.glob('*/train.tfrecord*')}
    assert cache(out, '--split=validation')[0] == 0
    cached.check('three', 'validation')
    cached.check('three', 'train')
    assert before == {p: p.stat().st_mtime_ns for p in before}

  def test_a_task_that_is_not_there(self, data_dir, out):
    message = self.refused('not in the cache', name='synth_glue')
    assert f'{RTE}' not in message
    assert message.endswith(
      f'synth-mtf cache --task=synth_glue --data_dir={data_dir} '
      f'--vocabulary=bytes --task_file={data_dir}/task.yaml --out={out}'
    )

  def test_a_lost_file_and_one_that_was_altered(self, out):
    (path,) = (out / 'nli').glob('train.tfrecord*')
    content = path.read_bytes()
    path.unlink()
    self.refused('nli is damaged: train.tfrecord-00000-of-00001 is missing')
    assert cache(out, '--split=train', '--verify')[0] == 0
    assert path.read_bytes() == content
    path.write_bytes(content[:40] + b'x' + content[41:])
    assert cache(out, '--split=train')[0] == 0  # the size is the same
    status, _, err = cache(out, '--split=train', '--verify')
    assert (status, f'{path} is damaged' in err) == (2, True)

  def test_one_that_is_half_written(self, out):
    (out / 'nli' / cache_record.COMPLETED).unlink()
    message = self.refused('nli is half-written: it has 1 of 1 files of train')
    assert f'synth-mtf cache --task=three --out={out} --split=train' in message
    _, _, err = cache(out, '--split=train')
    assert 'nli train: complete' in err
    cached.check('three', 'train')

  def test_a_record_that_is_damaged(self, out):
    (out / 'nli' / cache_record.RECORD).write_text('{')
    self.refused(f'{cache_record.RECORD} is damaged')


def test_a_command_that_stops_is_resumed(data_dir, out, monkeypatch):
  """The files of one that is not stopped, written once."""
  monkeypatch.setattr(caching, '_ROWS_PER_SHARD', 100)
  assert cache(out / 'straight', task=RTE)[0] == 0

  class Stopped(Exception):
    pass

  written: list[int] = []
  write_one = caching.TaskCache.write

  def stops(self, split, number, progress):
    if len(written) == 2:
      raise Stopped
    write_one(self, split, number, progress)
    written.append(number)

  with monkeypatch.context() as patch:
    patch.setattr(caching.TaskCache, 'write', stops)
    with pytest.raises(Stopped):
      cache(out, task=RTE)
  assert not (out / RTE / cache_record.COMPLETED).exists()
  with pytest.raises(
    UserError, match='has 2 of 4 files of train, 0 of 1 files'
  ):
    cached.check(RTE, 'train')
  before = {p: p.stat().st_mtime_ns for p in (out / RTE).glob('*.tfrecord*')}
  left_by_killed_process = [
    out / RTE / '.train.tfrecord-00002-of-00004.999999999.partial',
    out / RTE / '.synth_mtf.json.999999999.partial',
  ]
  for left in left_by_killed_process:
    left.mkdir()
    (left / 'incomplete').touch()
  assert len(before) == 2
  status, report, _ = cache(out, task=RTE)
  assert status == 0
  assert not any(left.exists() for left in left_by_killed_process)
  assert before == {p: p.stat().st_mtime_ns for p in before}
  files = sorted((out / 'straight' / RTE).glob('*tfrecord*'))
  assert len(files) == 5
  for file in files:
    assert (out / RTE / file.name).read_bytes() == file.read_bytes()
  assert report.count(RTE) == 2


def test_another_command_writes_to_the_same_folder(data_dir, out):
  assert cache(out, '--split=validation', task=RTE)[0] == 0
  folder = str(out / RTE)
  with atomic.sole_writer(folder, 'command'):
    status, _, err = cache(out, task=RTE)
  assert status == 2
  assert f'another `synth-mtf cache` is writing to {folder}: wait' in err
  assert cache(out, task=RTE)[0] == 0


def test_what_another_command_wrote_meanwhile_is_kept(data_dir, out):
  """This one has planned, and waits for the files of other tasks."""
  planned = caching.begin(tasks.get(RTE), str(out), ['train'], ['cache'])
  assert cache(out, '--split=validation', task=RTE)[0] == 0
  with planned.opened():
    assert planned.unwritten('train') == [0]
    assert planned.unwritten('validation') == []
  record = cache_record.read(str(out / RTE))
  assert record and {*record.splits} == {'train', 'validation'}


def test_a_command_that_was_killed_at_its_first_file_is_resumed(data_dir, out):
  left = out / RTE / '.synth_mtf.json.999999999.partial'
  left.mkdir(parents=True)
  (left / 'synth_mtf.json').write_text('{"for')
  assert cache(out, task=RTE)[0] == 0
  assert not left.exists()


@pytest.mark.parametrize(
  ('kind', 'message'),
  [
    ('file', 'is not a folder'),
    ('link', 'is a broken link'),
    ('foreign', 'has files, but none is the synth_mtf.json'),
  ],
)
def test_what_is_no_cache_is_left_alone(data_dir, out, kind, message):
  folder = out / RTE
  out.mkdir(exist_ok=True)
  if kind == 'file':
    folder.touch()
  elif kind == 'link':
    folder.symlink_to(folder)
  else:
    (folder / 'a.partial').mkdir(parents=True)
  status, _, err = cache(out, task=RTE)
  assert status == 2 and RTE in err and message in err, err
  assert os.path.lexists(folder)


def test_an_unfinished_split_is_checked_whatever_the_split(data_dir, out):
  """It would go on with other rows."""
  assert cache(out, task=RTE)[0] == 0
  path = out / RTE / cache_record.RECORD
  record = json.loads(path.read_text())
  record['splits']['train']['shards'] = {}
  path.write_text(json.dumps(record))
  file = data_dir / 'glue/RTE/train.tsv'
  file.write_text(file.read_text().replace('the', 'teh', 1))
  status, _, err = cache(out, '--split=validation', task=RTE)
  assert (status, 'other data of' in err) == (2, True)


@pytest.mark.usefixtures('use_tfds')
def test_rows_of_tensorflow_datasets(out, sample_data, monkeypatch):
  """They are the rows of the files, but not the same content to a command."""
  rte = tasks.get(RTE)
  rows = examples(rte, 'validation')
  assert cache(out, task=RTE)[0] == 0
  assert examples(rte, 'validation', use_cached=True) == rows
  cached.check(RTE, 'validation')
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(sample_data))
  cached.check(RTE, 'validation')
  _, _, err = cache(out, task=RTE)
  assert 'then TensorFlow Datasets glue/rte:1.0.0, now files of' in err


def test_a_cache_of_seqios_own_job_has_no_record(data_dir, out, monkeypatch):
  assert cache(out, task=RTE)[0] == 0
  (out / RTE / cache_record.RECORD).unlink()
  monkeypatch.setenv('SYNTH_MTF_CACHE_DIR', str(out))
  cached.check(RTE, 'train')
  assert [*tasks.get(RTE).splits] == ['train', 'validation']


def test_a_bucket(data_dir, out):
  """`file://` stands for any scheme of TensorFlow's file systems."""
  bucket = f'file://{out}'
  with caches.used(bucket):
    assert cache(bucket, task=RTE)[0] == 0
    cached.check(RTE, 'validation')
    task = tasks.get(RTE)
    rows = examples(task, 'validation')
    assert examples(task, 'validation', use_cached=True) == rows


@pytest.mark.parametrize(
  'words, message',
  [
    (['--out=s3://bucket/a'], "--out: s3://bucket/a cannot be written: .*'s3'"),
    (['--out=/proc/a'], '--out: /proc/a cannot be written'),
    (['--out=a*'], r'--out: a\*: TensorFlow takes the name for a pattern'),
    (['--task=synth_glue_rte'], "did you mean 'synth_glue_rte_v002'"),
    (['--split=train,dev'], "no files of the split 'dev'; it has train, valid"),
    (
      ['--task=synth_glue_cola_v002'],
      'no files of any split; it has train, val',
    ),
    (['--task=synth_glue_cola_v002', '--split=train'], 'no file glue/CoLA/tr'),
  ],
)
def test_mistakes_are_explained(
  data_dir, tmp_path, monkeypatch, words, message
):
  monkeypatch.chdir(tmp_path)
  status, _, err = command.run('cache', '--task=three', '--out=c', *words)
  assert status == 2
  assert not list(tmp_path.glob('c/*'))
  assert re.search(message, err), err


def test_a_folder_of_something_else_is_not_touched(data_dir, out):
  write(out / RTE / 'notes.txt', b'mine')
  status, _, err = cache(out, task=RTE)
  assert (status, 'nothing was changed' in err) == (2, True)
  assert [path.name for path in (out / RTE).iterdir()] == ['notes.txt']
