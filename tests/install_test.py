"""What a reader meets first: the wrong Python, the checkout, the order."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests import readme_test
from tests.checkout import CHECKOUT

pytestmark = pytest.mark.slow  # starts processes

NAME = re.compile(r'\bmy_(?:runs/)?[A-Za-z]\w*(?:\.\w+)?')


def python(code, **options):
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  return subprocess.run(
    [sys.executable, '-c', code],
    env={**environment, 'TF_CPP_MIN_LOG_LEVEL': '3'},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
    **options,
  )


@pytest.mark.parametrize('version', ['(3, 12, 1)', '(3, 8, 18)', '(4, 0, 0)'])
def test_a_wrong_python_is_one_line_for_pip(version):
  done = python(
    f'import sys; sys.version_info = {version}; import build_backend',
    cwd=CHECKOUT,
  )
  assert done.returncode == 1
  assert done.stderr.count('\n') == 1
  assert done.stderr.startswith('synth_mtf needs Python 3.9, 3.10 or 3.11')


def test_a_right_python_builds_with_setuptools():
  done = python(
    'import build_backend as b; print(b.build_wheel, b.build_editable)',
    cwd=CHECKOUT,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.count('setuptools.build_meta') == 2


def test_the_checkout_that_shadows_an_installation_is_whole(tmp_path):
  """A process that starts in its root imports it, as a fork server does."""
  done = python(
    'import synth_mtf, synth_mtf.tasks, seqio\n'
    'from synth_mtf.host import gin_files\n'
    'print(synth_mtf.__file__)\n'
    'gin_files.parse(["sizes/tiny.gin", "variants/random.gin"])\n'
    'print("synth_en_mix" in seqio.MixtureRegistry.names())\n',
    cwd=CHECKOUT,
  )
  assert done.returncode == 0, done.stderr
  package, has_mixture = done.stdout.splitlines()
  assert pathlib.Path(package) == CHECKOUT / 'synth_mtf' / '__init__.py'
  assert has_mixture == 'True'


def made_by(command) -> set[str]:
  """The names that a command of the README makes."""
  made = set(re.findall(r'> (my_\S+)$', command))
  for flag in (
    '--out[= ]',
    "(?:output|scores)_filename = '",
    "export_path = '",
    'cache_dir=',
  ):
    made |= set(re.findall(rf"{flag}(\S+?)(?=['\s]|$)", command))
  made |= set(re.findall(r'^cp -r \S+ (\S+)', command))
  if re.search(r'gin_file=runs/(pretrain|finetune)', command):
    made |= set(re.findall(r'--model_dir=(\S+)', command))
  if 'checkpoint convert' in command:
    made |= set(re.findall(r'convert \S+ (\S+)', command))
  return made


def test_a_reader_has_made_what_commands_name():
  """But for the data, which are a reader's own, or the demo's."""
  made = {'my_data'}
  commands = [
    (block.where, command)
    for block in readme_test.BLOCKS
    if block.where.startswith(('README', 'docs/tutorial', 'docs/variants'))
    for command in block.commands
  ]
  assert len(commands) > 15
  for where, command in commands:
    new = made_by(command)
    missing = set(NAME.findall(command)) - made - new
    assert not missing, f'{where}: {command} names {missing}'
    made |= new
