"""How `synth-mtf attention`, `plot` and `report` choose a text."""

import argparse
import sys

import pytest
import seqio

from synth_mtf import cli
from synth_mtf.cli import attention
from synth_mtf.errors import UserError
from synth_mtf.host import user_modules
from tests.attention.examples_test import BYTES
from tests.results import made_runs

MODULE = """
import seqio
import tensorflow as tf

from synth_mtf.tasks import vocabulary

def rows(split, shuffle_files=False, seed=None):
  return tf.data.Dataset.from_tensors({'inputs': 'a bird', 'targets': 'sang'})

seqio.TaskRegistry.add(
  'task_of_a_module',
  source=seqio.FunctionDataSource(rows, splits=['validation']),
  preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
  output_features=dict.fromkeys(
    ['inputs', 'targets'], seqio.Feature(vocabulary.load('bytes'))
  ),
)
"""


def chosen(*words):
  parser = argparse.ArgumentParser()
  attention.add_text_arguments(parser)
  return attention.chosen(parser.parse_args(words), BYTES)


def test_a_task_of_a_module(tmp_path, monkeypatch, request):
  (tmp_path / 'module_with_a_task.py').write_text(MODULE)
  (tmp_path / 'module_that_fails.py').write_text('1 / 0')
  (tmp_path / 'module_that_ends.py').write_text('raise SystemExit(3)')
  monkeypatch.syspath_prepend(tmp_path)
  task = '--task=task_of_a_module'
  with pytest.raises(UserError, match='unknown task or mixture'):
    chosen(task)
  user_modules.import_all(['module_with_a_task'])
  request.addfinalizer(lambda: seqio.TaskRegistry.remove('task_of_a_module'))
  assert chosen(task).texts['encoder'] == ['a bird']
  for module, message in (
    ('nosuch', "No module named 'nosuch'.*PYTHONPATH"),
    ('module_that_fails', 'ZeroDivisionError: division by zero.*which fails'),
    ('module_that_ends', "SystemExit: 3. .*below `if __name__ == '__main__"),
    ('folder/mine.py', 'with PYTHONPATH=folder, give --module_import=mine'),
    ('', 'ValueError: Empty module name'),
    ('.relative', 'TypeError: .*PYTHONPATH'),
  ):
    with pytest.raises(
      UserError, match=f'--module_import {module}: .*{message}'
    ):
      user_modules.import_all([module])


def test_a_module_in_the_working_folder(tmp_path, monkeypatch):
  (tmp_path / 'my_layers.py').write_text('')
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [p for p in sys.path if p])
  with pytest.raises(UserError, match='working folder, set PYTHONPATH=.'):
    user_modules.import_all(['my_layers'])


def test_each_command_imports_modules(tmp_path, capfd):
  """Before it opens the run, whose vocabulary may be that of the module."""
  made_runs.trained(tmp_path / 'run')
  for words in (
    f'attention {tmp_path}/run --out {tmp_path}/a.npz',
    f'plot {tmp_path}/run --out {tmp_path} --text a',
    f'report {tmp_path}/run --out {tmp_path}/r.html --text a',
    f'table {tmp_path}/run',
    'cost --size=tiny --variants=random',
    f'checkpoint export --to=hf {tmp_path}/run {tmp_path}/b',
    f'checkpoint convert {tmp_path}/run {tmp_path}/c --gin_file=sizes/tiny.gin',
    f'predict {tmp_path}/run a',
  ):
    assert cli.main([*words.split(), '--module_import=nosuch']) == 2
    assert "No module named 'nosuch'" in capfd.readouterr().err
