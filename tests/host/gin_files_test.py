"""Every gin file that is there: parsed, finalized, built, reloaded."""

import functools
import logging
import os
import pathlib
import re
import shlex

import gin
import pytest

import synth_mtf
from synth_mtf.cost import cost_of_files
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from tests import official_files
from tests.cli import t5_main

FOLDER = pathlib.Path(synth_mtf.gin_path())
FOLDERS = sorted(p.name for p in FOLDER.iterdir() if p.is_dir())
SMALL = (
  *('d_model = 16', 'd_ff = 8', 'num_layers = 1', 'num_heads = 2', 'd_kv = 4'),
  'Unitransformer.max_length = 64',
)


def names(folder):
  stems = sorted(p.stem for p in (FOLDER / folder).glob('*.gin'))
  assert stems
  return stems


def test_files_of_the_user(tmp_path, monkeypatch):
  """As an editor saves them; other sizes and kinds are one message."""
  monkeypatch.chdir(tmp_path)
  pathlib.Path('size.gin').write_bytes(
    b"\xef\xbb\xbfinclude 'sizes/tiny.gin'\r\nd_model = 24\r\n"
  )
  gin_files.parse(['size.gin'])
  assert gin.query_parameter('d_model/macro.value') == 24
  pathlib.Path('t5x.gin').write_text(
    'from __gin__ import dynamic_registration\n'
    'from t5x import models\nMODEL = @models.EncoderDecoderModel()\n'
  )
  pathlib.Path('latin.gin').write_bytes(b'# caf\xe9')
  large = pathlib.Path('large.gin')
  large.touch()
  os.truncate(large, 5 << 30)
  for name, message in (
    ('t5x.gin', 'gin finds models in no .*of T5X(?s:.*)"t5x.gin", line 3'),
    ('latin.gin', 'include in one.: latin.gin cannot be read: .*position 5'),
    ('large.gin', 'include in one.: large.gin has 5,368,709,120 bytes'),
  ):
    with pytest.raises(UserError, match=message):
      gin_files.parse([name])


def test_logging_stays_disabled_where_it_was():
  before = logging.root.manager.disable
  logging.disable(logging.WARNING)
  try:
    gin_files.parse(['sizes/tiny.gin'])
    assert logging.root.manager.disable == logging.WARNING
  finally:
    logging.disable(before)


def test_no_file_is_without_a_test():
  parts = ['common', 'heads', 'layers', 'layouts', 'stacks']
  assert sorted([*parts, 'runs', 'sizes', 'variants']) == FOLDERS
  assert not list(FOLDER.glob('*.gin'))
  assert not list(FOLDER.rglob('__init__.py'))
  for folder in parts:
    for name in names(folder):
      gin_files.parse(
        ['sizes/tiny.gin', f'{folder}/{name}.gin'],
        ["utils.tpu_mesh_shape.tpu_topology = '2x2'"],  # which `pod` requires
      )
      assert gin.config_is_locked(), 'parsing finalizes'


@pytest.mark.sampled
@pytest.mark.parametrize(
  'variant',
  [
    pytest.param(
      name, marks=[pytest.mark.slow] if name.startswith('cross_') else []
    )
    for name in names('variants')
  ],
)
def test_variant(variant):
  """Builds, in both stacks, and again from its operative config."""
  pack = 'mesh_train_dataset_fn.pack = False'
  gin_files.parse(['sizes/tiny.gin', f'variants/{variant}.gin'], [*SMALL, pack])
  scopes = host_model.build(64).attention
  assert {scope.split('/')[0] for scope in scopes} <= {'encoder', 'decoder'}
  before = layers()
  operative = gin.operative_config_str()
  gin.clear_config()
  # Among the settings of the data, a run keeps those of the pipeline it used.
  gin.parse_config([operative, pack])
  assert layers() == before


def layers():
  """The layers of the model that gin holds, by scope, with all settings."""
  made = host_model.make_transformer(64)
  return {scope: plain(layer) for scope, layer in host_model.layers(made)}


def plain(value):
  """A value that equals another one's if all that is in them does."""
  if isinstance(value, (list, tuple)):
    return [plain(one) for one in value]
  if isinstance(value, functools.partial):
    functions = (value.func, *value.args)
    return [getattr(one, '__func__', one) for one in functions]
  if callable(value) or not hasattr(value, '__dict__'):
    return value
  return type(value), {name: plain(one) for name, one in vars(value).items()}


# d_model, d_ff, layers, heads, d_kv of T5 (arXiv 1910.10683, 3.7)
T5 = {
  'small': (512, 2048, 6, 8, 64),
  'base': (768, 3072, 12, 12, 64),
  'large': (1024, 4096, 24, 16, 64),
  '3B': (1024, 16384, 24, 32, 128),
  '11B': (1024, 65536, 24, 128, 128),
}


