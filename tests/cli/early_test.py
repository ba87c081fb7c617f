"""What can be refused without TensorFlow is refused before its import."""

import json
import subprocess
import sys

import pytest

from tests.checkout import CHECKOUT

# Runs the command as if installed, then shows whether it imported TensorFlow.
SCRIPT = """
import json, sys
words = json.loads(sys.argv.pop())
sys.argv = ['synth-mtf', *words]
from synth_mtf import cli
status = cli.main(words)
print(status, 'tensorflow' in sys.modules)
"""


@pytest.mark.parametrize(
  'command, fault',
  [
    ('table nosuch', 'nosuch does not exist'),
    ('table README.md', 'README.md is a file; expected a model folder'),
    ('plot README.md --out my_figures', 'README.md is a file'),
    ('tasks --data_dir=nosuch', 'data folder nosuch does not exist'),
    ('doctor --data_dir=nosuch', 'data folder nosuch does not exist'),
    ('demo --data_dir=nosuch', 'data folder nosuch does not exist'),
    (
      'vocabulary --data_dir=nosuch --out=v',
      'data folder nosuch does not exist',
    ),
    ('tasks --task_file=a.yaml', 'task file a.yaml does not exist'),
    ('transformer --task_file=a.yaml', 'task file a.yaml does not exist'),
    ('transformer --data_dir=nosuch', 'data folder nosuch does not exist'),
    (
      'transformer --gin_file=sizes/tiny.gin --gin_file=sizes/tinny.gin',
      "gin file 'sizes/tinny.gin' does not exist; did you mean",
    ),
  ],
)
def test_refused_early(command, fault):
  process = subprocess.run(
    [sys.executable, '-c', SCRIPT, json.dumps(command.split())],
    capture_output=True,
    check=True,
    cwd=CHECKOUT,
    text=True,
  )
  assert process.stdout == '2 False\n'
  assert process.stderr.startswith(f'synth-mtf: error: {fault}')
