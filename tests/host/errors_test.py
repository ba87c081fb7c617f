"""Clear messages for the host's exceptions: real ones, where that is easy."""

import gin
import mesh_tensorflow as mtf
import numpy as np
import pytest
import seqio
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import ConfigurationError, UserError
from synth_mtf.host import errors, gin_files
from synth_mtf.host import model as host_model
from tests import model


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
  ],
)
def test_what_gin_finds_when_it_parses(files, bindings, message):
  with pytest.raises(UserError, match=f'(?s){message}') as caught:
    gin_files.parse(files, bindings)
  assert 'In call to configurable' not in str(caught.value)
  assert caught.value.__cause__ is not None


@pytest.mark.parametrize('folder', ['', 'mine/', '{here}/mine/'])
def test_a_gin_file_beside_the_named_one_is_offered(
  tmp_path, monkeypatch, folder
):
  monkeypatch.chdir(tmp_path)
  folder = folder.format(here=tmp_path)
  (tmp_path / 'mine').mkdir()
  (tmp_path / folder / 'first.gin').write_text('')
  with pytest.raises(UserError, match=f"did you mean '{folder}first.gin'"):
    gin_files.parse([f'{folder}frst.gin'])


def test_the_place_in_a_file_is_kept(tmp_path):
  path = tmp_path / 'mine.gin'
  path.write_text('utils.run.train_steps = 1\nutils.run.trainsteps = 1\n')
  with pytest.raises(UserError, match=rf'In file "{path}", line 2'):
    gin_files.parse([str(path)])


def test_an_argument_that_is_passed_on_to_a_parent():
  gin_files.parse(model.files('random'), ['SyntheticAttention.num_hads = 3'])
  with pytest.raises(UserError, match="argument.*'num_heads'") as caught:
    host_model.build(model.VOCAB)
  assert 'In call to configurable' not in str(caught.value)


@gin.configurable(module='tests.errors')
def needs(size=gin.REQUIRED):
  return size


def leave_open():
  gin.parse_config('utils.run.batch_size = %gin.REQUIRED')
  gin.finalize()


def lay_out_with_a_device_too_few():
  implementation = mtf.placement_mesh_impl.PlacementMeshImpl(
    'batch:2', 'a:batch', ['cpu:0', 'cpu:1']
  )
  implementation.devices.pop()
  implementation.slicewise(tf.abs, implementation.laid_out_pnum())


def fill_the_memory():
  with tf.Graph().as_default(), tf.Session() as session:
    size = tf.placeholder(tf.int64)
    session.run(tf.ones([size, size, size]), {size: 1 << 16})


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
      lambda: seqio.get_mixture_or_task('synth_nothing'),
      "no task or mixture 'synth_nothing'",
    ),
    (
      lay_out_with_a_device_too_few,
      r"mesh_devices = \['cpu:0'\] must name one",
    ),
    pytest.param(
      fill_the_memory,
      r'^out of memory: .*\nMake the batch smaller .*batch_size.*$',
      marks=pytest.mark.slow,
    ),
    (lambda: np.ones(1 << 50), '^out of memory: .*\nMake'),
    (fill_the_disk, 'disk is full: .*No space left'),
  ],
)
def test_what_the_host_raises(function, message):
  with pytest.raises(UserError, match=message), errors.explained():
    function()


@pytest.mark.parametrize(
  'error, message',
  [
    (MemoryError(), 'out of memory'),
    (
      ValueError(
        'Expected targets length for span corruption (22) is greater than '
        'configured targets length (8)'
      ),
      'makes 22 targets, but utils.run.sequence_length allows 8',
    ),
    (
      tf.errors.UnknownError(
        None, None, 'UserError: a.tsv:3: bad row\nTraceback (most recent'
      ),
      '^a.tsv:3: bad row$',
    ),
    (
      tf.errors.FailedPreconditionError(
        None,
        None,
        "Error executing an HTTP request: Couldn't resolve host\n\t when "
        'reading metadata of gs://t5-data/vocabs/cc_all.32000/a.model',
      ),
      "^T5's own vocabulary gs://t5-data/vocabs/cc_all.32000/a.model cannot be "
      'read: Error .* resolve host. Give .* --vocabulary=bytes',
    ),
    (
      tf.errors.ResourceExhaustedError(  # as TensorFlow's writer says it
        None,
        None,
        'Graph execution error:\n\nDetected at node save/MergeV2Checkpoints\n'
        'runs/a/model.ckpt-7_temp/part-00000; No space left on device\n'
        '\t [[{{node save/MergeV2Checkpoints}}]]\n',
      ),
      '^the disk is full: runs/a/model.ckpt-7_temp/part-00000; No space left '
      r'on device\n.*keep_checkpoint_max.*$',
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
  with pytest.raises(UserError, match=message), errors.explained():
    raise error


def test_explainers_are_asked_in_turn():
  with pytest.raises(ZeroDivisionError), errors.explained(lambda _: None):
    1 / 0  # noqa: B018
  answers = iter([None, 'second'])
  with (
    pytest.raises(UserError, match='second'),
    errors.explained(lambda _: next(answers), lambda _: next(answers)),
  ):
    1 / 0  # noqa: B018
