"""What is refused before the first step, with nothing written.

What each check refuses is tested beside it; here, that runs are checked.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import gin
import pytest

from synth_mtf.errors import UserError
from synth_mtf.run import checks
from tests.cli import t5_main

# To have what is refused.
trains = pytest.mark.slow
EVAL = (
  '--gin_file=runs/perplexity_text.gin',
  '--gin_param=utils.run.perplexity_eval_steps = 1',
)
LATEST = '--gin_param=utils.run.eval_checkpoint_step = -1'
MODES = {
  'eval': EVAL + ("--gin_param=utils.run.mode = 'eval'",),
  'score_eval': EVAL + ("--gin_param=utils.run.mode = 'score_eval'",),
  'perplexity_eval': EVAL,
  'infer': (
    '--gin_file=infer.gin',
    LATEST,
    "--gin_param=output_filename = 'outputs.txt'",
  ),
  'score_from_dataset': (
    '--gin_file=score_from_task.gin',
    "--gin_param=scores_filename = 'scores'",
    LATEST,
  ),
  'score_from_strings': (
    '--gin_file=score_from_file.gin',
    "--gin_param=scores_filename = 'scores'",
    LATEST,
  ),
  'export_infer': (
    "--gin_param=utils.run.mode = 'export_infer'",
    "--gin_param=utils.run.export_path = 'exported'",
  ),
  'export_score': (
    "--gin_param=utils.run.mode = 'export_score'",
    "--gin_param=utils.run.export_path = 'exported'",
  ),
}


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (
      ['--gin_param=utils.run.batch_size = 0', '--gin_param=d_ff = -1'],
      'batch_size = 0: .*d_ff = -1',
    ),
    (
      ["--gin_param=utils.run.sequence_length = {'inputs': 32}"],
      "no length of 'targets'",
    ),
    (["--gin_param=utils.run.mesh_devices = ['cpu:1']"], "is no 'cpu:1'"),
    (
      ["--gin_param=utils.run.dataset_split = 'validation'"],
      "trains on the split 'train'",
    ),
    (
      ["--gin_param=utils.run.init_checkpoint = '/nowhere/model.ckpt-1'"],
      'there is no checkpoint /nowhere/model.ckpt-1',
    ),
    (["--gin_param=utils.run.mesh_shape = 'batch:3'"], 'does not divide'),
    (
      ["--gin_param=utils.run.variable_filter = '^nowhere'"],
      r"variable_filter = '\^nowhere' matches no variable: nothing would be",
    ),
    (["--gin_param=utils.run.mode = 'eval'"], "'eval' needs a checkpoint"),
    (['--vocabulary=/no.model'], "'/no.model' cannot be read"),
  ],
)
def test_a_run_is_checked(refused, tmp_path, words, message):
  refused(tmp_path, *words, match=message)


@pytest.mark.parametrize('name', ['run*1', 'file/below', 'link'])
def test_so_is_its_folder(refused, tmp_path, name):
  (tmp_path / 'file').touch()
  (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
  refused(tmp_path / name, match='--model_dir')


def test_a_data_folder_without_the_files(refused, tmp_path):
  refused(tmp_path, f'--data_dir={tmp_path}', match='no file corpus/')


def test_a_malformed_row_is_found_before_training(refused, tmp_path):
  file = tmp_path / 'glue' / 'CoLA' / 'train.tsv'
  file.parent.mkdir(parents=True)
  file.write_text('gj04\t1\t\tA book.\ngj04\t2\t\tA pen.\n')
  refused(
    tmp_path,
    f'--data_dir={tmp_path}',
    "--gin_param=MIXTURE_NAME = 'synth_glue_cola_v002'",
    match=r'CoLA/train.tsv:2: .*2',
  )


def test_checkpoints_are_not_rounded_unasked(tmp_path):
  with pytest.raises(UserError, match='kept in bfloat16.*master_dtype'):
    t5_main.synth_mtf_transformer(
      f'--model_dir={tmp_path}',
      '--gin_file=models/t5.1.0.base.gin',
      "--gin_param=utils.run.mesh_shape = ''",
    )


def test_a_tpu_that_does_not_answer(refused, tmp_path):
  with socket.socket() as bound:  # a port on which nobody listens
    bound.bind(('localhost', 0))
    address = f'grpc://localhost:{bound.getsockname()[1]}'
    refused(
      tmp_path, f'--tpu={address}', match=f'--tpu={address} does not answer'
    )


def test_gin_files_may_be_read_for_something_else(monkeypatch):
  """Then there is no run to be checked, whatever gin holds."""

  def never(*unused):
    raise AssertionError('there is no run')

  monkeypatch.setattr(checks, 'check_run', never)
  gin.parse_config("import synth_mtf.checked\nutils.run.mode = 'eval'")
  gin.finalize()


@trains
class TestCheckpoints:
  @pytest.mark.parametrize('mode', MODES)
  def test_no_mode_goes_on_with_fresh_weights(self, refused, copy, mode):
    (copy / 'checkpoint').unlink()
    match = 'holds model.ckpt-2, but the file'
    refused(copy, *MODES[mode], LATEST, match=match)

  @pytest.mark.parametrize(
    ('words', 'match'),
    [((), 'again at step 0 and overwrite it'), ((*EVAL, LATEST), 'find none')],
  )
  def test_a_lost_pointer(self, refused, copy, words, match):
    (copy / 'checkpoint').unlink()
    refused(copy, *words, match=match, steps=4)

  @pytest.mark.parametrize('words', [(), (*EVAL, LATEST)])
  def test_a_lost_index_names_what_is_there(self, refused, copy, words):
    (copy / 'model.ckpt-2.index').unlink()
    match = 'points at .*model.ckpt-2.* holds model.ckpt-0'
    refused(copy, *words, match=match, steps=4)

  def test_the_mend_that_is_told_works(self, run, copy):
    (copy / 'checkpoint').write_bytes(b'')
    with pytest.raises(UserError) as caught:
      run(copy)
    (line,) = re.findall('`(model_checkpoint_path.*?)`', str(caught.value))
    (copy / 'checkpoint').write_text(line)
    assert run(copy) == 0

  @pytest.mark.parametrize('step', ['2', "'all'"])
  def test_what_is_there_is_read(self, run, copy, step):
    word = f'--gin_param=utils.run.eval_checkpoint_step = {step}'
    assert run(copy, *EVAL, word) == 0

  def test_a_split_that_was_trained_on(self, refused, trained):
    word = "--gin_param=utils.run.mode = 'eval'"
    refused(trained, word, match="mode 'eval' would .*'validation'")

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
  def test_of_another_model(self, refused, copy, word, message):
    match = f'made by another model: .*{message}'
    refused(copy, word, match=match, steps=4)

  def test_of_another_meaning(self, refused, trained, copy, tmp_path):
    binding = '--gin_param=SyntheticAttention.synthesizers = '
    swapped = f'{binding}[@DotProduct, @Random]'
    start = f"--gin_param=utils.run.init_checkpoint = '{trained}/model.ckpt-2'"
    refused(copy, swapped, match='same shapes: synthesizers is', steps=4)
    refused(copy, *EVAL, swapped, match='same shapes: synthesizers is')
    refused(tmp_path / 'new', start, swapped, match='synthesizers is')

  def test_without_a_record_of_their_meaning(self, run, copy):
    (copy / 'model.json').unlink()
    assert run(copy) == 0
    assert (copy / 'model.json').exists()

  def test_lines_to_decode(self, refused, trained, tmp_path):
    (tmp_path / 'inputs.txt').touch()
    word = f"--gin_param=input_filename = '{tmp_path}/inputs.txt'"
    refused(trained, *MODES['infer'], word, match="inputs.txt' is empty")

  def test_an_export_needs_a_folder(self, refused, trained):
    word = "--gin_param=utils.run.mode = 'export_infer'"
    refused(trained, word, match='export_path is not set')


@trains
def test_a_second_run_is_refused_and_an_evaluation_is_not(
  command_line, run, copy
):
  command = pathlib.Path(sys.executable).with_name('synth-mtf')
  first = subprocess.Popen(
    [command, 'transformer', *command_line(copy, steps=100000)],
    env={**os.environ, 'PYTHONHASHSEED': '0'},
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  try:
    end = time.monotonic() + 120
    while not (copy / 'model.ckpt-4.index').exists():
      assert first.poll() is None
      assert time.monotonic() < end
      time.sleep(0.1)
    with pytest.raises(
      UserError, match=f'another run is training .*process {first.pid} on'
    ):
      run(copy, steps=100000)
    assert run(copy, *EVAL, LATEST) == 0
    assert first.poll() is None
  finally:
    first.kill()
    first.wait()
  steps = [int(path.stem.rpartition('-')[2]) for path in copy.glob('*.index')]
  assert run(copy, steps=max(steps)) == 0, 'a dead process holds no lock'


@trains
def test_the_person_is_told_what_packed_rows_cost(run, tmp_path, capfd):
  assert run(tmp_path, '--gin_param=mesh_train_dataset_fn.pack = True') == 0
  assert 'warning: Rows are packed' in capfd.readouterr().err


class TestUnderTheStockCommand:
  """What a hook of gin reaches is refused there, too, in the same words."""

  pytestmark = [trains, *t5_main.STOCK]

  @pytest.fixture(scope='class')
  def stock(self, command_line, tmp_path_factory):
    with t5_main.t5_mesh_transformer(tmp_path_factory.mktemp('log')) as command:
      yield lambda folder, *more: command(*command_line(folder, *more, steps=4))

  @pytest.mark.parametrize(
    ('spoil', 'more', 'message'),
    [
      (
        lambda run: (run / 'checkpoint').unlink(),
        (*EVAL, LATEST),
        'holds model.ckpt-2, but the file',
      ),
      (
        lambda run: (run / 'model.ckpt-2.index').unlink(),
        (*EVAL, LATEST),
        'points at .*model.ckpt-2, which is not',
      ),
      (
        lambda run: (run / 'checkpoint').write_bytes(b'\xff\xfe\x00'),
        (),
        'does not say which',
      ),
      (
        lambda run: None,
        ("--gin_param=SyntheticAttention.mixing = 'sum'",),
        "mixing is 'softmax' in the checkpoint",
      ),
      (
        lambda run: None,
        ("--gin_param=utils.run.train_steps = 'many'",),
        "'many': expected a whole number",
      ),
      (
        lambda run: None,
        (
          *MODES['infer'],
          "--gin_param=input_filename = 'nowhere.txt'",
        ),
        'there is no file .*nowhere.txt',
      ),
    ],
    ids=['pointer', 'index', 'garbage', 'mixing', 'type', 'text'],
  )
  def test_it_is_refused(self, stock, copy, spoil, more, message):
    spoil(copy)
    before = {p: p.read_bytes() for p in copy.glob('model.ckpt-*')}
    with pytest.raises(t5_main.Failed, match=f'(?s)UserError: .*{message}'):
      stock(copy, *more)
    assert before == {p: p.read_bytes() for p in copy.glob('model.ckpt-*')}

  def test_a_folder_that_is_a_pattern(self, stock, tmp_path):
    with pytest.raises(t5_main.Failed, match='UserError: .*takes the name for'):
      stock(tmp_path / 'a*b')
