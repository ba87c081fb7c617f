"""A run folder that somebody else made: its configuration is only read."""

import contextlib

import gin
import pytest

from synth_mtf import cli, tasks
from synth_mtf.attention import opening
from synth_mtf.errors import UserError
from synth_mtf.host import bounds, foreign, gin_files, user_modules
from synth_mtf.results import runs
from tests import model
from tests.results import made_runs

CONFIG = """
import synth_mtf
import mesh_tensorflow.transformer.transformer_layers
SyntheticAttention.mixing = 'sum'
"""
WRITES = """
save_scores.results = ['0.1\\t0.2']
save_scores.vocabulary = None
save_scores.scores_filename = '{victim}'
F = @utils.save_scores()
"""


@pytest.fixture
def trap(tmp_path, monkeypatch):
  """A file that a module makes when it is imported."""
  (tmp_path / 'modules').mkdir()
  (tmp_path / 'modules' / 'synth_mtf_trap.py').write_text(
    f'open({str(tmp_path / "sprung")!r}, "w").close()\n'
  )
  monkeypatch.syspath_prepend(tmp_path / 'modules')
  return tmp_path / 'sprung'


@pytest.mark.parametrize(
  'statement',
  [
    'import synth_mtf_trap',
    'import synth_mtf_trap as t5',
    'from synth_mtf_trap import t5',
    'import synth_mtf_trap.synth_mtf',
    'from __gin__ import dynamic_registration',
    "include '{folder}/other.gin'",
  ],
)
def test_a_statement_that_may_run_code_is_left_out(tmp_path, trap, statement):
  statement = statement.format(folder=tmp_path)
  (tmp_path / 'other.gin').write_text('import synth_mtf_trap\n')
  assert foreign.parse(statement + CONFIG, 'a.gin') == [statement]
  assert gin.query_parameter('SyntheticAttention.mixing') == 'sum'
  assert not trap.exists()


def test_a_module_that_the_user_names_is_trusted(tmp_path, monkeypatch):
  (tmp_path / 'modules').mkdir()
  (tmp_path / 'modules' / 'module_of_heads.py').write_text(
    'import gin\n@gin.configurable\ndef three_heads():\n  return 3\n'
  )
  monkeypatch.syspath_prepend(tmp_path / 'modules')
  monkeypatch.setattr(user_modules, '_imported', set())
  user_modules.import_all(['module_of_heads'])
  text = 'import module_of_heads\nSelfAttention.num_heads = @three_heads()\n'
  assert foreign.parse(text, 'a.gin') == []
  assert gin.query_parameter('SelfAttention.num_heads').evaluate
  monkeypatch.setattr(user_modules, '_imported', set())
  with pytest.raises(UserError, match='with --module_import'):
    foreign.parse(text, 'a.gin')


def test_a_module_is_imported_after_another_run_was_read():
  foreign.parse(CONFIG, 'a.gin')
  assert gin.config_is_locked()
  funnels = 'mesh_tensorflow.transformer.funnel_transformer'  # of no other test
  foreign.parse(f'import {funnels}\n' + CONFIG, 'b.gin')
  assert gin.get_configurable(f'{funnels}.FunnelTransformerLayerStack')


def test_a_module_of_models_is_imported_and_no_other():
  """As Universal Transformers and a script of T5's need."""
  text = (
    'import mesh_tensorflow.transformer.universal_transformer\n'
    'import t5.scripts.dump_task\n'
    'universal_transformer.UTLayerStack.num_rec_steps = 3\n'
  )
  assert foreign.parse(text, 'a.gin') == []
  assert gin.query_parameter('UTLayerStack.num_rec_steps') == 3


