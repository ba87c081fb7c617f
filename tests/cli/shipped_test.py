"""The shipped texts of commands; as a program, this writes them anew."""

import contextlib
import io

import pytest
import seqio

from synth_mtf.cli import shipped, tasks, transformer
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
}
COMMANDS = {'tasks': ['tasks'], 'transformer': ['transformer', '--help']}


@pytest.mark.parametrize('name', TEXTS)
def test_a_text_is_what_the_command_makes(name):
  hint = 'python -m tests.cli.shipped_test'
  made = TEXTS[name]()
  if name == 'names':  # tests may have registered more
    known = (shipped.text(name) or '').split()
    assert {*known} <= {*made.split()}, hint
    assert {'synth_glue_cola_v002', 'glue_cola_v002'} <= {*known}
    return
  assert shipped.text(name) == made, hint
  assert run(*COMMANDS[name]) == (0, made, '')


@pytest.mark.parametrize('name', COMMANDS)
def test_other_versions_of_the_host_make_their_own(name, monkeypatch):
  monkeypatch.setattr(shipped, '_HOST', ('numpy',))
  assert shipped.text(name) is None
  assert run(*COMMANDS[name])[:2] == (0, TEXTS[name]())


if __name__ == '__main__':
  from synth_mtf.run import process

  process.load_quietly()
  for text_name, make in TEXTS.items():
    shipped.write(text_name, make())
