"""A run refuses the checkpoints of another vocabulary, before it starts."""

import json

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import vocabulary as vocabulary_check
from synth_mtf.errors import UserError
from synth_mtf.tasks import vocabulary
from tests import official_files
from tests.cli import t5_main

BYTES = vocabulary.load('bytes')  # 359 pieces, 384 rows
TEXTS = {'a': 'a bird sang', 'b': 'my dog dug'}


def train(name, path):
  vocabulary.train([f'{TEXTS[name]} {i}' for i in range(99)], path, 26)


def save(folder, rows):
  """Writes a checkpoint of nothing but an embedding."""
  folder.mkdir(exist_ok=True)
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable('shared/embedding', [rows, 4])
    session.run(tf.global_variables_initializer())
    return tf.train.Saver().save(session, str(folder / 'model.ckpt-2'))


@pytest.fixture(scope='module')
def models(tmp_path_factory):
  """Two vocabularies of one size."""
  folder = tmp_path_factory.mktemp('models')
  for name in TEXTS:
    train(name, folder / name)
  return folder / 'a', folder / 'b'


def test_other_sizes(tmp_path):
  vocabulary_check.check(BYTES, save(tmp_path / 'same', 384))
  with pytest.raises(UserError) as error:
    vocabulary_check.check(BYTES, save(tmp_path / 'other', 32_128))
  for part in ('32128 rows', "'ByteVocabulary' of 359", '384', '--vocabulary'):
    assert part in str(error.value)


def test_other_pieces_of_the_same_size(models, tmp_path):
  first, second = (vocabulary.load(str(model)) for model in models)
  assert first.vocab_size == second.vocab_size
  checkpoint, folder = save(tmp_path, 128), str(tmp_path)
  assert vocabulary_check.recorded_name(folder) is None
  vocabulary_check.check(second, checkpoint)  # nothing is known
  vocabulary_check.record(first, folder)
  vocabulary_check.record(second, folder)  # stays what it was
  assert vocabulary_check.recorded_name(folder) == str(models[0])
  again = tmp_path / 'again'
  train('a', again)
  for same in (first, (first, first), vocabulary.load(str(again))):
    vocabulary_check.check(same, checkpoint)
  with pytest.raises(UserError, match='has other pieces') as error:
    vocabulary_check.check((second, second), checkpoint)
  for model in models:
    assert str(model) in str(error.value)


def test_runs_refuse_them(models, tmp_path):
  official_files.write_text(tmp_path / 'data')
  trained = tmp_path / 'trained'
  checkpoint = save(trained, 128)

  def refused(match, model):
    start = f"--gin_param=utils.run.init_checkpoint = '{checkpoint}'"
    for folder, *words in ((trained,), (tmp_path / 'new', start)):
      with pytest.raises(UserError, match=match):
        t5_main.synth_mtf_transformer(
          f'--model_dir={folder}',
          f'--data_dir={tmp_path / "data"}',
          f'--vocabulary={model}',
          '--gin_file=sizes/tiny.gin',
          '--gin_file=variants/random_vanilla.gin',
          '--gin_file=runs/pretrain_text.gin',
          '--gin_file=runs/cpu.gin',
          *words,
        )

  refused('128 rows.*of 359.*384', 'bytes')
  vocabulary_check.record(vocabulary.load(str(models[0])), str(trained))
  written = json.loads((trained / vocabulary_check.FILE).read_text())
  assert written['targets']['name'] == str(models[0])
  refused('has other pieces', models[1])
  assert not (tmp_path / 'new' / vocabulary_check.FILE).exists()
