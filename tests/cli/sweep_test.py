"""The scripts in examples/."""

import os
import re
import signal
import subprocess
import time

import pytest

from tests import official_files
from tests.checkout import CHECKOUT

SWEEP = CHECKOUT / 'examples' / 'sweep.sh'
ARRAY = CHECKOUT / 'examples' / 'array.sh'


@pytest.mark.slow  # trains
def test_a_killed_sweep_continues_and_ends_with_one_table(tmp_path, programs):
  data = tmp_path / 'data'
  official_files.write_samples(data)
  official_files.write_text(data, 200)
  small = {
    'BATCH': '2',
    'DATA': str(data),
    'FINETUNE_STEPS': '2',
    'MIXTURE': 'synth_glue_rte_v002',
    'OUT': str(tmp_path / 'sweep'),
    'PRETRAIN_STEPS': '2',
    'SEEDS': '0 1',
    'VARIANTS': 'random',
    'VOCABULARY': 'bytes',
  }
  path = f'{programs}:{os.environ["PATH"]}'
  environment = {**os.environ, **small, 'PATH': path}
  runs = tmp_path / 'sweep' / 'tiny' / 'random'
  first = runs / 'seed_0' / 'finished'
  with subprocess.Popen(
    [SWEEP], env=environment, start_new_session=True, stdout=subprocess.DEVNULL
  ) as process:
    deadline = time.monotonic() + 1500
    while not first.exists() and process.poll() is None:
      assert time.monotonic() < deadline
      time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
  before = {path: path.stat().st_mtime_ns for path in first.parent.rglob('*')}

  output = subprocess.run(
    [SWEEP], env=environment, check=True, capture_output=True, text=True
  ).stdout

  assert (runs / 'seed_1' / 'finished').exists()
  assert {p: p.stat().st_mtime_ns for p in first.parent.rglob('*')} == before
  assert re.search(r'^\| Syn \(R\) +\| +\d+\.\d', output, re.M)
  assert 'over 2 runs' in output


def test_the_tasks_of_the_array_are_all_variants_and_seeds():
  script = ARRAY.read_text(encoding='utf-8')
  last = int(re.findall(r'--array=0-(\d+)', script)[0])
  script = script.replace('exec examples/run.sh', 'echo')
  runs = [
    subprocess.run(
      ['sh', '-c', script],
      env={**os.environ, 'SLURM_ARRAY_TASK_ID': str(task)},
      check=True,
      capture_output=True,
      text=True,
    ).stdout
    for task in range(last + 1)
  ]
  assert sorted(runs) == sorted(
    f'base {variant} {seed}\n'
    for variant in ('vanilla', 'random', 'random_vanilla')
    for seed in (0, 1, 2)
  )
