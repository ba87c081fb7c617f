"""The commands of docs/tpu.md and the README that train on a TPU.

A folder is the bucket, eight parts of a CPU are the chips of a v5litepod-8, and
the model is small.
"""

import gzip
import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from tests import official_files, readme_test, sentencepieces
from tests.checkout import CHECKOUT

pytestmark = [pytest.mark.slow, pytest.mark.xla]  # processes that train

CODE = 'import sys; from synth_mtf import cli; sys.exit(cli.main())'
SMALL = (
  *('d_ff = 24', 'd_kv = 8', 'd_model = 24', 'num_heads = 3', 'num_layers = 1'),
  "utils.run.sequence_length = {'inputs': 32, 'targets': 32}",
  'utils.run.batch_size = 8',
)
OF_STAGE = {
  'pretrain_c4': ['utils.run.train_steps = 1'],
  'finetune_en_mix': ['utils.run.train_steps = 2'],
  'eval_en_mix': [
    'eval_checkpoint_step = -1',
    'mesh_eval_dataset_fn.num_eval_examples = 8',
    'Bitransformer.decode.max_decode_length = 4',
  ],
}


def commands(document):
  """The commands of a document that this file runs."""
  text = (CHECKOUT / document).read_text(encoding='utf-8')
  for block in readme_test.BLOCK.finditer(text):
    if block['text'] == f'tests/pjrt/{pathlib.Path(__file__).name}':
      body = block['body'].replace('\\\n', ' ')
      yield from (line.removeprefix('$ ') for line in body.splitlines())


@pytest.fixture
def bucket(tmp_path):
  """A folder with official files, a part of C4 and a vocabulary."""
  data = official_files.write_text(tmp_path / 'data')
  official_files.write_samples(data)
  lines = (data / 'corpus/text.txt').read_text().split('\n\n')
  text = json.dumps({'text': ' '.join(lines[:40])}) + '\n'
  (data / 'c4').mkdir()
  with gzip.open(data / 'c4/c4-train.00000-of-00001.json.gz', 'wt') as stream:
    stream.write(text * 20)
  sentencepieces.train(tmp_path / 'spiece.model', data / 'corpus/text.txt')
  return tmp_path


def run(line, bucket):
  """Runs a command on the devices that are here."""
  assert '--device=tpu' in line
  line = line.replace('--device=tpu', '--device=cpu')
  line = line.replace('$BUCKET', str(bucket)).replace('ckpt-524288', 'ckpt-1')
  _, *words = shlex.split(line)
  (stage,) = (name for name in OF_STAGE if f'runs/{name}.gin' in line)
  bindings = (*SMALL, *OF_STAGE[stage])
  done = subprocess.run(
    [
      *(sys.executable, '-c', CODE, *words),
      *(f'--gin_param={binding}' for binding in bindings),
    ],
    env={
      **os.environ,
      'PYTHONPATH': str(CHECKOUT),
      'XLA_FLAGS': '--xla_force_host_platform_device_count=8',
    },
    capture_output=True,
    text=True,
    timeout=1500,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]


def test_from_c4_to_scores(bucket):
  lines = [*commands('docs/tpu.md')]
  assert len(lines) == 3
  for line in lines:
    run(line, bucket)
  assert (bucket / 'rv/model.ckpt-1.index').exists()
  assert (bucket / 'rv_en_mix/model.ckpt-2.index').exists()
  assert [*bucket.glob('rv_en_mix/*/metrics.json')]


def test_the_readme(bucket):
  (line,) = commands('README.md')
  run(line, bucket)
  assert (bucket / 'rv/model.ckpt-1.index').exists()
