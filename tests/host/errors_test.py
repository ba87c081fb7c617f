"""What the host's exceptions mean to a person; real ones, from the host."""

import gin
import mesh_tensorflow as mtf
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
      r"gin file 'variants/randm.gin' does not exist; did you mean "
      r"'variants/random.gin'.*\nSearched: ",
    ),
    (
      ['/nowhere/operative_config.gin'],
      [],
      r"gin file '/nowhere/operative_config.gin' does not exist\nSearched: "
      '/nowhere$',
    ),
    (
      [],
      ['SyntheticAtention.mixing = "sum"'],
      r"gin knows nothing named 'SyntheticAtention'; did you mean "
      r"'SyntheticAttention'.*--module_import",
    ),
    (
      ['variants/random.gin'],
      ['SyntheticAttention.synthesizers = [@synth_mtf.Randm]'],
      r"'synth_mtf.Randm'; did you mean .*'Random'",
    ),
    (
      [],
      ['utils.run.trainsteps = 1'],
      r"'utils.run' has no parameter 'trainsteps'; did you mean 'train_steps'",
    ),
    ([], ['utils.run.zzzz = 1'], r"no parameter 'zzzz'; it has .*batch_size"),
    ([], ['utils.run.batch_size = (4'], 'gin syntax: '),
    ([], ['utils.run.batch_size 4'], 'gin syntax: '),
  ],
)
def test_what_gin_finds_when_it_parses(files, bindings, message):
  with pytest.raises(UserError, match=f'(?s){message}') as caught:
    gin_files.parse(files, bindings)
  assert 'In call to configurable' not in str(caught.value)
  assert caught.value.__cause__ is not None


def test_a_gin_file_beside_the_named_one_is_offered(tmp_path):
  (tmp_path / 'operative_config.gin').write_text('')
  with pytest.raises(UserError, match=r"did you mean '.*/operative_config.gin"):
    gin_files.parse([str(tmp_path / 'operativ_config.gin')])


def test_the_working_folder_is_searched_where_one_asked(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name in ('mine/first.gin', 'other/frst.gin'):
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text('')
  with pytest.raises(UserError, match='mine/first.gin') as caught:
    gin_files.parse(['mine/frst.gin'])
  assert 'other/frst.gin' not in str(caught.value)
  assert str(tmp_path) in str(caught.value)


def test_the_place_in_a_file_is_kept(tmp_path):
  path = tmp_path / 'mine.gin'
  path.write_text('utils.run.train_steps = 1\nutils.run.trainsteps = 1\n')
  with pytest.raises(UserError, match=rf'In file "{path}", line 2'):
    gin_files.parse([str(path)])


def test_an_argument_that_is_passed_on_to_a_parent():
  gin_files.parse(model.files('random'), ['SyntheticAttention.num_hads = 3'])
  with pytest.raises(
    UserError,
    match=r"no such argument; did you mean 'num_heads'|"
    r"has no parameter 'num_hads'",
  ) as caught:
    host_model.build(model.VOCAB)
  assert 'In call to configurable' not in str(caught.value)


def test_a_typo_that_only_a_call_meets():
  @gin.configurable(module='tests.errors')
  class Parent:
    def __init__(self, width=1):
      self.width = width

  @gin.configurable(module='tests.errors')
  class Child(Parent):
    def __init__(self, **kwargs):
      super().__init__(**kwargs)

  gin.parse_config('tests.errors.Child.widht = 3')
  with (
    pytest.raises(
      UserError,
      match="'Child' has no parameter 'widht'; did you mean 'width'",
    ),
    errors.explained(),
  ):
    Child()


def test_what_must_be_set():
  with (
    pytest.raises(UserError, match='no mesh is set. On a CPU or GPU give'),
    errors.explained(),
  ):
    utils.tpu_mesh_shape()

  @gin.configurable(module='tests.errors')
  def needs(size=gin.REQUIRED):
    return size

  with (
    pytest.raises(
      UserError, match=r'gin: .*needs.size must be set, .*needs.size = \.\.\.'
    ),
    errors.explained(),
  ):
    needs()


def test_what_a_gin_file_leaves_open():
  with (
    pytest.raises(
      UserError, match='gin: run.batch_size must be set: a gin file'
    ),
    errors.explained(),
  ):
    gin.parse_config('utils.run.batch_size = %gin.REQUIRED')
    gin.finalize()


def test_an_unknown_task():
  with (
    pytest.raises(UserError, match="no task or mixture 'synth_nothing'"),
    errors.explained(),
  ):
    seqio.get_mixture_or_task('synth_nothing')


def test_devices_of_a_mesh():
  implementation = mtf.placement_mesh_impl.PlacementMeshImpl(
    'batch:2', 'a:batch', ['cpu:0', 'cpu:1']
  )
  implementation.devices.pop()
  with (
    pytest.raises(
      UserError, match='the mesh has 2 parts, but .* names 1 devices'
    ),
    errors.explained(),
  ):
    implementation.slicewise(tf.abs, implementation.laid_out_pnum())


@pytest.mark.parametrize(
  'error, message',
  [
    (
      ValueError(
        'Expected targets length for span corruption (22) is greater than '
        'configured targets length (8)'
      ),
      r'makes 22 targets, but utils.run.sequence_length allows 8',
    ),
    (
      tf.errors.UnknownError(
        None, None, 'UserError: a.tsv:3: bad row\nTraceback (most recent'
      ),
      '^a.tsv:3: bad row$',
    ),
    (
      ImportError('Missing runtime dependency on the Google API client.'),
      'pip install cloud-tpu-client',
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
  ],
)
def test_texts_of_other_errors(error, message):
  with pytest.raises(UserError, match=message), errors.explained():
    raise error


def test_an_error_of_ours_keeps_its_message():
  message = "a size\n  In call to configurable 'Random' (<class 'Random'>)"
  with pytest.raises(UserError, match='^a size$'), errors.explained():
    raise ConfigurationError(message)


def test_what_nobody_knows_keeps_its_type():
  with pytest.raises(ZeroDivisionError), errors.explained(lambda e: None):
    1 / 0  # noqa: B018


def test_explainers_are_asked_in_turn():
  asked = []

  def explain(error):
    asked.append(error)
    return 'the disk is full' if len(asked) > 1 else None

  with (
    pytest.raises(UserError, match='the disk is full'),
    errors.explained(explain, explain),
  ):
    1 / 0  # noqa: B018
  assert len(asked) == 2
