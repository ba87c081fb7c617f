"""Adds the worked example of CONTRIBUTING.md to a copy and tests it."""

import os
import pathlib
import re
import sys

import pytest

from tests import checkout
from tests.checkout import CHECKOUT

pytestmark = pytest.mark.slow  # starts processes

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


def run(folder, *words):
  environment = {**os.environ, 'PYTHONPATH': str(folder)}
  words = (sys.executable, '-m', *words)
  return checkout.run(*words, cwd=folder, env=environment).stdout


def test_three_steps_pass_the_tests_and_the_linter(tmp_path):
  copy = checkout.copy_to(tmp_path / 'checkout')
  text = (CHECKOUT / 'CONTRIBUTING.md').read_text(encoding='utf-8')
  steps = list(STEP.finditer(text))
  function, variant, table = (pathlib.Path(step['file']) for step in steps)
  assert function.parent == pathlib.Path('synth_mtf/synthesizers')
  assert variant.parent == pathlib.Path('gin/variants')
  assert table == pathlib.Path('tests/family.py')
  for step in steps:
    file = copy / step['file']
    assert file.exists() == bool(step['table'])
    code = step['code']
    if step['table']:
      start = f'\n{step["table"]} = {{\n'
      whole = file.read_text(encoding='utf-8')
      assert whole.count(start) == 1
      code = whole.replace(start, start + code)
    file.write_text(code)

  words = ('-q', '-p', 'no:cacheprovider', '-k', function.stem, *TESTS)
  report = run(copy, 'pytest', *words)
  (passed,) = re.findall(r'(\d+) passed', report)
  assert int(passed) >= 10
  assert 'skipped' not in report
  python = [str(function), str(table)]
  run(copy, 'ruff', 'check', '--no-cache', *python)
  run(copy, 'ruff', 'format', '--no-cache', '--check', *python)
