"""What is refused before the first step, with nothing written."""

import socket

import gin
import pytest

from synth_mtf.errors import UserError
from synth_mtf.run import preflight
from tests.cli import t5_main

# To have what is refused.
trains = pytest.mark.slow


def contents(folder) -> dict[str, int]:
  """Sizes and names of what must survive a refused run."""
  return {p.name: p.stat().st_size for p in folder.glob('model.ckpt-*')}


def test_a_data_folder_without_the_files(run, tmp_path):
  with pytest.raises(UserError, match=r"split 'train': no file corpus/"):
    run(tmp_path, f'--data_dir={tmp_path}')


def test_a_malformed_row_is_found_before_training(run, tmp_path):
  file = tmp_path / 'glue' / 'CoLA' / 'train.tsv'
  file.parent.mkdir(parents=True)
  file.write_text('gj04\t1\t\tA book.\ngj04\t2\t\tA pen.\n')
  with pytest.raises(UserError, match=r'CoLA/train.tsv:2: .*2'):
    run(
      tmp_path,
      f'--data_dir={tmp_path}',
      "--gin_param=MIXTURE_NAME = 'synth_glue_cola_v002'",
    )


def test_a_run_that_must_have_trained(run, tmp_path):
  with pytest.raises(UserError, match="mode 'eval' needs a checkpoint"):
    run(tmp_path, "--gin_param=utils.run.mode = 'eval'")


@trains
def test_a_split_that_was_trained_on(run, trained):
  with pytest.raises(UserError, match="mode 'eval' would .*'validation'"):
    run(trained, "--gin_param=utils.run.mode = 'eval'")


def test_checkpoints_are_not_rounded_unasked(tmp_path):
  with pytest.raises(UserError, match='kept in bfloat16.*master_dtype'):
    t5_main.synth_mtf_transformer(
      f'--model_dir={tmp_path}',
      '--gin_file=models/t5.1.0.base.gin',
      "--gin_param=utils.run.mesh_shape = ''",
    )


def test_a_model_folder_that_cannot_be_made(run):
  with pytest.raises(UserError, match='/dev/null/run cannot be made'):
    run('/dev/null/run')


@trains
def test_a_lost_pointer_does_not_restart_from_zero(run, copy):
  (copy / 'checkpoint').unlink()
  before = contents(copy)
  with pytest.raises(UserError, match='holds model.ckpt-2.* overwrite it'):
    run(copy, steps=4)
  assert contents(copy) == before


@trains
def test_a_lost_index_names_what_is_there(run, copy):
  (copy / 'model.ckpt-2.index').unlink()
  with pytest.raises(
    UserError, match='points at .*model.ckpt-2.* holds model.ckpt-0'
  ):
    run(copy, steps=4)


@trains
@pytest.mark.parametrize(
  ('word', 'message'),
  [
    (
      '--gin_param=d_ff = 256',
      r'wi/kernel is float32\[64, 128\] in the checkpoint',
    ),
    ('--gin_file=variants/dense.gin', r'dense/W1 is not in it'),
    ('--gin_file=variants/vanilla.gin', r'random/R is not in the model'),
    (
      "--gin_param=utils.get_variable_dtype.master_dtype = 'bfloat16'",
      r'float32\[.*\] in the checkpoint, bfloat16',
    ),
    ('--gin_param=Unitransformer.max_length = 64', r'random/R is float32\['),
  ],
)
def test_a_checkpoint_of_another_model(run, copy, word, message):
  before = contents(copy)
  with pytest.raises(UserError, match=f'made by another model: .*{message}'):
    run(copy, word, steps=4)
  assert contents(copy) == before


def test_a_tpu_that_does_not_answer(run, tmp_path):
  with socket.socket() as bound:  # a port on which nobody listens
    bound.bind(('localhost', 0))
    address = f'grpc://localhost:{bound.getsockname()[1]}'
    with pytest.raises(UserError, match=f'--tpu={address} does not answer'):
      run(tmp_path, f'--tpu={address}')


def test_gin_files_may_be_read_for_something_else(monkeypatch):
  """Then there is no run to be checked, whatever gin holds."""

  def never(*unused):
    raise AssertionError('there is no run')

  monkeypatch.setattr(preflight, '_check_tpu', never)
  gin.parse_config("utils.run.mode = 'eval'")
  preflight.check_run({})