@pytest.mark.sampled
@pytest.mark.parametrize('size', names('sizes'))
def test_size(size):
  files = [f'sizes/{size}.gin', 'variants/random_vanilla.gin']
  gin_files.parse(files)
  macros = ('d_model', 'd_ff', 'num_layers', 'num_heads', 'd_kv')
  numbers = tuple(gin.query_parameter(f'%{macro}') for macro in macros)
  d_model, _, _, heads, d_kv = numbers
  assert numbers == T5.get(size, numbers)
  gin_files.parse(files, ['num_layers = 1'])
  ours = gin.get_bindings('SyntheticAttention')  # of sizes with other heads
  heads = ours.get('num_heads', heads)
  d_kv = ours.get('key_value_size', d_kv)
  shapes = host_model.build(64).shapes
  layer = 'encoder/block_000/layer_000/SyntheticAttention'
  assert shapes[f'{layer}/alpha'].to_integer_list == [2, heads]
  assert shapes[f'{layer}/random/R'].to_integer_list == [heads, 512, 512]
  assert shapes[f'{layer}/q'].size == d_model * heads * d_kv


def head(file):
  """The comment at the start of a gin file, without its marks."""
  lines = (FOLDER / file).read_text(encoding='utf-8').splitlines()
  assert lines.pop(0) == '# -*-Python-*-'
  comment = []
  for line in lines:
    if not line.startswith('#'):
      break
    comment.append(line.removeprefix('#').removeprefix(' '))
  return '\n'.join(comment)


def millions(files):
  """The trained and the fixed parameters that `synth-mtf cost` counts.

  A model of T5's depth is what models of one and two layers make it.
  """
  lengths = {'inputs': 512, 'targets': 512}
  one, two = (
    cost_of_files(files, lengths, [f'num_layers = {n}']) for n in '12'
  )
  gin_files.parse(files)
  more = gin.query_parameter('%num_layers') - 1
  trained = one.trained + more * (two.trained - one.trained)
  total = one.parameters + more * (two.parameters - one.parameters)
  return [f'{count / 1e6:,.1f}' for count in (trained, total - trained)]


COUNT = re.compile(
  r'([\d,.]+)\smillion\s(?:trained\s)?parameters'
  r'(?:\sand\s([\d,.]+)\smillion\sfixed\sones)?'
)


@pytest.mark.slow  # builds a model of each size
@pytest.mark.parametrize('size', names('sizes'))
def test_parameters_in_the_head_of_a_size(size):
  file = f'sizes/{size}.gin'
  trained, _ = COUNT.findall(head(file))[-1]
  of_language_models = ['runs/lm1b.gin'] if size == 'lmx' else []
  assert [trained, '0.0'] == millions([file, *of_language_models])


@pytest.mark.slow  # builds a model of each variant
@pytest.mark.parametrize('variant', names('variants'))
def test_parameters_in_the_head_of_a_variant(variant):
  """With sizes/base.gin and 512 positions in both stacks."""
  file = f'variants/{variant}.gin'
  text = head(file)
  trained, fixed = COUNT.findall(text)[-1]
  assert re.search(r'with\ssizes/base.gin\.$', text)
  assert [trained, fixed or '0.0'] == millions(['sizes/base.gin', file])


@pytest.mark.parametrize('run', names('runs'))
def test_command_in_the_head_of_a_run(run):
  """It names the file, and its files and settings make a configuration."""
  lines = re.findall(r'^  +(.*)', head(f'runs/{run}.gin'), re.M)
  program, command, *words = shlex.split(' '.join(lines).replace('\\', ''))
  if program == 't5_mesh_transformer':  # of a file for this command only
    words.append(command)
    command = 'transformer'
  else:
    assert program == 'synth-mtf'
  if command == 'demo':
    assert run.startswith('demo_')
    return
  assert command == 'transformer'
  flags = [word.removeprefix('--').partition('=') for word in words]
  files = [value for name, _, value in flags if name == 'gin_file']
  settings = [value for name, _, value in flags if name == 'gin_param']
  assert f'runs/{run}.gin' in files
  gin_files.parse(files, settings)


@pytest.mark.slow  # trains
def test_folders_in_the_working_folder_do_not_disturb(tmp_path, monkeypatch):
  """They have names of ours and of T5's."""
  for folder in (*FOLDERS, 'models', 'gin', 'mine'):
    (tmp_path / folder).mkdir()
  (tmp_path / 'runs' / 'notes.txt').write_text('Nothing to read.')
  (tmp_path / 'mine' / 'short.gin').write_text(
    "include 'runs/pretrain_text.gin'\nutils.run.train_steps = 1\n"
  )
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)
  t5_main.synth_mtf_transformer(
    '--model_dir=trained',
    f'--data_dir={official_files.write_text(tmp_path / "data")}',
    '--vocabulary=bytes',
    *t5_main.REPEATABLE,
    '--gin_file=mine/short.gin',
    '--gin_param=utils.run.batch_size = 2',
  )
  assert (tmp_path / 'trained' / 'model.ckpt-1.index').exists()


def test_a_file_of_a_python_package_is_found(tmp_path, monkeypatch):
  """gin's own way to name files stays open."""
  package = tmp_path / 'some_package' / 'configs'
  package.mkdir(parents=True)
  for folder in (package, package.parent):
    (folder / '__init__.py').write_text('')
  (package / 'a.gin').write_text('d_model = 8\n')
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.chdir('/')
  gin_files.parse(['sizes/tiny.gin', 'some_package/configs/a.gin'])
  assert gin.query_parameter('%d_model') == 8


def test_parsing_again_forgets_what_was_there():
  gin_files.parse([], ['utils.run.train_steps = 3'])
  gin_files.parse([])
  settings = gin.get_bindings('utils.run', resolve_references=False)
  assert 'train_steps' not in settings
