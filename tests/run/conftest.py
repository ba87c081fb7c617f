"""Short runs of T5's main on a text in a folder."""

import pathlib
import shutil

import pytest

from tests.cli import t5_main

TINY = (
  *t5_main.REPEATABLE,
  '--gin_param=utils.run.batch_size = 2',
  '--gin_param=utils.run.iterations_per_loop = 2',
  '--gin_param=utils.run.save_checkpoints_steps = 2',
)


@pytest.fixture(scope='session')
def text_dir(tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('data')
  text = folder / 'corpus' / 'text.txt'
  text.parent.mkdir()
  line = (
    'It was a bright cold day in April, and the clocks were striking {}.\n\n'
  )
  text.write_text(''.join(line.format(hour) for hour in range(400)))
  return folder


@pytest.fixture(scope='session')
def run(text_dir):
  def run_command(model_dir, *words, steps=2, without=None):
    return t5_main.synth_mtf_transformer(
      f'--model_dir={model_dir}',
      f'--data_dir={text_dir}',
      '--vocabulary=bytes',
      *(word for word in TINY if word != without),
      f'--gin_param=utils.run.train_steps = {steps}',
      *words,
    )

  return run_command


@pytest.fixture(scope='session')
def trained(run, tmp_path_factory) -> pathlib.Path:
  """The folder of a run of two steps."""
  folder = tmp_path_factory.mktemp('trained')
  assert run(folder) == 0
  return folder


@pytest.fixture
def copy(trained, tmp_path) -> pathlib.Path:
  return pathlib.Path(shutil.copytree(trained, tmp_path / 'copy'))
