"""Clear messages for the host's exceptions: real ones, where that is easy."""

import gin
import numpy as np
import pytest
import seqio
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
  for name, meant in (('frst.gin', path.name), (f'{path.parent}/f.gin', path)):
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
      lambda: np.ones(1 << 50),
      r'^out of memory: .*\nMake the batch smaller .*batch_size.*$',
    ),
    (fill_the_disk, 'disk is full: .*No space left'),
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
