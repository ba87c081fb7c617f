"""Settings: three ways to give each, read when a task is used."""

import os
import subprocess
import sys

import gin
import pytest
import sentencepiece
import seqio
import tensorflow.compat.v1 as tf
from absl import flags

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings, vocabulary

_NAMES = list(tasks.Settings.__dataclass_fields__)


@pytest.fixture
def parsed_flags(monkeypatch):
  """A registry of flags of our own, as t5's main would have parsed it."""
  values = flags.FlagValues()
  monkeypatch.setattr(flags, 'FLAGS', values)

  def parse(*argv):
    tasks.define_flags()
    values(['program', *argv])

  return parse


def test_flag_wins_over_gin_and_gin_over_the_environment(
  monkeypatch, parsed_flags
):
  assert tasks.settings().data_dir is None
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', '/environment')
  assert tasks.settings().data_dir == '/environment'
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', '/gin')
  assert tasks.settings().data_dir == '/gin'
  parsed_flags('--data_dir=/flag')
  assert tasks.settings().data_dir == '/flag'


@pytest.mark.parametrize('name', _NAMES)
def test_each_setting_has_all_three_ways(name, monkeypatch, parsed_flags):
  def value():
    return getattr(tasks.settings(), name)

  text = {'skip_bad_rows': 'true', 'task_data_dirs': 'a=b'}.get(name, 'text')
  monkeypatch.delenv(f'SYNTH_MTF_{name.upper()}', raising=False)
  unset = value()
  monkeypatch.setenv(f'SYNTH_MTF_{name.upper()}', text)
  by_environment = value()
  assert by_environment != unset
  monkeypatch.delenv(f'SYNTH_MTF_{name.upper()}')
  with gin.unlock_config():
    in_gin = True if name == 'skip_bad_rows' else text
    gin.bind_parameter(f'synth_mtf.tasks.settings.{name}', in_gin)
  assert value() == by_environment
  gin.clear_config()
  parsed_flags(f'--{name}={text}')
  assert value() == by_environment


def test_folders_of_single_tasks():
  found = data_settings.settings(
    data_dir='/all', task_data_dirs='synth_c4*=tfds, synth_x=/x'
  )
  assert found.data_dir_of('synth_c4_span_corruption') is None
  assert found.data_dir_of('synth_x') == '/x'
  assert found.data_dir_of('synth_y') == '/all'


@pytest.mark.parametrize(
  'name,value,message',
  [
    ('SKIP_BAD_ROWS', 'maybe', "'maybe'; expected one of 1, true"),
    ('TASK_DATA_DIRS', 'x', "item 'x'; expected `task=folder`"),
  ],
)
def test_mistyped_setting_is_refused(name, value, message, monkeypatch):
  monkeypatch.setenv(f'SYNTH_MTF_{name}', value)
  with pytest.raises(UserError, match=message):
    tasks.settings()


def _train_model(folder) -> str:
  """Trains in a process of its own: TensorFlow's protobuf is another."""
  prefix = os.path.join(folder, 'pieces')
  subprocess.run(
    [
      sys.executable,
      '-c',
      'import sys, sentencepiece as s\n'
      's.SentencePieceTrainer.train(sentence_iterator=iter(sys.stdin),'
      'model_prefix=sys.argv[1], vocab_size=40, hard_vocab_limit=False,'
      'pad_id=int(sys.argv[2]), eos_id=1, unk_id=2 if sys.argv[2] == "0" else '
      '0, bos_id=-1)',
      prefix,
      '0',
    ],
    input='a cat sat on a mat\nthe dog ran\n' * 20,
    text=True,
    check=True,
    capture_output=True,
  )
  return f'{prefix}.model'


def test_local_model_is_used_as_it_is(tmp_path, monkeypatch):
  model = _train_model(tmp_path)
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', model)
  pieces = sentencepiece.SentencePieceProcessor(model_file=model)
  text = 'the cat ran on'
  assert tasks.VOCABULARY.encode(text) == pieces.encode(text)
  assert tasks.VOCABULARY.decode(pieces.encode(text)) == text
  assert tasks.VOCABULARY.vocab_size == pieces.get_piece_size() + 100
  assert tasks.VOCABULARY.eos_id == 1
  with tf.Graph().as_default(), tf.Session() as session:
    ids = session.run(tasks.VOCABULARY.encode_tf(tf.constant(text)))
    assert session.run(tasks.VOCABULARY.decode_tf(ids)) == text.encode()
  assert ids.tolist() == pieces.encode(text)


def test_bytes(monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'bytes')
  assert tasks.VOCABULARY.encode('ab') == [ord('a') + 3, ord('b') + 3]
  assert tasks.VOCABULARY.vocab_size == 3 + 256 + 100


def test_default_is_t5s_model_in_its_bucket(monkeypatch):
  monkeypatch.delenv('SYNTH_MTF_VOCABULARY')
  resolved = tasks.VOCABULARY.resolved
  assert isinstance(resolved, seqio.SentencePieceVocabulary)
  assert resolved.sentencepiece_model_file.startswith('gs://t5-data/vocabs/')


def test_all_tasks_share_a_vocabulary():
  vocabulary = tasks.VOCABULARY
  assert vocabulary == tasks.SettingVocabulary()
  assert vocabulary == seqio.ByteVocabulary(extra_ids=100)
  assert vocabulary != seqio.ByteVocabulary(extra_ids=0)


def test_absent_vocabulary_is_named(monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', '/absent.model')
  with pytest.raises(UserError, match="'/absent.model' does not exist"):
    tasks.VOCABULARY.encode('a')


def test_damaged_vocabulary_is_named(tmp_path, monkeypatch):
  path = tmp_path / 'a.model'
  path.write_bytes(b'\x0anot a model')
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', str(path))
  with pytest.raises(UserError, match='cannot be read as a SentencePiece'):
    tasks.VOCABULARY.encode('a')


_IMPORT = """
import sys
opened = []
def audit(event, args):
  if event == 'socket.connect' or event == 'open' and str(args[0]).endswith(
      ('.tsv', '.jsonl', '.model', '.json', '.txt', '.tfrecord')):
    opened.append((event, str(args[0])))
sys.addaudithook(audit)
import tensorflow, tensorflow_datasets, t5.data.mixtures, seqio
opened.clear()
before = set(seqio.TaskRegistry.names())
import synth_mtf.tasks
assert not opened, opened
ours = set(seqio.TaskRegistry.names()) - before
assert ours and all(name.startswith('synth_') for name in ours)
assert 'en_mix' in seqio.MixtureRegistry.names()
"""


def test_importing_registers_and_opens_nothing():
  environment = {**os.environ, 'SYNTH_MTF_DATA_DIR': '/absent'}
  subprocess.run([sys.executable, '-c', _IMPORT], check=True, env=environment)


def test_vocabulary_of_a_task_is_the_setting():
  for name in seqio.TaskRegistry.names():
    if name.startswith('synth_'):
      for feature in seqio.TaskRegistry.get(name).output_features.values():
        assert isinstance(feature.vocabulary, vocabulary.SettingVocabulary)