@pytest.mark.parametrize(
  'binding',
  [
    'utils.run.sequence_length = @utils.save_scores()',
    'utils.run.vocabulary = @utils.save_scores()',
    'utils.run.train_steps = 3',
    'mesh_train_dataset_fn.pack = @utils.save_scores()',
    "synth_mtf.tasks.settings.index_dir = '/any/path'",
    'AdafactorOptimizer.beta1 = @utils.save_scores()',
    'their.module.layer.width = 3',
    'encoder/gin.macro.value = @utils.save_scores()',
    'F = [@utils.save_scores()]',
    # As with T5's objectives/span.gin.
    "F = @utils.save_scores()\nutils.run.sequence_length = {'targets': %F}",
  ],
)
def test_what_is_not_of_the_model_is_left_out(binding):
  foreign.parse(CONFIG + binding, 'a.gin')
  before = gin.config_str()
  foreign.parse(CONFIG, 'a.gin')
  assert gin.config_str() == before


@pytest.mark.parametrize('given', ['', '/mine'])
def test_the_data_are_those_of_the_reader_if_given(monkeypatch, given):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', given)
  name = 'synth_mtf.tasks.settings'
  foreign.parse(
    f"{name}.data_dir = '/theirs'\n{name}.task_data_dirs = {{'*': '/theirs'}}",
    'a.gin',
  )
  assert tasks.settings().data_dir_of('cola') == (given or '/theirs')


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ('Unitransformer.loss_fn = @utils.run()', r'a\.gin:1: .*loss_fn .*@utils'),
    ('\nUnitransformer.loss_fn = @utils.run', r'a\.gin:2: .*@utils.run, which'),
    ('LayerStack.norm_epsilon = {@run(): [1]}', r'norm_epsilon refers to @run'),
    ('LayerStack:\n  norm_epsilon = (@a/run(),)', 'refers to @a/run'),
    ('make_layer_stack.layers = [@their.Layer]', '@their.Layer, which is no'),
    ('Bitransformer.x = @StudentTeacher()', '@StudentTeacher'),
    ('a = ' + '[' * 100_000, 'a.gin: .*nested'),
    ('a = 1\n' * 200_000, 'more than 1,048,576 characters'),
    ('a = \0', 'a.gin: gin syntax'),
    ('import synth_mtf.layer.newer', "No module named 'synth_mtf.layer.newer'"),
    ('d_model = %M', 'a.gin: gin: nothing sets the macro %M'),
  ],
)
def test_what_is_refused(text, says):
  with pytest.raises(UserError, match=says):
    foreign.parse(text, 'a.gin')


@pytest.mark.parametrize(
  'text',
  [
    'num_layers = 100000',
    'd0 = @DenseReluDense\nencoder/make_layer_stack.layers = %d9\n'
    + ''.join(f'd{n + 1} = [{f"%d{n}, " * 9}]\n' for n in range(9)),
  ],
)
def test_a_model_that_takes_forever(tmp_path, monkeypatch, text):
  made_runs.trained(tmp_path / 'run')
  with open(tmp_path / 'run' / 'operative_config.gin', 'a') as stream:
    stream.write(text)
  monkeypatch.setattr(bounds, '_MOST_SECONDS', 1)
  (run,) = runs.read(str(tmp_path / 'run'))
  assert run.label == 'run'
  assert 'more than 1 s' in run.facts.fault


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ('SyntheticAttention.new_option = 3', "unexpected keyword .*'new_option'"),
    ('SyntheticAttention.synthesizers = 3', 'expected a list of at least one'),
    ("num_layers = 'a'", "num_layers = 'a'"),
    ('utils.run.model_type = [1]', 'unknown model_type'),
    ('utils.run.layout_rules = 5', 'the model cannot be built'),
    ('Random.max_length = 1.5', r'lengths .*1\.5.*; expected whole numbers'),
    ("Random.max_length = 'a'", 'the model cannot be built'),
    ('num_layers = 100000000', 'more than 1 seconds'),
  ],
)
def test_a_model_whose_attention_is_asked_for(
  tmp_path, monkeypatch, text, says
):
  """A setting of a later version, one of a wrong kind, and one without end."""
  made_runs.trained(tmp_path / 'run')
  with open(tmp_path / 'run' / 'operative_config.gin', 'a') as stream:
    stream.write(text)
  monkeypatch.setattr(bounds, '_MOST_SECONDS', 1)
  with pytest.raises(UserError, match=says):
    opening.open_run(str(tmp_path / 'run'), [runs.INITIAL], 'bytes')


