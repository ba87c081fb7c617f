"""Runs that read a cache, and runs whose input is read in another process.

A TensorFlow server in a second process as the session master stands for the
host of a TPU that --tpu names.
"""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import tpu_checks
from tests import forks
from tests.cli import command, t5_main
from tests.tasks import caches
from tests.tasks.folder import write

RTE = 'synth_glue_rte_v002'
# It does not import tensorflow_text: a cache has tokens.
SERVER = """
import sys
import tensorflow.compat.v1 as tf
cluster = tf.train.ClusterSpec({'worker': ['localhost:' + sys.argv[1]]})
server = tf.distribute.Server(cluster, job_name='worker', task_index=0)
print(server.target, flush=True)
sys.stdin.read()
"""
TASK = b"""\
name: nli
files: {train: train.tsv, validation: train.tsv}
inputs: 'nli premise: {premise} hypothesis: {hypothesis}'
targets: '{label}'
metrics: [accuracy]
mixtures: {some: {synth_glue_rte_v002: 2, nli: 1}}
"""


@pytest.fixture(scope='module')
def other_process():
  """TF_CONFIG with a session master in another process."""
  with socket.socket() as free:
    free.bind(('localhost', 0))
    port = free.getsockname()[1]
  server = subprocess.Popen(
    [sys.executable, '-c', SERVER, str(port)],
    env={**os.environ, 'CUDA_VISIBLE_DEVICES': ''},
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  )
  assert server.stdout
  target = server.stdout.readline().strip()
  yield json.dumps({'session_master': target})
  server.kill()
  server.wait()


@pytest.fixture(scope='module')
def data_dir(made_data, tmp_path_factory):
  folder = tmp_path_factory.mktemp('data')
  for name in ('train', 'dev'):
    file = f'glue/RTE/{name}.tsv'
    write(folder / file, (made_data / file).read_bytes())
  rows = b''.join(b'It ran %d times.\tIt {x}.\tyes\n' % n for n in range(30))
  write(folder / 'train.tsv', b'premise\thypothesis\tlabel\n' + rows)
  write(folder / 'task.yaml', TASK)
  return folder


@pytest.fixture(scope='module')
def run(data_dir):
  """Runs a mode on a mixture of official files and a task file."""

  def start(model_dir, kind, *words, command=t5_main.synth_mtf_transformer):
    return command(
      f'--model_dir={model_dir}',
      f'--task_file={data_dir}/task.yaml',
      '--vocabulary=bytes',
      *t5_main.REPEATABLE[:2],
      f'--gin_file=runs/{kind}_en_mix.gin',
      *t5_main.REPEATABLE[3:],
      "--gin_param=MIXTURE_NAME = 'some'",
      '--gin_param=utils.run.batch_size = 2',
      *words,
    )

  return start


@pytest.fixture(scope='module')
def cache(data_dir, tmp_path_factory):
  folder = tmp_path_factory.mktemp('cache')
  status, _, err = command.run(
    *('cache', '--task=some', f'--out={folder}', '--vocabulary=bytes'),
    *(f'--data_dir={data_dir}', f'--task_file={data_dir}/task.yaml'),
  )
  assert status == 0, err
  with caches.used(str(folder)):
    yield folder


TRAIN = (
  'finetune',
  '--gin_param=utils.run.train_steps = 3',
  '--gin_param=utils.run.iterations_per_loop = 1',
  '--gin_param=utils.run.init_checkpoint = None',
)


def test_files_are_refused_in_another_process(
  run, data_dir, tmp_path, other_process, monkeypatch
):
  monkeypatch.setenv('TF_CONFIG', other_process)
  folder = tmp_path / 'run'
  data = f'--data_dir={data_dir}'
  with pytest.raises(UserError, match='session master grpc') as caught:
    run(folder, *TRAIN, data)
  message = str(caught.value)
  assert f'the files of nli, {RTE} are read in this one' in message
  assert f'\nsynth-mtf cache --task=some {data} --vocabulary=' in message
  assert not folder.exists()
  monkeypatch.delenv('TF_CONFIG')
  # As with the Google API client, and without gin files for CPUs.
  monkeypatch.setattr(tpu_checks, 'check_address', lambda _: None)
  monkeypatch.setattr(tpu_checks, 'check_run', lambda _: None)
  with pytest.raises(UserError, match='^--tpu=mine reads the data of this run'):
    run(folder, *TRAIN, data, '--tpu=mine', MESH)


