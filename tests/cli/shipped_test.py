"""The shipped texts of commands; as a program, this writes them anew."""

import contextlib
import io
from unittest import mock

import pytest
import seqio

from synth_mtf.cli import shipped, tasks, transformer
from synth_mtf.run import main, process
from tests.cli.command import run


def listed():
  text = io.StringIO()
  with contextlib.redirect_stdout(text):
    assert tasks.print_tasks(None) == 0
  return text.getvalue()


def names():
  return '\n'.join(
    sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()})
  )


TEXTS = {
  'tasks': listed,
  'transformer': transformer.flags_help,
  'names': names,
  'flags': transformer.flag_names,
}
COMMANDS = {'tasks': ['tasks'], 'transformer': ['transformer', '--help']}
HINT = 'python -m tests.cli.shipped_test writes it anew'


@pytest.mark.parametrize('name', COMMANDS)
def test_a_text_is_what_the_command_makes(name):
  made = TEXTS[name]()
  assert shipped.text(name) == made, HINT
  assert run(*COMMANDS[name]) == (0, made, '')


@pytest.mark.parametrize(
  ('name', 'one'), [('names', 'synth_glue_cola_v002'), ('flags', 'gin_file')]
)
def test_names_are_known(name, one):
  """Tests, and pytest, may have defined more."""
  known = (shipped.text(name) or '').split()
  assert one in known
  assert {*known} <= {*TEXTS[name]().split()}, HINT


def test_flags_that_only_some_environments_have_are_left_to_t5(monkeypatch):
  start = mock.Mock(return_value=0)
  monkeypatch.setattr(main, 'run', start)
  monkeypatch.setenv('PYTHONHASHSEED', '0')
  words = ['--model_dir=a', '--tfhub_cache_dir=b']
  assert run('transformer', *words) == (0, '', '')
  start.assert_called_once_with(words)


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    ('transformer', 'no flags are given: a run needs at least a folder'),
    (
      'transformer --gin_fil=a',
      "there is no flag --gin_fil; did you mean 'gin",
    ),
    ('tasks synth_glue_cola', "did you mean 'synth_glue_cola_v002'"),
    ('cache --task=glue_cola --out=a', "did you mean 'synth_glue_cola_v002'"),
    ('vocabulary --out=a', '--out a; expected a local name, ending in .model'),
    ('vocabulary --out=a.model', 'give the text: --data_dir, --task_file'),
    ('report {folder}', 'holds no run'),
    ('replay {folder}', 'holds no run'),
    ('attention {folder} --text=a', 'holds no run'),
    ('demo --out={file}', 'is not a folder'),
    ('tasks --data_dir={file}', 'is a file; expected a folder'),
  ],
)
def test_mistakes_are_found_before_tensorflow_is_loaded(
  words, message, tmp_path, monkeypatch
):
  (tmp_path / 'file').touch()
  (tmp_path / 'folder').mkdir()
  load = mock.Mock(side_effect=AssertionError)
  monkeypatch.setattr(process, 'load_quietly', load)
  monkeypatch.setattr(main, 'run', load)
  words = words.format(folder=tmp_path / 'folder', file=tmp_path / 'file')
  status, _, err = run(*words.split())
  assert status == 2
  assert message in err and err.startswith('synth-mtf: error: ')


@pytest.mark.parametrize('name', COMMANDS)
def test_other_versions_of_the_host_make_their_own(name, monkeypatch):
  monkeypatch.setattr(shipped, '_HOST', ('numpy',))
  assert shipped.text(name) is None
  assert run(*COMMANDS[name])[:2] == (0, TEXTS[name]())


if __name__ == '__main__':
  process.load_quietly()
  main.prepare()  # it defines what gin configures, which listing tasks locks
  for text_name, make in TEXTS.items():
    shipped.write(text_name, make())
