"""From pretraining to scores of all of en_mix, on a device of JAX."""

import numpy as np
import pytest
import seqio
import tensorflow.compat.v1 as tf

from synth_mtf.results import records
from tests.cli import t5_main

SMALL = (
  'num_layers = 1',
  "utils.run.sequence_length = {'inputs': 64, 'targets': 16}",
  "utils.run.mesh_shape = 'batch:1'",
  'utils.run.batch_size = 8',
  'utils.run.save_checkpoints_steps = 2',
)
EVALUATED = 8  # examples of each task


@pytest.mark.slow  # trains
@pytest.mark.xla
def test_pretrain_finetune_evaluate(tmp_path, real_data, monkeypatch):
  def run(name, folder, *bindings):
    assert not t5_main.synth_mtf_transformer(
      '--device=cpu',
      f'--model_dir={tmp_path / folder}',
      f'--data_dir={real_data}',
      '--vocabulary=bytes',
      '--gin_file=sizes/tiny.gin',
      '--gin_file=variants/random_vanilla.gin',
      f'--gin_file=runs/{name}.gin',
      *(f'--gin_param={binding}' for binding in (*SMALL, *bindings)),
    )

  run('pretrain_text', 'pretrained', 'utils.run.train_steps = 2')
  start = f'{tmp_path / "pretrained"}/model.ckpt-2'
  run(
    'finetune_en_mix',
    'finetuned',
    f'utils.run.init_checkpoint = {start!r}',
    'utils.run.train_steps = 4',
  )
  before, after = (
    tf.train.load_checkpoint(path)
    for path in (start, f'{tmp_path / "finetuned"}/model.ckpt-4')
  )
  frozen = 'shared/embedding'  # while en_mix is finetuned
  weight = 'encoder/block_000/layer_000/SyntheticAttention/random/R'
  for name, moves in ((frozen, False), (weight, True)):
    moved = np.any(before.get_tensor(name) != after.get_tensor(name))
    assert moved == moves, name
  run(
    'eval_en_mix',
    'finetuned',
    f'mesh_eval_dataset_fn.num_eval_examples = {EVALUATED}',
    'Bitransformer.decode.max_decode_length = 4',
    'utils.run.eval_checkpoint_step = -1',
  )
  found = records.read(str(tmp_path / 'finetuned' / 'validation_eval'))
  tasks = {each.task for each, _ in found}
  mixture = seqio.get_mixture_or_task('synth_en_mix')
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(real_data))  # it has the splits
  assert tasks == {t.name for t in mixture.tasks if 'validation' in t.splits}
