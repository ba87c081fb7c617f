"""The vocabulary of all tasks is the one that the settings name."""

import os
import subprocess
import sys

import pytest
import sentencepiece
import seqio
import tensorflow.compat.v1 as tf

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks import vocabulary


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


@pytest.mark.parametrize(
  'content',
  [b'', b'a\nb\n', bytes(range(256)), b'\x0anot a model', None],
  ids=['empty', 'text', 'binary', 'damaged', 'folder'],
)
def test_what_is_no_vocabulary_is_named(tmp_path, content):
  path = tmp_path / 'a.model'
  path.mkdir() if content is None else path.write_bytes(content)
  with pytest.raises(UserError, match='cannot be read as a SentencePiece'):
    vocabulary.load(str(path))


def test_vocabulary_of_a_task_is_the_setting():
  """Of all text; an encoder's classes and ends of text are numbers."""
  for name in seqio.TaskRegistry.names():
    if name.startswith('synth_'):
      for feature in seqio.TaskRegistry.get(name).output_features.values():
        if not isinstance(feature.vocabulary, seqio.PassThroughVocabulary):
          assert isinstance(feature.vocabulary, vocabulary.SettingVocabulary)
