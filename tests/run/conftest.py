"""Short runs of T5's main on a text in a folder."""

import pathlib
import shutil

import pytest

from synth_mtf.errors import UserError
from tests import official_files
from tests.cli import t5_main

TINY = (
  *t5_main.REPEATABLE,
  '--gin_param=utils.run.batch_size = 2',
  '--gin_param=utils.run.iterations_per_loop = 2',
  '--gin_param=utils.run.save_checkpoints_steps = 2',
)


@pytest.fixture(scope='session')
def text_dir(tmp_path_factory) -> pathlib.Path:
  return official_files.write_text(tmp_path_factory.mktemp('data'))


@pytest.fixture(scope='session')
def command_line(text_dir):
  """The command line of a run in a folder."""

  def make(model_dir, *more, steps=2):
    return [
      f'--model_dir={model_dir}',
      f'--data_dir={text_dir}',
      '--vocabulary=bytes',
      *TINY,
      f'--gin_param=utils.run.train_steps = {steps}',
      *more,
    ]

  return make


@pytest.fixture(scope='session')
def run(command_line):
  """Runs it in this process."""

  def run_command(model_dir, *more, **options):
    return t5_main.synth_mtf_transformer(
      *command_line(model_dir, *more, **options)
    )

  return run_command


@pytest.fixture(scope='session')
def refused(run):
  """Checks that a run is refused in one message, and changes nothing."""

  def contents(folder):
    return {p: p.read_bytes() for p in folder.glob('model.ckpt-*')}

  def check(model_dir, *more, match, **options):
    before = contents(pathlib.Path(model_dir))
    with pytest.raises(UserError, match=f'(?s){match}') as caught:
      run(model_dir, *more, **options)
    for word in ('Traceback', 'In call to configurable'):
      assert word not in str(caught.value)
    assert contents(pathlib.Path(model_dir)) == before

  return check


@pytest.fixture(scope='session')
def trained(run, tmp_path_factory) -> pathlib.Path:
  """The folder of a run of two steps."""
  folder = tmp_path_factory.mktemp('trained')
  assert run(folder) == 0
  return folder


@pytest.fixture
def copy(trained, tmp_path) -> pathlib.Path:
  return pathlib.Path(shutil.copytree(trained, tmp_path / 'copy'))
