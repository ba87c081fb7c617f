"""How `synth-mtf attention`, `plot` and `report` choose a text."""

import argparse

import pytest

from synth_mtf.cli import attention
from synth_mtf.errors import UserError
from tests.attention.examples_test import BYTES

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


def test_a_task_of_a_module(tmp_path, monkeypatch):
  (tmp_path / 'module_with_a_task.py').write_text(MODULE)
  monkeypatch.syspath_prepend(tmp_path)
  task = '--task=task_of_a_module'
  with pytest.raises(UserError, match='unknown task or mixture'):
    chosen(task)
  found = chosen(task, '--module_import=module_with_a_task')
  assert found.texts['encoder'] == ['a bird']
  with pytest.raises(UserError, match="No module named 'nosuch'.*PYTHONPATH"):
    chosen(task, '--module_import=nosuch')
