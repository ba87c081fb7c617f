"""The answers that the package has; as a program, this writes them anew."""

import contextlib
import importlib
import io
import pathlib
import re
import sys
from unittest import mock

import gin
import pytest
import seqio

from synth_mtf.cli import needed, tasks, transformer
from synth_mtf.host import written
from synth_mtf.paths import gin_path
from synth_mtf.run import main, process
from synth_mtf.storage import remembered
from synth_mtf.tasks import inspection
from synth_mtf.tasks.files.source import TwoSources
from tests.cli.command import run


def listed():
  text = io.StringIO()
  with contextlib.redirect_stdout(text):
    status = tasks.print_tasks(None)
  return {'text': text.getvalue(), 'status': status}


def names():
  return sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()})


def files():
  """The files of our tasks by split, and the tasks of our mixtures."""
  tasks, mixtures = {}, {}
  for name in inspection.names(seqio.TaskRegistry):
    source = seqio.TaskRegistry.get(name).source
    if isinstance(source, TwoSources):
      tasks[name] = {
        name: {'patterns': split.patterns, 'optional': split.optional}
        for name, split in source.split_files.items()
      }
  for name in inspection.names(seqio.MixtureRegistry):
    subtasks = seqio.get_subtasks(seqio.MixtureRegistry.get(name))
    mixtures[name] = sorted(task.name for task in subtasks)
  return {'tasks': tasks, 'mixtures': mixtures}


def known_to_gin():
  from t5.models import mesh_transformer  # once torch is stood in for

  with gin.unlock_config():  # listing tasks locks it
    _import_modules_of_gin()
  ignored = mesh_transformer.DEPRECATED_GIN_REFERENCES
  return written.known_to_gin(sys.modules, ignored)


def _import_modules_of_gin():
  for file in pathlib.Path(gin_path()).rglob('*.gin'):
    for module in re.findall(r'^import (\S+)', file.read_text(), re.M):
      importlib.import_module(module)


ANSWERS = {
  'tasks': listed,
  'transformer': transformer.flags_help,
  'names': names,
  'flags': transformer.flag_names,
  needed.QUESTION: files,
  written.QUESTION: known_to_gin,
}
COMMANDS = {'tasks': ['tasks'], 'transformer': ['transformer', '--help']}
HINT = 'python -m tests.cli.shipped_test writes it anew'


@pytest.mark.parametrize('name', COMMANDS)
def test_an_answer_is_what_the_command_makes(name):
  made = ANSWERS[name]()
  assert remembered.get(name) == made, HINT
  text = made if name == 'transformer' else made['text']
  assert run(*COMMANDS[name]) == (0, text, '')


@pytest.mark.parametrize(
  ('name', 'one'), [('names', 'synth_glue_cola_v002'), ('flags', 'gin_file')]
)
def test_names_are_known(name, one):
  """Tests, and pytest, may have defined more."""
  known = remembered.get(name)
  assert one in known
  assert {*known} <= {*ANSWERS[name]()}, HINT


def test_files_are_known():
  """Tests may have registered more tasks."""
  known, made = remembered.get(needed.QUESTION), files()
  for kind in ('tasks', 'mixtures'):
    assert known[kind] == {x: made[kind][x] for x in known[kind]}, HINT
  listed_names = re.findall(
    r'^synth_\w+', remembered.get('tasks')['text'], re.M
  )
  assert {*listed_names} == {*known['tasks'], *known['mixtures']}, HINT


def test_what_gin_knows():
  """Tests, and pytest, may have imported more."""
  known, made = remembered.get(written.QUESTION), known_to_gin()
  assert {*known['modules']} <= {*made['modules']}, HINT
  assert known['ignored'] == made['ignored'], HINT
  functions = made['functions']
  assert known['functions'] == {x: functions[x] for x in known['functions']}
  ours = {x for x in functions if x.startswith('synth_mtf.')}
  assert ours <= {*known['functions']}, HINT


def test_every_task_and_mixture_that_is_listed_is_a_known_name():
  text = remembered.get('tasks')['text']
  listed_names = re.findall(r'^synth_\w+', text, re.MULTILINE)
  assert 'synth_en_mix' in listed_names
  assert {*listed_names} <= {*remembered.get('names')}


def test_flags_that_only_some_environments_have_are_left_to_t5(monkeypatch):
  start = mock.Mock(return_value=0)
  monkeypatch.setattr(main, 'run', start)
  monkeypatch.setenv('PYTHONHASHSEED', '0')
  words = ['--model_dir=a', '--tfhub_cache_dir=b']
  assert run('transformer', *words) == (0, '', '')
  start.assert_called_once_with(words)


@pytest.mark.parametrize('name', COMMANDS)
def test_other_versions_of_the_host_make_their_own(name, monkeypatch):
  monkeypatch.setattr(remembered, '_HOST', ('numpy',))
  assert remembered.get(name) is None
  made = ANSWERS[name]()
  text = made if name == 'transformer' else made['text']
  assert run(*COMMANDS[name])[:2] == (0, text)


if __name__ == '__main__':
  process.load_quietly()
  main.prepare()  # it defines what gin configures, which listing tasks locks
  for question, make in ANSWERS.items():
    remembered.ship(question, make())
