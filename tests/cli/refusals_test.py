"""Runs that T5's main would do wrong without a word, refused by the command."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from synth_mtf.errors import UserError
from synth_mtf.run import model_dir
from tests.cli import t5_main

SMALL = (
  *t5_main.REPEATABLE,
  '--gin_param=utils.run.batch_size = 2',
  '--gin_param=utils.run.iterations_per_loop = 2',
  '--gin_param=utils.run.save_checkpoints_steps = 2',
)
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


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('data')
  text = folder / 'corpus' / 'text.txt'
  text.parent.mkdir()
  line = 'It was a bright cold day, and the clocks were striking {}.\n\n'
  text.write_text(''.join(line.format(hour) for hour in range(800)))
  return folder


@pytest.fixture(scope='module')
def words(data_dir):
  """The command line of a run in a folder."""

  def make(model_dir, *more, steps=2):
    return (
      f'--model_dir={model_dir}',
      f'--data_dir={data_dir}',
      '--vocabulary=bytes',
      *SMALL,
      f'--gin_param=utils.run.train_steps = {steps}',
      *more,
    )

  return make


@pytest.fixture(scope='module')
def run(words):
  def run_command(model_dir, *more, **options):
    return t5_main.synth_mtf_transformer(*words(model_dir, *more, **options))

  return run_command


@pytest.fixture(scope='module')
def trained(run, tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('trained')
  assert run(folder) == 0
  return folder


@pytest.fixture
def copy(trained, tmp_path) -> pathlib.Path:
  return pathlib.Path(shutil.copytree(trained, tmp_path / 'copy'))


def contents(folder) -> dict[str, bytes]:
  """What must survive a refused run."""
  return {p.name: p.read_bytes() for p in folder.glob('model.ckpt-*')}


def refused(run, folder, *more, match, **options):
  """Checks that a run is refused in one message, and changes nothing."""
  before = contents(folder) if folder.is_dir() else {}
  with pytest.raises(UserError, match=f'(?s){match}') as caught:
    run(folder, *more, **options)
  assert 'Traceback' not in str(caught.value)
  assert (contents(folder) if folder.is_dir() else {}) == before


@pytest.mark.slow
class TestRandomWeights:
  """No mode may go on with fresh weights where a checkpoint is lost."""

  @pytest.mark.parametrize('mode', MODES)
  def test_without_the_pointer(self, run, copy, mode):
    (copy / 'checkpoint').unlink()
    refused(
      run, copy, *MODES[mode], LATEST, match='holds model.ckpt-2, but the file'
    )

  @pytest.mark.parametrize('mode', MODES)
  def test_without_the_index(self, run, copy, mode):
    (copy / 'model.ckpt-2.index').unlink()
    refused(
      run,
      copy,
      *MODES[mode],
      LATEST,
      match='points at .*model.ckpt-2, which is not .*holds model.ckpt-0',
    )

  def test_without_any_index(self, run, copy):
    for path in copy.glob('*.index'):
      path.unlink()
    refused(run, copy, *EVAL, match='needs a checkpoint.*ckpt-2 lacks its')

  def test_all_of_which_one_has_no_index(self, run, copy):
    (copy / 'model.ckpt-2.index').unlink()
    every = "--gin_param=utils.run.eval_checkpoint_step = 'all'"
    refused(run, copy, *EVAL, every, match='ckpt-2 lacks its .index file: rem')

  @pytest.mark.parametrize(
    'step', ['7', '[2, 7]', '-2', '1.5', "'last'", 'True', '[]']
  )
  def test_a_step_that_is_not_there(self, run, trained, step):
    word = f'--gin_param=utils.run.eval_checkpoint_step = {step}'
    refused(
      run,
      trained,
      *EVAL,
      word,
      match='eval_checkpoint_step = .*: .*holds model.ckpt-0, model.ckpt-2',
    )

  def test_a_step_to_export_that_is_not_there(self, run, trained):
    refused(
      run,
      trained,
      *MODES['export_infer'],
      '--gin_param=utils.run.export_checkpoint_step = 7',
      match='export_checkpoint_step = 7: there is no model.ckpt-7',
    )

  def test_a_score_of_one_of_several(self, run, trained):
    refused(
      run,
      trained,
      *MODES['score_from_strings'],
      '--gin_param=utils.run.eval_checkpoint_step = [0, 2]',
      match=r'reads one checkpoint, but .* is \[0, 2\]',
    )

  @pytest.mark.parametrize(
    'binding',
    [
      'utils.run.eval_checkpoint_step = 2',
      "utils.run.eval_checkpoint_step = 'all'",
    ],
  )
  def test_what_is_there_is_read(self, run, copy, binding):
    assert run(copy, *EVAL, f'--gin_param={binding}') == 0


@pytest.mark.slow
class TestPointer:
  @pytest.mark.parametrize(
    'content', [b'', b'\xff\xfe\x00', b'garbage\n', b'model_checkpoint_path: 7']
  )
  def test_that_says_nothing(self, run, copy, content):
    (copy / 'checkpoint').write_bytes(content)
    refused(run, copy, match='does not say which .*Write the line', steps=4)
    refused(run, copy, *EVAL, LATEST, match='does not say which')

  def test_that_leads_elsewhere(self, run, copy, trained):
    (copy / 'checkpoint').write_text(
      f'model_checkpoint_path: "{trained}/model.ckpt-2"\n'
    )
    refused(run, copy, match='outside the folder', steps=4)

  def test_the_mend_that_is_told_works(self, run, copy):
    (copy / 'checkpoint').write_bytes(b'')
    with pytest.raises(UserError) as caught:
      run(copy)
    (line,) = re.findall('`(model_checkpoint_path.*?)`', str(caught.value))
    (copy / 'checkpoint').write_text(line)
    assert run(copy) == 0


@pytest.mark.slow
class TestMeaning:
  """Models whose variables have the same names and shapes."""

  @pytest.mark.parametrize(
    ('binding', 'message'),
    [
      (
        'SyntheticAttention.synthesizers = [@DotProduct, @Random]',
        r"synthesizers is \['random', 'dot_product'\] in the checkpoint",
      ),
      ("SyntheticAttention.mixing = 'sum'", "mixing is 'softmax' in the"),
      ("SyntheticAttention.index_by = 'row'", "index_by is 'position' in"),
      ('SyntheticAttention.normalize = None', "normalize is 'softmax' in"),
      (
        "decoder/SyntheticAttention.index_by = 'row'",
        r'index_by is .*\(decoder/block_000/layer_000/SyntheticAttention\)',
      ),
      ("DenseReluDense.activation = 'gelu'", "activation is 'relu' in the"),
    ],
  )
  def test_another_one_is_refused(self, run, copy, binding, message):
    word = f'--gin_param={binding}'
    match = f'same shapes: .*{message}'
    refused(run, copy, word, match=match, steps=4)
    refused(run, copy, *EVAL, word, match=match)

  def test_a_start_from_another_order(self, run, trained, tmp_path):
    start = f"--gin_param=utils.run.init_checkpoint = '{trained}/model.ckpt-2'"
    order = (
      '--gin_param=SyntheticAttention.synthesizers = [@DotProduct, @Random]'
    )
    refused(run, tmp_path / 'new', start, order, match='synthesizers is')

  def test_a_folder_without_a_record_is_accepted(self, run, copy):
    (copy / 'model.json').unlink()
    assert run(copy) == 0
    assert (copy / 'model.json').exists()

  @pytest.mark.parametrize('content', ['', '{}x', '[1]', '[{"layers": 1}]'])
  def test_a_damaged_record(self, run, copy, content):
    (copy / 'model.json').write_text(content)
    refused(run, copy, match='model.json is damaged .*remove it', steps=4)

  def test_what_a_run_that_came_to_nothing_left_is_replaced(
    self, run, trained, tmp_path
  ):
    for file in ('model.json', 'vocabulary.json'):
      (tmp_path / file).write_text('[]')
    assert run(tmp_path) == 0
    for file in ('model.json', 'vocabulary.json'):
      left, right = (
        json.loads((f / file).read_text()) for f in (tmp_path, trained)
      )
      assert left == right


@pytest.mark.slow
class TestTwoRuns:
  def test_the_second_is_refused_and_an_evaluation_is_not(
    self, words, run, copy
  ):
    endless = words(copy, steps=100000)
    first = subprocess.Popen(
      [
        pathlib.Path(sys.executable).with_name('synth-mtf'),
        'transformer',
        *endless,
      ],
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


class TestModelDir:
  @pytest.mark.parametrize('name', ['run[v1]', 'run*1', 'run?', 'run\\1'])
  def test_that_is_a_pattern(self, run, tmp_path, name):
    refused(run, tmp_path / name, match='contains .* takes the name for a')
    assert not (tmp_path / name).exists()

  def test_of_the_home_folder(self, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f'Write {os.path.expanduser("~")}/x'):
      run('~/x')
    assert not list(tmp_path.iterdir())

  @pytest.mark.parametrize('name', ['', ' ', 'run '])
  def test_without_a_name(self, run, name):
    with pytest.raises(UserError, match='is empty|white space'):
      run(name)

  def test_that_is_a_dangling_link(self, run, tmp_path):
    (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
    for folder in (tmp_path / 'link', tmp_path / 'link' / 'below'):
      refused(run, folder, match='the link .*link leads to .*nowhere, which')

  def test_that_is_a_file(self, run, tmp_path):
    (tmp_path / 'file').touch()
    for folder in (tmp_path / 'file', tmp_path / 'file' / 'below'):
      refused(run, folder, match='file is a file. Give a folder')

  @pytest.mark.skipif(not os.path.isdir('/proc/fs'), reason='needs Linux')
  def test_that_cannot_be_written(self, run):
    with pytest.raises(UserError, match='/proc/fs cannot be written to'):
      run('/proc/fs')

  def test_that_is_somebody_elses(self, tmp_path):
    mine = os.geteuid()
    if not mine:
      os.chmod(tmp_path, 0o755)
      os.seteuid(65534)  # root may write anywhere
    else:
      os.chmod(tmp_path, 0o555)
    try:
      with pytest.raises(UserError, match='Permission denied. Give a folder'):
        model_dir.check_writable(str(tmp_path))
    finally:
      os.seteuid(mine)

  @pytest.mark.slow
  def test_that_is_a_link_to_a_folder(self, run, copy, tmp_path):
    (tmp_path / 'link').symlink_to(copy)
    assert run(tmp_path / 'link') == 0


@pytest.mark.parametrize(
  ('binding', 'message'),
  [
    ("utils.run.train_steps = 'many'", "'many': expected a whole number"),
    ('utils.run.train_steps = 1e5', '100000.0: expected a whole'),
    ('utils.run.train_steps = -5', 'train_steps = -5: .*at least 1'),
    ('utils.run.train_steps = True', 'train_steps = True: expected a whole'),
    ('utils.run.batch_size = 0', 'batch_size = 0: .*at least 1'),
    ("utils.run.batch_size = ('tokens', 9)", r"\('tokens', 9\): expected"),
    ('utils.run.save_checkpoints_steps = 0', 'save_checkpoints_steps = 0'),
    ("utils.run.variable_filter = '('", r"'\(': expected a regular expres"),
    ('utils.run.variable_filter = 3', '3: expected a regular expression'),
    ("tpu_estimator_model_fn.init_variable_filter = '['", 'a regular expr'),
    ("utils.run.mesh_devices = ['gpu:7']", "there is no 'gpu:7'. This mach"),
    ("utils.run.mesh_devices = ['cpu:1']", "there is no 'cpu:1'"),
    ("utils.run.mesh_devices = ['grafik']", "'grafik' is no name of a dev"),
    (
      "utils.run.mesh_devices = ['/job:worker/task:1/device:CPU:0']",
      'needs `synth-mtf cluster`',
    ),
    ("utils.run.mesh_devices = 'cpu:0'", 'expected a list of names'),
    ("utils.run.mesh_shape = 'batch=2'", "'batch=2': expected a mesh such"),
    ("utils.run.mesh_shape = 'batch:0'", "'batch:0': expected a mesh such"),
    ("utils.run.layout_rules = 'x'", "'x': expected rules such as"),
    ("utils.run.sequence_length = {'inputs': 32}", "no length of 'targets'"),
    ("utils.run.sequence_length = {'input': 8, 'targets': 8}", "'input'"),
    ("utils.run.sequence_length = '32'", "'32': expected"),
    ("utils.run.sequence_length = {'inputs': 0, 'targets': 8}", 'expected'),
    ('utils.run.sequence_length = None', 'sequence_length is not set'),
    ("utils.run.mode = 'trian'", "did you mean 'train'"),
    ("utils.run.model_type = 'transformer'", "mean 'bitransformer'"),
    ("utils.run.dataset_split = 'validation'", "trains on the split 'train'"),
    ("utils.run.learning_rate_schedule = '0.1'", "'0.1': expected a number"),
    ('utils.run.learning_rate_schedule = -1', '-1: expected a number'),
    ("utils.run.optimizer = 'adam'", "'adam': expected a function"),
    ('utils.run.init_checkpoint = 5', 'init_checkpoint = 5: expected a text'),
    ("get_variable_dtype.master_dtype = 'float'", "'float': expected one of"),
    ('num_layers = 0', r'num_layers = 0 \(through num_layers = 0\): expected'),
    ("d_model = 'wide'", r"\(through d_model = 'wide'\): expected a whole"),
    ('dropout_rate = 1.5', 'expected a number from 0 to below 1'),
    ('encoder/Unitransformer.max_length = -1', 'encoder/.*max_length = -1'),
    ('num_layer = 3', "nothing reads num_layer; did you mean 'num_layers'"),
    ('learning_rate = 3', 'nothing reads learning_rate'),
  ],
)
def test_a_value_of_the_wrong_kind(run, tmp_path, binding, message):
  refused(run, tmp_path, f'--gin_param={binding}', match=message)


def test_all_wrong_values_are_told_at_once(run, tmp_path):
  refused(
    run,
    tmp_path,
    '--gin_param=utils.run.batch_size = 0',
    '--gin_param=utils.run.train_steps = 0',
    match='train_steps = 0: .*batch_size = 0: |batch_size = 0: .*train_steps',
  )


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda path: None, 'does not exist'),
    (lambda path: path.mkdir(), 'is a folder|cannot be read'),
    (lambda path: path.touch(), 'cannot be read'),
    (lambda path: path.write_text('a\nb\n'), 'cannot be read'),
    (lambda path: path.write_bytes(bytes(range(256))), 'cannot be read'),
  ],
  ids=['missing', 'folder', 'empty', 'text', 'binary'],
)
def test_a_vocabulary_of_the_wrong_kind(run, tmp_path, make, message):
  path = tmp_path / 'some.model'
  make(path)
  refused(run, tmp_path / 'new', f'--vocabulary={path}', match=message)


@pytest.mark.slow
class TestTextFiles:
  @pytest.fixture
  def inputs(self, tmp_path) -> pathlib.Path:
    return tmp_path / 'inputs.txt'

  @pytest.fixture
  def infer(self, run, trained, inputs, tmp_path):
    def refuse(match, *more):
      refused(
        run,
        trained,
        *MODES['infer'],
        f"--gin_param=input_filename = '{inputs}'",
        f"--gin_param=output_filename = '{tmp_path}/outputs.txt'",
        *more,
        match=match,
      )

    return refuse

  def test_missing(self, infer):
    infer('input_filename: there is no file .*inputs.txt')

  def test_a_folder(self, infer, inputs):
    inputs.mkdir()
    infer('there is no file')

  @pytest.mark.parametrize('content', ['', '\n', '  \n'])
  def test_empty(self, infer, inputs, content):
    inputs.write_text(content)
    infer("inputs.txt' is empty")

  def test_not_utf8(self, infer, inputs):
    inputs.write_bytes('Käse\n'.encode('latin1'))
    infer('is not UTF-8')

  def test_too_long(self, infer, inputs):
    inputs.write_text('short\n' + 'x' * 32 + '\n' + 'x' * 31 + '\n')
    infer('line 2 has 33 tokens; the model takes 32')

  def test_the_output_cannot_be_written(self, infer, inputs):
    inputs.write_text('a\n')
    infer(
      'output_filename = .*cannot be written',
      "--gin_param=output_filename = '/dev/null/outputs.txt'",
    )

  def test_scores_of_lines_that_do_not_pair(
    self, run, trained, inputs, tmp_path
  ):
    inputs.write_text('a\nb\n')
    (tmp_path / 'targets.txt').write_text('a\nb\nc\n')
    refused(
      run,
      trained,
      *MODES['score_from_strings'],
      f"--gin_param=inputs_filename = '{inputs}'",
      f"--gin_param=targets_filename = '{tmp_path}/targets.txt'",
      match='2 inputs and 3 targets',
    )


@pytest.mark.slow
def test_an_export_needs_a_folder(run, trained):
  refused(
    run,
    trained,
    "--gin_param=utils.run.mode = 'export_infer'",
    match='export_path is not set',
  )


@pytest.mark.slow
class TestUnderTheStockCommand:
  """What a hook of gin reaches is refused there, too, in the same words."""

  pytestmark = t5_main.STOCK

  @pytest.fixture(scope='class')
  def stock(self, words, tmp_path_factory):
    with t5_main.t5_mesh_transformer(tmp_path_factory.mktemp('log')) as command:
      yield lambda folder, *more: command(*words(folder, *more, steps=4))

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
      (
        lambda run: None,
        ('--model_dir=a*b',),
        'takes the name for a',
      ),
    ],
    ids=['pointer', 'index', 'garbage', 'mixing', 'type', 'text', 'folder'],
  )
  def test_it_is_refused(self, stock, copy, spoil, more, message):
    spoil(copy)
    before = contents(copy)
    with pytest.raises(t5_main.Failed, match=f'(?s)UserError: .*{message}'):
      stock(copy, *more)
    assert contents(copy) == before
