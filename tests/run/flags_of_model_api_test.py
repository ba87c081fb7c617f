"""Flags that T5's main reads only for its Model API are not ignored."""

import ast
import inspect

import gin
import pytest
from absl import flags
from absl.testing import flagsaver
from t5.models import mesh_transformer_main

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.run import flags_of_model_api
from tests import checkout
from tests.cli import t5_main
from tests.cli.command import PROGRAM


def flags_in(tree) -> set[str]:
  return {
    node.attr
    for node in ast.walk(tree)
    if isinstance(node, ast.Attribute)
    and isinstance(node.value, ast.Name)
    and node.value.id == 'FLAGS'
  }


def test_all_of_them_are_known():
  """Those that T5's main reads only if `use_model_api`, and `mode`."""
  main = ast.parse(inspect.getsource(mesh_transformer_main.main)).body[0]
  (choice,) = [
    node
    for node in ast.walk(main)
    if isinstance(node, ast.If)
    and isinstance(node.test, ast.Attribute)
    and node.test.attr == 'use_model_api'
  ]
  of_api = set().union(*map(flags_in, choice.body))
  choice.body = []
  only_of_api = of_api - flags_in(main) | {'mode'}
  assert only_of_api == flags_of_model_api.BINDINGS.keys()


@pytest.mark.parametrize('name', flags_of_model_api.BINDINGS)
def test_the_bindings_exist(name):
  binding = flags_of_model_api.BINDINGS[name].format(1)
  gin_files.parse(['infer.gin', 'score_from_file.gin'], [])
  macros = dict(gin_files.bindings(gin.config_str()))
  gin_files.parse([], [binding])  # refuses a name that gin does not know
  setting = binding.partition(' = ')[0]
  assert '.' in setting or setting in {*macros, 'MIXTURE_NAME'}


def test_they_are_refused_with_the_bindings(tmp_path):
  folder = tmp_path / 'run'
  with pytest.raises(UserError) as caught:
    t5_main.synth_mtf_transformer(
      f'--model_dir={folder}',
      *t5_main.REPEATABLE,
      '--train_steps=1000',  # the default, too, is not what the run has
      '--mode=finetune',
      '--checkpoint_mode=latest',
    )
  assert str(caught.value).splitlines()[1:] == [
    '--mode: give --gin_param="utils.run.mode = \'train\'"',
    '--train_steps: give --gin_param="utils.run.train_steps = 1000"',
    '--checkpoint_mode: give '
    '--gin_param="utils.run.eval_checkpoint_step = None"',
  ]
  assert not folder.exists()


@pytest.fixture
def check():
  """Checks flags of the Model API, as T5's main gets them."""
  with flagsaver.flagsaver():

    def run(mode, **paths):
      flags.FLAGS.mark_as_parsed()
      flags.FLAGS.use_model_api = True
      flags.FLAGS.mode = mode
      for name, path in paths.items():
        flags.FLAGS[name].value = str(path)
        flags.FLAGS[name].present = 1
      flags_of_model_api.check()

    yield run


@pytest.mark.parametrize(
  ('mode', 'flag', 'content', 'message'),
  [
    ('predict', 'input_file', None, '--input_file: .* cannot be read'),
    ('predict', 'input_file', ' \n\n', '--input_file .* is empty'),
    ('score', 'target_file', '\n', '--target_file .* is empty'),
    ('finetune', 'pretrained_model_dir', None, 'does not exist; expected a'),
  ],
)
def test_paths_that_the_model_api_reads(
  check, tmp_path, mode, flag, content, message
):
  path = tmp_path / 'given'
  if content is not None:
    path.write_text(content)
  with pytest.raises(UserError, match=message):
    check(mode, **{flag: path})
  check('train', **{flag: path})  # which does not read it
  if flag == 'pretrained_model_dir':
    path.mkdir()
  else:
    path.write_text('a line\n')
  check(mode, **{flag: path})


@pytest.mark.parametrize(
  ('mode', 'flag', 'path'),
  [
    ('eval', 'eval_summary_dir', '/dev/null/a'),
    ('export_predict', 'export_dir', '/dev/null/a'),
    ('predict', 'output_file', '/dev/null/a/file'),
  ],
)
def test_paths_that_the_model_api_writes(check, tmp_path, mode, flag, path):
  with pytest.raises(UserError, match=f'^--{flag}: /dev/null/a cannot be'):
    check(mode, **{flag: path})
  check(mode, **{flag: tmp_path / 'new'})
  check('train', **{flag: path})


@pytest.mark.slow
def test_the_help_says_so():
  shown = checkout.run(PROGRAM, 'transformer', '--help').stdout
  assert '--train_steps' in shown.split('Only with --use_model_api')[1]
