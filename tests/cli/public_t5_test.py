"""From a public T5 to en_mix, as docs/migration.md has it.

T5's own bucket is closed, and `git clone` brings a made-up T5, smaller than the
real one.
"""

import json
import os
import shlex

import numpy as np
import pytest

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.host import gin_files, model as models
from synth_mtf.huggingface import layout
from tests import made_up_gcs, official_files, sentencepieces
from tests.checkout import CHECKOUT, run
from tests.cli.command import PROGRAM
from tests.readme_test import BLOCK

safetensors = pytest.importorskip('safetensors.numpy')
pytestmark = [pytest.mark.slow, made_up_gcs.needs_openssl]  # trains

ROWS = 256  # of the embedding: the pieces, T5's 100 sentinels, and some more
SIZE = {'d_ff': 20, 'd_kv': 8, 'd_model': 24, 'num_heads': 3, 'num_layers': 1}
BINDINGS = [f'{name} = {value}' for name, value in SIZE.items()]
SHORT = (
  'utils.run.batch_size = 2',
  'utils.run.train_steps = 2',
  "utils.run.sequence_length = {'inputs': 64, 'targets': 16}",
)
TABLE = 'encoder/block_000/layer_000/SyntheticAttention/random/R'


def commands():
  """The commands of docs/migration.md that this file runs."""
  text = (CHECKOUT / 'docs' / 'migration.md').read_text(encoding='utf-8')
  (block,) = (
    match
    for match in BLOCK.finditer(text)
    if (match['text'] or '').endswith('public_t5_test.py')
  )
  lines = block['body'].replace('\\\n', ' ').splitlines()
  return [line.removeprefix('$ ') for line in lines]


def write_t5(folder):
  """Writes a T5 as `save_pretrained` does, with its vocabulary."""
  folder.mkdir()
  gin_files.parse(['sizes/base.gin'], BINDINGS)
  rng = np.random.RandomState(3)
  weights = {}
  for name, variable in models.build(ROWS).variables.items():
    value = rng.standard_normal(variable.shape.as_list()).astype(np.float32)
    weights[layout.name_of(name)] = layout.weight_of(name, value)
  safetensors.save_file(weights, folder / 'model.safetensors')
  config = {'model_type': 't5', 'vocab_size': ROWS, **SIZE}
  (folder / 'config.json').write_text(json.dumps(config))
  corpus = official_files.write_text(folder / 'data', 200)
  sentencepieces.train(folder / 'spiece.model', corpus / 'corpus/text.txt')
  return weights


def program(path, body):
  path.parent.mkdir(exist_ok=True)
  path.write_text(f'#!/bin/sh\n{body}\n')
  path.chmod(0o755)


@pytest.fixture
def closed_bucket(tmp_path):
  """The variables of processes for which T5's bucket is closed."""
  with made_up_gcs.running(
    tmp_path, lambda _: made_up_gcs.refused(403)
  ) as them:
    yield them


def test_the_way_around_the_closed_bucket(tmp_path, closed_bucket):
  weights = write_t5(tmp_path / 't5-base')
  official_files.write_samples(tmp_path / 'my_data')
  bin_ = tmp_path / 'bin'
  program(bin_ / 'git', f'[ "$1" = clone ] && cp -r {tmp_path}/t5-base "$3"')
  environment = {
    **os.environ,
    **closed_bucket,
    'PATH': f'{bin_}:{os.path.dirname(PROGRAM)}:{os.environ["PATH"]}',
    'PYTHONPATH': str(CHECKOUT),
  }

  def do(line, check=True):
    words = shlex.split(line)
    if words[0] == 'synth-mtf':
      words += [f'--gin_param={binding}' for binding in BINDINGS]
    if 'transformer' in words:
      words += [f'--gin_param={binding}' for binding in SHORT]
    return run(*words, cwd=tmp_path, env=environment, check=check)

  *before, finetune = commands()
  for line in before:
    do(line)
  start = Checkpoint(str(tmp_path / 'start/model.ckpt-0'))
  np.testing.assert_array_equal(
    start['shared/embedding'], weights['shared.weight']
  )
  assert not np.any(start[TABLE])

  # Without --vocabulary, it is the one in the bucket.
  vocabulary = '--vocabulary=my_t5_base/spiece.model'
  closed = do(finetune.replace(vocabulary, ''), check=False)
  assert closed.returncode == 2, closed.stderr
  assert "T5's own vocabulary gs://t5-data/vocabs/cc_all" in closed.stderr
  assert '403' in closed.stderr and 'FOLDER/spiece.model' in closed.stderr
  assert not (tmp_path / 'my_runs').exists()  # TensorFlow did not ask

  do(finetune)
  trained = Checkpoint(str(tmp_path / 'my_runs/rv_en_mix/model.ckpt-2'))
  np.testing.assert_array_equal(  # frozen while en_mix is finetuned
    trained['shared/embedding'], weights['shared.weight']
  )
  assert np.any(trained[TABLE])

  weights_of_t5 = 'gs://t5-data/pretrained_models/base'
  closed = do(
    f'synth-mtf checkpoint convert {weights_of_t5} never '
    '--gin_file=sizes/base.gin',
    check=False,
  )
  assert closed.returncode == 2, closed.stderr
  assert f'{weights_of_t5} cannot be read' in closed.stderr
  assert 'checkpoint import --from=hf' in closed.stderr
