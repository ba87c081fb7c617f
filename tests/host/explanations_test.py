"""Clear messages for the host's exceptions: real ones, where that is easy."""

import os
import pathlib
import re
import subprocess
import sys

import gin
import numpy as np
import pytest
import seqio
import tensorflow.compat.v1 as tf
import tensorflow_text
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import ConfigurationError, UserError
from synth_mtf.host import explanations, gin_files


@pytest.mark.parametrize(
  'files, bindings, message',
  [
    (
      ['variants/randm.gin'],
      [],
      "gin file 'variants/randm.gin' does not exist; did you mean "
      r"'variants/random.gin'.*\nSearched: .*/gin/variants",
    ),
    (
      ['/nowhere/operative_config.gin'],
      [],
      r"'/nowhere/operative_config.gin' does not exist\nSearched: /nowhere$",
    ),
    (
      [],
      ['synth_mtf.SyntheticAtention.mixing = "sum"'],
      "gin knows nothing named 'synth_mtf.SyntheticAtention'; did you mean "
      "'SyntheticAttention'.*--module_import",
    ),
    (
      ['variants/random.gin'],
      ['SyntheticAttention.synthesizers = [@synth_mtf.Randm()]'],
      "'synth_mtf.Randm'; did you mean .*'Random'",
    ),
    (
      [],
      ['utils.run.trainsteps = 1'],
      "'utils.run' has no parameter 'trainsteps'; did you mean 'train_steps'",
    ),
    ([], ['utils.run.zzzz = 1'], "no parameter 'zzzz'; it has .*batch_size"),
    ([], ['utils.run.batch_size = (4'], 'gin syntax: '),
    ([], ['utils.run.batch_size 4'], 'gin syntax: '),
    (
      [],
      ['utils.run.batch_size = four'],
      r"^gin syntax: 'four' is not a value: quote text, .* \(line 1\)",
    ),
  ],
)
def test_what_gin_finds_when_it_parses(files, bindings, message):
  with pytest.raises(UserError, match=f'(?s){message}') as caught:
    gin_files.parse(files, bindings)
  assert 'In call to configurable' not in str(caught.value)
  assert caught.value.__cause__ is not None


