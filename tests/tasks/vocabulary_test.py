"""The vocabulary of all tasks is the one that the settings name."""

import copy
import hashlib
import itertools
import os
import re

import pytest
import sentencepiece
import seqio
import tensorflow.compat.v1 as tf

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks import vocabulary
from tests.official_files import MEN, THINGS, VERBS, WOMEN

_TEXTS = [
  f'{one} {two} the {three}.'
  for one, two, three in itertools.product(WOMEN + MEN, VERBS, THINGS)
]


parts = vocabulary._parts  # noqa: SLF001


def test_a_trained_model_is_used_as_it_is(tmp_path, monkeypatch):
  model = tmp_path / 'first.model'
  vocabulary.train(_TEXTS, model, 120)
  assert list(tmp_path.iterdir()) == [model]
  monkeypatch.setenv('HOME', str(tmp_path))
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', '~/first.model')
  pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
  text = 'Anna painted the boat.'
  assert tasks.VOCABULARY.encode(text) == pieces.encode(text)
  assert tasks.VOCABULARY.decode(pieces.encode(text)) == text
  assert tasks.VOCABULARY.vocab_size == pieces.get_piece_size() + 100
  assert tasks.VOCABULARY.eos_id == 1
  with tf.Graph().as_default(), tf.Session() as session:
    ids = session.run(tasks.VOCABULARY.encode_tf(tf.constant(text)))
    assert session.run(tasks.VOCABULARY.decode_tf(ids)) == text.encode()
  assert ids.tolist() == pieces.encode(text)


def test_the_same_text_gives_the_same_file(tmp_path, monkeypatch):
  """The text beyond the limit is not used, nor is the model's own name."""
  monkeypatch.setattr(vocabulary, 'MOST_CHARACTERS', sum(map(len, _TEXTS)))
  models = tmp_path / 'a.model', tmp_path / 'folder' / 'another.model'
  models[1].parent.mkdir()
  cut = []
  for model, more in zip(
    models, (['', 'x'], ['', 'x', 'Quagga?']), strict=True
  ):
    notes = vocabulary.train([*_TEXTS, *more], model, 120)
    cut.append(any('It was trained on the first' in note for note in notes))
  assert cut == [False, True]
  assert models[0].read_bytes() == models[1].read_bytes()
  assert str(tmp_path).encode() not in models[0].read_bytes()


@pytest.mark.parametrize('texts', [[], ['', ' \n\t']])
@pytest.mark.parametrize('kind', vocabulary.MODEL_TYPES)
def test_no_text_is_an_error(tmp_path, texts, kind):
  with pytest.raises(UserError, match='1,948 pieces can be .* text is empty'):
    vocabulary.train(texts, tmp_path / 'none.model', model_type=kind)
  assert not list(tmp_path.iterdir())


def test_the_reason_is_the_trainers_last_line():
  reason = vocabulary._reason(b'trains\n\xff: no piece\n')  # noqa: SLF001
  assert reason == '\ufffd: no piece'


def test_too_few_pieces_for_the_characters(tmp_path):
  with pytest.raises(UserError, match='its characters alone need [0-9]{2}. Ch'):
    vocabulary.train(_TEXTS, tmp_path / 'none.model', 9)


def test_a_trainer_that_is_killed(tmp_path, monkeypatch):
  """As the system does that has no memory left."""
  monkeypatch.setattr(
    vocabulary, '_TRAINER', 'import os; os.kill(os.getpid(), 9)'
  )
  with pytest.raises(
    UserError, match='this text: signal 9 ended the trainer. '
  ):
    vocabulary.train(_TEXTS, tmp_path / 'none.model', 60)


@pytest.mark.parametrize(
  'ids, found', [({'eos_id': 3}, 'eos_id 3'), ({'pad_id': 4}, 'pad_id 4')]
)
def test_other_ids_than_t5s_are_refused(ids, found, tmp_path, monkeypatch):
  options = {'pad_id': 0, 'eos_id': 1, 'unk_id': 2, 'bos_id': -1, **ids}
  monkeypatch.setattr(vocabulary, '_TRAINER_OPTIONS', options)
  model = tmp_path / f'{found}.model'  # pytest may use a folder twice
  vocabulary.train(_TEXTS, model, 60)
  with pytest.raises(UserError, match=f'{found}; T5 needs .*--pad_id=0 --eos'):
    vocabulary.load(str(model))


def test_long_texts_take_part(tmp_path):
  """SentencePiece would leave out a line of more than 16,384 bytes."""
  clef = '\U0001d11e'  # of four bytes
  long = ['zebrafish quiz ' * 3000, clef * 8192]
  vocabulary.train([*_TEXTS, *long], tmp_path / 'long.model', 60)
  loaded = vocabulary.load(str(tmp_path / 'long.model'))
  assert loaded.unk_id not in loaded.encode(f'zebrafish quiz {clef}')


