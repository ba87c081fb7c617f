"""Adds the worked example of CONTRIBUTING.md to a copy and tests it."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # starts processes

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
# A file that the example writes or changes, and the code.
STEP = re.compile(
  r'^`(?P<file>\S+)`(?:, in `(?P<table>\w+)`)?:\n\n'
  r'```\w+\n(?P<code>.*?)^```$',
  re.M | re.S,
)
# The tests of every variant and every member of the family.
TESTS = (
  'tests/registry_test.py',
  'tests/host/gin_files_test.py',
  'tests/layer/attention_test.py',
  'tests/synthesizers/base_test.py',
)


@pytest.fixture(scope='module')
def changed(tmp_path_factory) -> tuple[pathlib.Path, list[str]]:
  """A copy of the checkout after the three steps, and the changed files."""
  copy = tmp_path_factory.mktemp('example') / 'checkout'
  for folder in ('synth_mtf', 'gin', 'tasks', 'tests'):
    shutil.copytree(
      CHECKOUT / folder,
      copy / folder,
      symlinks=True,
      ignore=shutil.ignore_patterns('__pycache__'),
    )
  shutil.copy(CHECKOUT / 'pyproject.toml', copy)
  text = (CHECKOUT / 'CONTRIBUTING.md').read_text(encoding='utf-8')
  steps = list(STEP.finditer(text))
  for step in steps:
    file = copy / step['file']
    if step['table']:
      table = f'\n{step["table"]} = {{\n'
      whole = file.read_text(encoding='utf-8')
      assert whole.count(table) == 1
      file.write_text(whole.replace(table, table + step['code']))
    else:
      assert not file.exists()
      file.write_text(step['code'])
  return copy, [step['file'] for step in steps]


def run(folder: pathlib.Path, *words: str) -> str:
  """Runs a Python module in a folder, and returns its output."""
  done = subprocess.run(
    [sys.executable, '-m', *words],
    cwd=folder,
    env={**os.environ, 'PYTHONPATH': str(folder)},
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
  return done.stdout


def test_it_is_three_steps(changed):
  _, files = changed
  assert [pathlib.Path(file).parts[:2] for file in files] == [
    ('synth_mtf', 'synthesizers'),
    ('gin', 'variants'),
    ('tests', 'family.py'),
  ]


def test_it_passes_what_every_function_must_pass(changed):
  folder, files = changed
  (name,) = {pathlib.Path(file).stem for file in files} - {'family'}
  report = run(
    folder, 'pytest', '-q', '-p', 'no:cacheprovider', '-k', name, *TESTS
  )
  (passed,) = re.findall(r'(\d+) passed', report)
  assert int(passed) >= 15
  assert 'skipped' not in report


def test_it_passes_the_linter(changed):
  folder, files = changed
  python = [file for file in files if file.endswith('.py')]
  run(folder, 'ruff', 'check', '--no-cache', *python)
  run(folder, 'ruff', 'format', '--no-cache', '--check', *python)