def test_a_users_own_file(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = tmp_path / 'first.gin'
  path.write_text('utils.run.train_steps = 1\nutils.run.trainsteps = 1\n')
  for name, meant in (
    ('frst.gin', path.name),
    (f'{path.parent}/frst.gin', path),
  ):
    with pytest.raises(UserError, match=f"did you mean '{meant}'"):
      gin_files.parse([name])
  with pytest.raises(UserError, match=rf'In file "{path}", line 2'):
    gin_files.parse([str(path)])
  monkeypatch.syspath_prepend(tmp_path)
  (tmp_path / 'with_a_fault.py').write_text('\na = = 1')
  path.write_text('import with_a_fault')
  with pytest.raises(UserError, match=r'Python syntax: .*fault\.py:2: '):
    gin_files.parse([str(path)])


@gin.configurable(module='tests.errors')
def needs(size=gin.REQUIRED):
  return size


def leave_open():
  gin.parse_config('utils.run.batch_size = %gin.REQUIRED')
  gin.finalize()


def refer_to_nothing():
  """Through another macro."""
  gin.parse_config('NAME = %NOTHING\nrun.mode = %NAME')
  utils.run()


def fill_the_disk():
  with open('/dev/full', 'w') as full:
    full.write('x' * 100_000)


@pytest.mark.parametrize(
  'function, message',
  [
    (utils.tpu_mesh_shape, 'no mesh is set. On a CPU or GPU give'),
    (needs, r'gin: .*needs.size must be set: .*needs.size = \.\.\.'),
    (leave_open, 'gin: run.batch_size must be set'),
    (
      lambda: seqio.get_mixture_or_task(['a', 'b']),
      r"mixture_or_task_name = \['a', 'b'\] .*expected the name of one task",
    ),
    (
      lambda: seqio.get_mixture_or_task('synth_nothing'),
      "no task or mixture 'synth_nothing'",
    ),
    (
      lambda: np.ones(1 << 50),
      r'^out of memory: .*\nMake the batch smaller .*batch_size.*$',
    ),
    (fill_the_disk, 'disk is full: .*No space left'),
    (
      lambda: gin.parse_config('run.mode = 10**3'),
      r'gin syntax: .*: run.mode = 10\*\*3$',
    ),
    (
      lambda: gin.parse_config('run.mode = ["train"'),
      '^gin syntax: the text ends inside a value: .* a closing bracket$',
    ),
    (  # Python 3.12 and later say what is wrong
      lambda: gin.parse_config('run.mode = "train'),
      '^gin syntax: (unterminated string literal|Unable to parse value.) '
      r'\(line 1\)',
    ),
    (
      refer_to_nothing,
      'nothing sets the macro %NOTHING, .*--gin_param="NOTHING = ..."',
    ),
  ],
)
def test_what_the_host_raises(function, message):
  with pytest.raises(UserError, match=message), explanations.explained():
    function()


@pytest.mark.parametrize(
  'error, message',
  [
    (MemoryError(), 'out of memory'),
    (
      RuntimeError(
        'OOM when allocating tensor with shape[9,9]\n\t [[{{node}}]]'
      ),
      r'^out of memory: OOM when allocating tensor with shape\[9,9\]\nMake',
    ),
    (
      RuntimeError('UserError: a.tsv:3: bad row\nTraceback (most recent'),
      '^a.tsv:3: bad row$',
    ),
    (
      RuntimeError(
        "Error executing an HTTP request: Couldn't resolve host\n\t when "
        'reading metadata of gs://t5-data/vocabs/cc_all.32000/a.model'
      ),
      "^T5's own vocabulary gs://t5-data/vocabs/cc_all.32000/a.model cannot be "
      'read: Error .* resolve host. Give .* --vocabulary=bytes',
    ),
    (
      RuntimeError(  # as TensorFlow's writer says it
        'Graph execution error:\n\nDetected at node save/MergeV2Checkpoints\n'
        'runs/a/model.ckpt-7_temp/part-00000; No space left on device\n'
        '\t [[{{node save/MergeV2Checkpoints}}]]\n'
      ),
      '^the disk is full: runs/a/model.ckpt-7_temp/part-00000; No space left '
      r'on device\n.*keep_checkpoint_max.*$',
    ),
    (
      ValueError(
        'The passed save_path is not a valid checkpoint: a/model.ckpt-4'
      ),
      '^a/model.ckpt-4 is gone: .*keep_checkpoint_max.* removed it while',
    ),
    (
      RuntimeError(
        'Graph execution error:\n\nDetected at node save/RestoreV2\n'
        'Unsuccessful TensorSliceReader constructor: Failed to find any '
        'matching files for a/model.ckpt-4\n\t [[{{node save/RestoreV2}}]]\n'
      ),
      '^a/model.ckpt-4 is gone: .*keep_checkpoint_max.* removed it while',
    ),
    (
      RuntimeError(
        'Missing runtime dependency on the Google API client. Run `pip install '
        'cloud-tpu-client` to fix.'
      ),
      '^--tpu=NAME looks .* ended on 2025-04-25. On a TPU VM, give --tpu=local',
    ),
    (
      ValueError(
        "Could not lookup TPU metadata from name 'mytpu'. Please doublecheck "
        'the tpu argument in the TPUClusterResolver constructor. Exception: x'
      ),
      '^the Cloud TPU API does not know --tpu=mytpu .*--tpu=grpc://',
    ),
    (
      RuntimeError(
        'Cannot find any TPU cores in the system. Please double check '
        'Tensorflow master address and TPU worker(s).'
      ),
      '^TensorFlow finds no TPU: Cannot find any TPU cores. `synth-mtf doctor`',
    ),
    (
      RuntimeError('NOT_FOUND: No TPU platform registered. Waiting 1 second'),
      "^TensorFlow's Estimator does not reach this chip .*--device=tpu",
    ),
    (
      ValueError(
        'The version of the dataset you are trying to use (glue/cola/1.0.0) is '
        'too old for this version of TFDS so cannot be generated.Either sync'
      ),
      '^glue/cola/1.0.0 is not on this machine, .* Give --data_dir=FOLDER',
    ),
    (
      ConfigurationError(
        "a size\n  In call to configurable 'Random' (<class 'Random'>)"
      ),
      '^a size$',
    ),
  ],
)
def test_texts_of_errors(error, message):
  with pytest.raises(UserError, match=message), explanations.explained():
    raise error


@pytest.mark.parametrize(
  ('answers', 'raised'), [([None], ZeroDivisionError), ([None, 'b'], UserError)]
)
def test_explainers_are_asked_in_turn(answers, raised):
  with (
    pytest.raises(raised, match='b'),
    explanations.explained(*(lambda _, a=answer: a for answer in answers)),
  ):
    1 / 0  # noqa: B018


def fail(*_):
  raise KeyError('no such row\nin the table')


def generate():
  yield 1
  fail()


def read(dataset, target=''):
  """Reads a dataset to its end."""
  iterator = tf.data.make_initializable_iterator(dataset)
  tensor = iterator.get_next()
  with tf.Session(target) as session:
    session.run(iterator.initializer)
    while True:
      session.run(tensor)


def compute(tensor, target=''):
  with tf.Session(target) as session:
    session.run(tensor)


def lose_a_file(folder):
  """Removes a file of a dataset while it is read."""
  files = [folder / 'a.txt', folder / 'b.txt']
  for file in files:
    file.write_text('A line.\n')
  names = tf.data.Dataset.from_tensor_slices(list(map(str, files)))
  dataset = names.interleave(tf.data.TextLineDataset, cycle_length=1)
  options = tf.data.Options()  # nothing is read before it is asked for
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  iterator = tf.data.make_initializable_iterator(dataset.with_options(options))
  line = iterator.get_next()
  with tf.Session() as session:
    session.run(iterator.initializer)
    session.run(line)
    files[1].unlink()
    session.run(line)


SEVERAL = """Graph execution error:

Detected at node 'a/x' defined at (most recent call last):
    File "m.py", line 1, in <module>
      x = f()
Node: 'a/x'
Detected at node 'a/y' defined at (most recent call last):
Node: 'a/y'
2 root error(s) found.
  (0) INVALID_ARGUMENT: not a number
\t [[{{node a/x}}]]
\t [[b/_7]]
  (1) INVALID_ARGUMENT: not a number, either
\t [[{{node a/y}}]]
0 successful operations.

Original stack trace for 'a/x':
  File "m.py", line 1, in <module>
"""


class TestGraphs:
  """Errors of graphs: what the operation said, and none of the traces."""

  @pytest.fixture(autouse=True)
  def _graph(self):
    with tf.Graph().as_default():
      yield

  @pytest.mark.parametrize(
    ('function', 'cause'),
    [
      (
        lambda: read(tf.data.Dataset.from_generator(generate, tf.int64, [])),
        r'KeyError: .no such row\\nin the table.',
      ),
      (
        lambda: compute(tf.py_func(fail, [1], tf.int64)),
        r'KeyError: .no such row\\nin the table.',
      ),
      (
        lambda: compute(tf.py_function(fail, [1], tf.int64, name='a/b')),
        r'KeyError: .no such row\\nin the table.',
      ),
      (
        lambda: compute(
          tf.matmul(
            tf.placeholder_with_default(tf.ones([2, 3]), [None, None]),
            tf.ones([2, 2]),
          )
        ),
        r'Matrix size-incompatible: In\[0\]: \[2,3\], In\[1\]: \[2,2\]',
      ),
      (
        lambda: read(
          tf.data.Dataset.range(2).map(
            lambda x: tf.py_func(fail, [x], tf.int64)
          )
        ),
        r'(Error in .*: )?KeyError: .no such row\\nin the table.',
      ),
    ],
  )
  def test_the_cause(self, function, cause):
    with pytest.raises(tf.errors.OpError) as caught, explanations.explained():
      function()
    assert str(caught.value).startswith('Graph execution error:')
    assert re.fullmatch(cause, explanations.cause(caught.value))

  def test_the_first_of_several(self):
    assert explanations.cause(RuntimeError(SEVERAL)) == 'not a number'

  def test_other_errors_are_their_own_cause(self):
    assert explanations.cause(ValueError('two\nlines')) == 'two\nlines'
    assert explanations.cause(ValueError('')) == 'no message'

  def test_a_file_that_was_removed_during_the_run(self, tmp_path):
    with (
      pytest.raises(
        UserError, match=r'/b\.txt could not be read: .* removed or'
      ),
      explanations.explained(),
    ):
      lose_a_file(tmp_path)

  def test_other_files_are_not_explained(self, tmp_path):
    with pytest.raises(tf.errors.NotFoundError), explanations.explained():
      tf.io.gfile.GFile(str(tmp_path / 'none')).read()

  def test_out_of_memory(self):
    with (
      pytest.raises(UserError, match='^out of memory: OOM when .*\nMake the'),
      explanations.explained(),
    ):
      compute(tf.random.uniform([1 << 20, 1 << 22]))


SERVE = """
import sys
import tensorflow as tf
server = tf.distribute.Server.create_local_server()
print(server.target, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope='module')
def elsewhere():
  """A TensorFlow server in a process that imports TensorFlow alone."""
  with subprocess.Popen(
    [sys.executable, '-c', SERVE],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    env={**os.environ, 'CUDA_VISIBLE_DEVICES': ''},
    text=True,
  ) as server:
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.kill()


@pytest.mark.slow  # starts a process
class TestOnAnotherHost:
  @pytest.fixture(autouse=True)
  def _graph(self):
    with tf.Graph().as_default():
      yield

  def test_a_python_function_of_this_process(self, elsewhere):
    dataset = tf.data.Dataset.from_generator(generate, tf.int64, [])
    with (
      pytest.raises(
        UserError,
        match='Python function of this process.* on /job:local.*mtf cache`',
      ),
      explanations.explained(),
    ):
      read(dataset, elsewhere)

  def test_an_operation_of_tensorflow_text(self, elsewhere):
    folder = pathlib.Path(seqio.__file__).parent / 'test_data' / 'sentencepiece'
    model = (folder / 'sentencepiece.model').read_bytes()
    tokens = tensorflow_text.SentencepieceTokenizer(model).tokenize('a b')
    with (
      pytest.raises(
        UserError,
        match='does not know .*SentencepieceOp.*import tensorflow_text',
      ),
      explanations.explained(),
    ):
      compute(tokens, elsewhere)

  def test_a_file_that_only_the_other_host_lacks(self, elsewhere):
    with (
      pytest.raises(
        UserError,
        match=r'^/no/a\.txt could not be read on /job:local.*cannot see',
      ),
      explanations.explained(),
    ):
      read(tf.data.TextLineDataset('/no/a.txt'), elsewhere)