def test_a_model_that_is_ended_leaves_no_scope(monkeypatch):
  monkeypatch.setattr(bounds, '_MOST_SECONDS', 0.01)
  for _ in range(50):
    with contextlib.suppress(UserError), foreign.bounded():
      for _ in range(10**6):
        with gin.config_scope('encoder'):
          pass
    assert gin.current_scope() == []


@pytest.mark.parametrize('variant', ['random_dense_vanilla', 'cross_random'])
def test_what_runs_have_is_kept(variant):
  files = ['sizes/base.gin', f'variants/{variant}.gin', 'stacks/universal.gin']
  gin_files.parse(files)
  before = gin.config_str()
  assert foreign.parse(before, 'a.gin') == []
  again, known = map(gin_files.bindings, (gin.config_str(), before))
  assert {k: v for k, v in known.items() if k.endswith('layers')} == {
    k: v for k, v in again.items() if k.endswith('layers')
  }


@pytest.fixture
def hostile(tmp_path, monkeypatch):
  """A whole run whose configuration writes a file when it is evaluated."""
  monkeypatch.chdir(tmp_path)
  made_runs.trained(tmp_path / 'run', 'random_vanilla')
  model.write(tmp_path / 'run', 'random_vanilla')
  made_runs.evaluated(tmp_path / 'run', made_runs.COLA, 7, SCORE)
  (tmp_path / 'victim').write_text('precious')
  with open(tmp_path / 'run' / 'operative_config.gin', 'a') as stream:
    stream.write(WRITES.format(victim=tmp_path / 'victim'))
    stream.write('decoder/Unitransformer.label_smoothing = %F\n')
    stream.write('Unitransformer.z_loss = @utils.save_scores()\n')
    stream.write('utils.run.ensemble_inputs = @utils.save_scores()\n')
    stream.write('utils.run.mesh_shape = %F\n')
  return tmp_path


SCORE = {'matthews_corrcoef': 50.0}
GIN = [f'--gin_file={file}' for file in model.files('vanilla')]
GIN += [f'--gin_param={binding}' for binding in model.TINY]
TEXT = ['--text=a', '--target=b', '--vocabulary=bytes']


@pytest.mark.slow
@pytest.mark.parametrize(
  ('command', 'status'),
  [
    (['table', 'run'], 0),
    (['table', 'run', '--layout=glue', '--paper'], 0),
    (['report', 'run', '--out=a.html'], 0),
    (['plot', 'run', '--out=figures'], 0),
    (['plot', 'run', '--out=figures', *TEXT], 0),
    (['attention', 'run', '--out=a.npz', *TEXT], 2),
    (['checkpoint', 'convert', 'run', 'converted', *GIN], 2),
    (['checkpoint', 'export', 'run', 'converted', '--to=hf'], 2),
    (['checkpoint', 'inspect', 'run'], 0),
    (['checkpoint', 'compare', 'run', 'run'], 0),
    (['replay', 'run'], 0),
  ],
)
def test_no_command_calls_it(hostile, command, status, capsys):
  assert cli.main(command) == status
  assert (hostile / 'victim').read_text() == 'precious'
  assert 'Traceback' not in capsys.readouterr().err
  assert not (hostile / 'converted').exists()


@pytest.mark.slow  # builds whole models
def test_convert_runs_it_only_when_told(tmp_path, trap, capsys):
  source = model.write(tmp_path / 'source')
  config = tmp_path / 'source' / 'operative_config.gin'
  gin_files.parse(model.files('vanilla'), model.TINY)
  config.write_text('import synth_mtf_trap\n' + gin.config_str())
  gin.clear_config()
  words = [f'--gin_file={file}' for file in model.files('random_vanilla')]
  words += [f'--gin_param={binding}' for binding in model.TINY]
  command = ['checkpoint', 'convert', str(source)]
  assert cli.main([*command, str(tmp_path / 'one'), *words]) == 0
  assert 'skipped `import synth_mtf_trap`' in capsys.readouterr().out
  assert not trap.exists()
  trusted = f'--source_gin_file={config}'
  assert cli.main([*command, str(tmp_path / 'two'), *words, trusted]) == 0
  assert trap.exists()