def test_long_lines_are_cut_between_words():
  assert parts('a\nb c\n\nd') == ['a', 'b c', '', 'd']
  assert parts('x' * 16_384) == ['x' * 16_384]
  assert parts('x' * 16_385) == ['x' * 4096] * 4 + ['x']
  long = 'zebrafish quiz ' * 3000
  assert ''.join(parts(long)) == long
  assert {*' | '.join(parts(long)).split()} == {'zebrafish', 'quiz', '|'}


def test_a_line_with_the_mark_of_the_trainer_takes_part(tmp_path):
  """It would leave out the line; what it does not know is named."""
  path = tmp_path / 'a.model'
  odd = ['the zebra \u2585 ran quickly', 'the \0\0 jaguar'] * 20
  (note,) = vocabulary.train([*_TEXTS, *odd], path, 80)
  loaded = vocabulary.load(str(path))
  assert loaded.unk_id not in loaded.encode('zebra quickly jaguar')
  assert re.fullmatch(
    '2 of the [0-9]+ different characters of the text are not in it '
    '.60 occurrences, which become <unk>.: \0 \u2585',
    note,
  )


def test_rare_characters_are_named(tmp_path):
  rare = ''.join(map(chr, range(0x4E00, 0x4E00 + 30)))
  path = tmp_path / 'a.model'
  (note,) = vocabulary.train([*_TEXTS * 20, rare], path, 80)
  match = re.match(r'(\d+) of the .*: (.*) \.\.\.', note)
  assert match, note
  unknown, shown = match.groups()
  assert int(unknown) > 20 and len(shown.split()) == 20
  others = ' '.join(map(chr, range(0x5000, 0x5000 + 20)))
  (note,) = vocabulary._unknown_characters(path.read_bytes(), [others])  # noqa: SLF001
  assert note.endswith(f': {others}'), 'all are shown'


def test_text_beyond_the_limit_is_reported(tmp_path, monkeypatch):
  monkeypatch.setattr(vocabulary, 'MOST_CHARACTERS', 2000)
  (note,) = vocabulary.train(_TEXTS, tmp_path / 'a.model', 60)
  assert re.search(r'the first 2,0\d\d characters', note)


def test_default_is_t5s_model_in_its_bucket(monkeypatch):
  monkeypatch.delenv('SYNTH_MTF_VOCABULARY')
  resolved = tasks.VOCABULARY.resolved
  assert isinstance(resolved, seqio.SentencePieceVocabulary)
  file = resolved.sentencepiece_model_file
  assert file.startswith('gs://t5-data/vocabs/')
  assert vocabulary.load('').sentencepiece_model_file == file


def test_a_copy_reads_no_vocabulary(monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'missing.model')
  assert isinstance(
    copy.deepcopy(tasks.VOCABULARY), vocabulary.SettingVocabulary
  )


def test_what_a_run_records_of_a_vocabulary():
  expected = {
    'name': 'ByteVocabulary',
    'size': 359,
    'sha256': hashlib.sha256(b'ByteVocabulary 359').hexdigest(),
  }
  assert vocabulary.describe(vocabulary.load('bytes')) == expected
  assert vocabulary.describe(tasks.VOCABULARY) == expected


@pytest.mark.parametrize(
  'content',
  [
    *(b'', b'a\nb\n', bytes(range(256)), b'\x0anot a model'),
    *('folder', 'pipe', 'absent'),
  ],
)
def test_what_is_no_vocabulary_is_named(tmp_path, content):
  path = tmp_path / 'a.model'
  if content == 'folder':
    path.mkdir()
  elif content == 'pipe':
    os.mkfifo(path)
  elif content != 'absent':
    path.write_bytes(content)
  with pytest.raises(UserError, match=f'{path}. cannot be read as a Sentence'):
    vocabulary.load(str(path))


def test_a_pointer_of_git_lfs_is_none(tmp_path):
  path = tmp_path / 'a.model'
  path.write_text('version https://git-lfs.github.com/spec/v1\noid sha256:46')
  with pytest.raises(UserError, match='is a pointer of Git LFS'):
    vocabulary.load(str(path))


def test_vocabulary_of_a_task_is_the_setting():
  """Of all text; an encoder's classes and ends of text are numbers."""
  ours = tasks.VOCABULARY
  assert ours == tasks.SettingVocabulary()
  assert ours == seqio.ByteVocabulary(extra_ids=100)
  assert ours.encode('ab') == [ord('a') + 3, ord('b') + 3]
  assert ours != seqio.ByteVocabulary(extra_ids=0)
  for name in seqio.TaskRegistry.names():
    if name.startswith('synth_'):
      for feature in seqio.TaskRegistry.get(name).output_features.values():
        if not isinstance(feature.vocabulary, seqio.PassThroughVocabulary):
          assert isinstance(feature.vocabulary, vocabulary.SettingVocabulary)
