"""What is refused before the first step, with nothing written.

What each check refuses is tested beside it; here, that runs are checked.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import types
from typing import Any

import gin
import numpy as np
import pytest

from synth_mtf.checkpoints import files
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host.run_config import RunConfig
from synth_mtf.pjrt import devices
from synth_mtf.run import checks, ways
from synth_mtf.tasks import vocabulary
from tests import forks, model
from tests.cli import t5_main

trains = pytest.mark.slow
EVAL = (
  '--gin_file=runs/perplexity_text.gin',
  '--gin_param=utils.run.perplexity_eval_steps = 1',
)
LATEST = '--gin_param=utils.run.eval_checkpoint_step = -1'
SYNTHESIZERS = '--gin_param=SyntheticAttention.synthesizers = '


def run_param(text):
  return f'--gin_param=utils.run.{text}'


COLA = "--gin_param=MIXTURE_NAME = 'synth_glue_cola_v002'"


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (
      [run_param('batch_size = 0'), run_param('iterations_per_loop = -1')],
      'batch_size = 0: .*iterations_per_loop = -1',
    ),
    ([run_param("sequence_length = {'inputs': 3}")], "length of 'targets'"),
    ([run_param("mesh_devices = ['cpu:1']")], "is no 'cpu:1'"),
    ([run_param("dataset_split = 'test'")], "trains on the split 'train'"),
    ([run_param("init_checkpoint = '/no/ckpt-1'")], 'checkpoint /no/ckpt-1'),
    ([run_param("mesh_shape = 'batch:3'")], 'does not divide'),
    ([run_param("variable_filter = '^no'")], r"'\^no' matches no variable"),
    ([run_param("mode = 'eval'")], "'eval' needs a checkpoint"),
    (['--vocabulary=/no.model'], '/no.model does not exist'),
    (['--vocabulary={folder}/a.model'], "a.model' cannot be read"),
    (['--data_dir={folder}'], 'no file corpus/'),
    (['--data_dir={folder}', COLA], 'CoLA/train.tsv:2: .*2'),
  ],
)
def test_a_run_is_checked(refused, tmp_path, words, message):
  file = tmp_path / 'glue' / 'CoLA' / 'train.tsv'
  file.parent.mkdir(parents=True)
  file.write_text('gj04\t1\t\tA book.\ngj04\t2\t\tA pen.\n')
  (tmp_path / 'a.model').write_text('no vocabulary')
  words = [word.replace('{folder}', str(tmp_path)) for word in words]
  refused(tmp_path, *words, match=message)


def some_run(**settings) -> Any:
  return types.SimpleNamespace(
    **{
      'mode': 'train',
      'dataset_split': 'validation',
      'optimizer': 'any',
      'train_dataset_fn': None,
      'eval_dataset_fn': None,
      **settings,
    }
  )


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'eval_dataset_fn': 1}, "mode 'train' has no data"),
    ({'train_dataset_fn': 1}, None),
    ({'train_dataset_fn': 1, 'optimizer': None}, 'has no optimizer'),
    ({'mode': 'eval', 'train_dataset_fn': 1}, "mode 'eval' has no data"),
    ({'mode': 'perplexity_eval', 'eval_dataset_fn': 1}, None),
    ({'mode': 'infer', 'optimizer': None}, None),
  ],
)
def test_which_data_a_mode_needs(settings, message):
  run = some_run(**settings)
  if message is None:
    checks._check_has_data(run)  # noqa: SLF001
    return
  with pytest.raises(UserError, match=message):
    checks._check_has_data(run)  # noqa: SLF001


def test_dialogues_are_scored_with_their_metrics(monkeypatch, tmp_path):
  task = 'synth_personachat'
  for reader in ('mesh_train_dataset_fn', 'mesh_eval_dataset_fn'):
    gin.bind_parameter(f'{reader}.mixture_or_task_name', task)
  found: list[Any] = [None]
  monkeypatch.setattr(checks, 'find_spec', lambda name: found[0])
  with pytest.raises(UserError, match=f'{task} cannot be scored without'):
    checks.check_task(some_run(mode='eval'), is_cached=True)
  checks.check_task(some_run(mode='perplexity_eval'), is_cached=True)
  found[0] = 'pycocoevalcap'
  checks.check_task(some_run(mode='eval'), is_cached=True)
  found[0] = None
  path = tmp_path / 'vectors'
  monkeypatch.setenv('SYNTH_MTF_WORD_VECTORS', str(path))
  with pytest.raises(UserError, match='there is no local file .*/vectors'):
    checks.check_task(some_run(mode='eval'), is_cached=True)
  path.touch()
  checks.check_task(some_run(mode='eval'), is_cached=True)


def test_data_of_no_task_are_not_counted():
  checks.check_task(some_run(), is_cached=False)


def test_only_training_records_what_it_is(text_dir, tmp_path, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(text_dir))
  lengths = "utils.run.sequence_length = {'inputs': 16, 'targets': 16}"
  folder, way = str(tmp_path / 'run'), ways.InSession()

  def check(*more):
    gin_files.parse(
      [*model.files('random'), 'runs/pretrain_text.gin', 'runs/cpu.gin'],
      [*model.TINY, 'num_layers = 1', lengths, *more],
    )
    with gin.unlock_config():
      gin.bind_parameter('run.vocabulary', vocabulary.load('bytes'))
    with contextlib.ExitStack() as held:
      assert checks.check_run(folder, way, held) == {}

  check('Unitransformer.max_length = 16')
  names = {'vocabulary.json', 'origins.json', 'model.json'}
  assert names <= {*os.listdir(folder)}
  built = checks.build(RunConfig(), way)
  assert built
  values = {
    name: np.zeros(variable.shape.as_list(), np.float32)
    for name, variable in built.variables.items()
  }
  files.write(folder, 3, values)
  before = {name: (tmp_path / 'run' / name).read_bytes() for name in names}
  check(
    'Unitransformer.max_length = 16',
    "utils.run.mode = 'perplexity_eval'",
    "utils.run.dataset_split = 'validation'",
    'utils.run.eval_checkpoint_step = 3',
    'utils.run.eval_dataset_fn = @mesh_eval_dataset_fn',
  )
  assert before == {n: (tmp_path / 'run' / n).read_bytes() for n in names}
  with pytest.raises(UserError, match='another model: .*wi/kernel is float32'):
    check(
      'Unitransformer.max_length = 16',
      'd_ff = 21',
      'utils.run.train_steps = 9',
    )


def test_so_is_its_folder(refused, tmp_path):
  refused(tmp_path / 'run*1', match='--model_dir')


def test_checkpoints_are_not_rounded_unasked(tmp_path):
  with pytest.raises(UserError, match='kept in bfloat16.*master_dtype'):
    t5_main.synth_mtf_transformer(
      f'--model_dir={tmp_path}',
      '--gin_file=models/t5.1.0.base.gin',
      '--gin_file=runs/pretrain_text.gin',
      '--gin_param=synth_mtf.tasks.settings.vocabulary = "bytes"',
      "--gin_param=utils.run.mesh_shape = ''",
    )


NOWHERE = (
  '--gin_file=infer.gin',
  LATEST,
  "--gin_param=input_filename = 'nowhere.txt'",
  "--gin_param=output_filename = 'outputs.txt'",
)
SWAPPED = f'{SYNTHESIZERS}[@DotProduct, @Random]'
# The file that a folder with checkpoints of steps 0 and 2 has lost, a command
# line, and the message.
CHECKPOINTS = [
  ('checkpoint', (), 'again at step 0 and overwrite it'),
  ('checkpoint', (*EVAL, LATEST), 'find none'),
  ('model.ckpt-2.index', (), 'points at .*model.ckpt-2.* holds model.ckpt-0'),
  ('', (run_param("mode = 'eval'"),), "mode 'eval' would .*'validation'"),
  ('', ('--gin_param=d_ff = 256',), r'another model: .*wi/kernel is float32'),
  ('', (SWAPPED,), 'same shapes: synthesizers is'),
  ('', (*EVAL, SWAPPED), 'same shapes: synthesizers is'),
  ('', (run_param("train_steps = 'many'"),), "'many': expected a whole number"),
  ('', NOWHERE, 'nowhere.txt cannot be read'),
  ('', (run_param("mode = 'export_infer'"),), 'export_path is not set'),
]
# What a hook of gin reaches, which is all that the stock command has of us.
STOCK = [CHECKPOINTS[n] for n in (0, 1, 2, 5, 7, 8)]


def lose(folder, file):
  if file:
    (folder / file).unlink()


@trains
@pytest.mark.parametrize(('lost', 'words', 'message'), CHECKPOINTS)
def test_checkpoints_that_do_not_fit(refused, copy, lost, words, message):
  lose(copy, lost)
  refused(copy, *words, match=message, steps=4)


@trains
class TestCheckpoints:
  def test_what_init_checkpoint_names(self, refused, trained, tmp_path):
    start = run_param(f"init_checkpoint = '{trained}/model.ckpt-2'")
    new = tmp_path / 'new'
    refused(new, start, SWAPPED, match='synthesizers is', steps=4)
    warm = '--gin_file=common/warm_start.gin'
    for more in ((), (warm,)):
      words = (start, *more, '--gin_param=d_ff = 256')
      refused(new, *words, match='other shapes.* the size it was', steps=4)
      assert not new.exists()  # found before training began
    refused(new, start, match='already at step 2, and .* give more than 2')
    refused(trained, match='train_steps = 1, but .*ckpt-2 is already', steps=1)

  def test_another_vocabulary(self, refused, copy, tmp_path):
    record = copy / 'vocabulary.json'
    record.write_text(record.read_text().replace('"sha256": "', '"sha256": "0'))
    start = run_param(f"init_checkpoint = '{copy}/model.ckpt-2'")
    for folder in (copy, tmp_path / 'new'):
      refused(folder, start, match='has other pieces', steps=4)
    assert not (tmp_path / 'new' / 'vocabulary.json').exists()

  def test_the_fix_in_the_message_works(self, run, copy):
    (copy / 'checkpoint').write_bytes(b'')
    with pytest.raises(UserError) as caught:
      run(copy)
    (line,) = re.findall('`(model_checkpoint_path.*?)`', str(caught.value))
    (copy / 'checkpoint').write_text(line)
    assert run(copy) == 0

  def test_without_a_record_of_the_layers(self, run, copy):
    (copy / 'model.json').unlink()
    assert run(copy) == 0
    assert (copy / 'model.json').exists()


@trains
@pytest.mark.parametrize('device', [(), ('--device=cpu',)])
def test_checkpoints_elsewhere_stay(
  run, copy, tmp_path, capfd, monkeypatch, device
):
  """Somebody else may have written the list of checkpoints to remove."""
  all_of = devices.find  # other tests may have asked JAX for several
  monkeypatch.setattr(devices, 'find', lambda kind: all_of(kind)[:1])
  other = tmp_path / 'precious'
  other.mkdir()
  for path in copy.glob('model.ckpt-2.*'):
    shutil.copy(path, other / path.name.replace('-2.', '-7.'))
  before = sorted(other.iterdir())
  with open(copy / 'checkpoint', 'a') as pointer:
    pointer.write(f'all_model_checkpoint_paths: "{tmp_path}/*/model.ckpt-7"\n')
  assert run(copy, run_param('keep_checkpoint_max = 1'), *device, steps=6) == 0
  assert sorted(other.iterdir()) == before
  (told,) = [
    line for line in capfd.readouterr().err.splitlines() if 'warning' in line
  ]
  assert f'{tmp_path}/*/model.ckpt-7. It is left alone.' in told
  assert not (copy / 'model.ckpt-2.index').exists()  # its own are removed


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
    end = time.monotonic() + 1500
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


class TestUnderTheStockCommand:
  pytestmark = [trains, *t5_main.STOCK]

  @pytest.fixture(scope='class')
  def stock(self, command_line, tmp_path_factory):
    with t5_main.t5_mesh_transformer(tmp_path_factory.mktemp('log')) as command:
      yield lambda folder, *more: command(*command_line(folder, *more, steps=4))

  @pytest.mark.parametrize(('lost', 'words', 'message'), STOCK)
  def test_it_is_refused_in_the_same_words(
    self, stock, copy, lost, words, message
  ):
    lose(copy, lost)
    before = {p: p.read_bytes() for p in copy.glob('model.ckpt-*')}
    with pytest.raises(forks.Failed, match=f'(?s)UserError: .*{message}'):
      stock(copy, *words)
    assert before == {p: p.read_bytes() for p in copy.glob('model.ckpt-*')}