MESH = "--gin_param=utils.run.mesh_shape = 'batch:1'"


def test_a_master_that_does_not_answer(run, data_dir, tmp_path, monkeypatch):
  monkeypatch.setattr('synth_mtf.run.ways._SECONDS', 2)
  nobody = '{"session_master": "grpc://localhost:1"}'
  monkeypatch.setenv('TF_CONFIG', nobody)
  with pytest.raises(UserError, match=r'localhost:1 .* answer: (?!Graph)\S'):
    run(tmp_path / 'run', *TRAIN, f'--data_dir={data_dir}')


def test_what_a_run_says_of_its_cache(run, data_dir, tmp_path):
  use = '--gin_param=mesh_train_dataset_fn.use_cached = True'
  with caches.used(), pytest.raises(UserError, match='no cache is set'):
    run(tmp_path / 'run', *TRAIN, f'--data_dir={data_dir}', use)
  with caches.used(), pytest.raises(UserError, match='not in the cache /no'):
    run(tmp_path / 'run', *TRAIN, '--cache_dir=/no')


def test_a_damaged_cache_is_refused(run, cache, tmp_path):
  """A file that was cut off between two examples."""
  copy = tmp_path / 'cache'
  shutil.copytree(cache, copy)
  (path,) = (copy / 'nli').glob('train.tfrecord*')
  first = next(tf.python_io.tf_record_iterator(str(path)))
  with tf.io.TFRecordWriter(str(path)) as writer:
    writer.write(first)
  folder = tmp_path / 'run'
  with (
    caches.used(),
    pytest.raises(UserError, match=f'nli is damaged: {path.name} has'),
  ):
    run(folder, *TRAIN, f'--cache_dir={copy}')
  assert not folder.exists()


@pytest.mark.slow  # trains
def test_with_a_cache_another_process_computes_the_same(
  run, cache, tmp_path, other_process, monkeypatch
):
  """Training, evaluation and decoding, bit for bit, without the files."""
  lines = tmp_path / 'lines.txt'
  lines.write_text('nli premise: It ran.\n' * 2)
  latest = '--gin_param=utils.run.eval_checkpoint_step = -1'
  for name, config in (('here', '{}'), ('there', other_process)):
    monkeypatch.setenv('TF_CONFIG', config)
    folder = tmp_path / name
    read = f'--cache_dir={cache}'
    assert run(folder, *TRAIN, read) == 0
    assert run(folder, 'eval', read) == 0
    decode = (
      'eval',
      '--gin_file=infer.gin',
      latest,
      f"--gin_param=input_filename = '{lines}'",
      f"--gin_param=output_filename = '{folder}/decoded.txt'",
    )
    assert run(folder, *decode, read) == 0
  here, there = (tmp_path / name for name in ('here', 'there'))
  first, second = (Checkpoint(f'{x}/model.ckpt-3') for x in (here, there))
  assert first.variables == second.variables
  for variable in first.variables:
    assert (first[variable] == second[variable]).all(), variable
  start = Checkpoint(f'{here}/model.ckpt-0')
  assert any((first[x] != start[x]).any() for x in first.variables)
  for file in ('validation_eval/predictions.jsonl', 'decoded.txt-3'):
    assert (here / file).read_bytes() == (there / file).read_bytes()
  results = [
    json.loads((x / 'validation_eval/metrics.json').read_text())['results']
    for x in (here, there)
  ]
  assert results[0] == results[1]
  assert {result['task'] for result in results[0]} == {'nli', RTE}
  assert all(result['digest'] for result in results[0])


class TestUnderTheStockCommand:
  pytestmark = [pytest.mark.slow, *t5_main.STOCK]

  def test_it_reads_a_cache_and_refuses_files(
    self, run, cache, data_dir, tmp_path, other_process, monkeypatch
  ):
    monkeypatch.setenv('TF_CONFIG', other_process)
    with t5_main.t5_mesh_transformer(tmp_path) as stock:
      folder = tmp_path / 'stock'
      assert run(folder, *TRAIN, f'--cache_dir={cache}', command=stock) == 0
      assert Checkpoint(f'{folder}/model.ckpt-3').step == 3
      files = f'--data_dir={data_dir}'
      with pytest.raises(forks.Failed, match='UserError: the session master'):
        run(tmp_path / 'other', *TRAIN, files, command=stock)
