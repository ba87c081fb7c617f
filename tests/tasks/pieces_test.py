"""SentencePiece models of other people: sentinels inside, or broken."""

import random

import pytest
import seqio

from synth_mtf.errors import UserError
from synth_mtf.tasks import pieces, vocabulary
from tests.cli import command

USER_DEFINED = pieces.Model.SentencePiece.USER_DEFINED


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  path = tmp_path_factory.mktemp('trained') / 'a.model'
  vocabulary.train(['the cat sat on a mat. a dog ran. '] * 20, path, 28)
  return path.read_bytes()


@pytest.fixture
def model(trained):
  return pieces.Model.FromString(trained)


def load(model, tmp_path):
  path = tmp_path / f'{random.random()}.model'
  path.write_bytes(model.SerializeToString())
  return vocabulary.load(str(path))


def add(model, numbers, form='▁<extra_id_{}>'):
  for number in numbers:
    model.pieces.add(piece=form.format(number), type=USER_DEFINED)


@pytest.mark.parametrize('form', ['▁<extra_id_{}>', '<extra_id_{}>'])
@pytest.mark.parametrize('count', [100, 120])
def test_sentinels_inside_are_not_doubled(model, tmp_path, form, count):
  usual = load(model, tmp_path)
  add(model, reversed(range(count)), form)
  loaded = load(model, tmp_path)
  assert loaded.vocab_size == usual.vocab_size - 100 + count
  text = 'the cat <extra_id_0> sat <extra_id_7>'
  last = loaded.vocab_size - 1
  assert {last, last - 7} <= {*loaded.encode(text)}
  if form.startswith('▁') and count == 100:
    assert loaded.encode(text) == usual.encode(text)
  assert isinstance(loaded, seqio.SentencePieceVocabulary)


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda m: add(m, range(100)), 'its 100 sentinels begin with <extra_id_0>'),
    (lambda m: add(m, range(99, 0, -1)), 'its 99 sentinels begin with'),
    (lambda m: add(m, reversed(range(50))), 'has 50 sentinels; T5'),
    (lambda m: add(m, [1, 0], 'x<extra_id_{}>'), None),
    (
      lambda m: (add(m, reversed(range(100))), m.pieces.add(piece='zz')),
      "its own sentinels, and 'zz' .piece 118. after them",
    ),
  ],
)
def test_sentinels_that_span_corruption_would_miss(
  model, tmp_path, change, message
):
  change(model)
  if message is None:
    load(model, tmp_path)
    return
  with pytest.raises(UserError, match=f"^vocabulary '.*model': .*{message}"):
    load(model, tmp_path)


def broken_charsmap(charsmap):
  """Replaces the trie by numbers that point anywhere."""
  return charsmap[:4] + random.Random(3).randbytes(len(charsmap) - 5) + b'\0'


def break_piece(model, text):
  model.pieces[9].piece = text


def break_charsmap(model, change, spec='normalizer_spec'):
  charsmap = model.normalizer_spec.precompiled_charsmap
  getattr(model, spec).precompiled_charsmap = change(charsmap)


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda m: break_piece(m, 'a' * 200_000), 'piece 9 has 200,000 letters'),
    (lambda m: break_piece(m, '\0'), r"piece 9 has a NUL: '\\x00'"),
    (lambda m: break_piece(m, 'a\0b'), 'piece 9 has a NUL'),
    (lambda m: break_piece(m, ''), 'piece must not be empty'),
    (lambda m: break_charsmap(m, broken_charsmap), 'precompiled_charsmap is d'),
    (lambda m: break_charsmap(m, lambda c: c[:99]), 'charsmap is damaged'),
    (lambda m: break_charsmap(m, lambda c: c[:-1]), 'charsmap is damaged'),
    (lambda m: break_charsmap(m, lambda c: b'\0' * 4 + c), 'charsmap is dama'),
    (
      lambda m: break_charsmap(m, broken_charsmap, 'denormalizer_spec'),
      'denormalizer_spec.precompiled_charsmap is damaged',
    ),
  ],
)
def test_models_that_crash_the_library_are_refused(
  model, tmp_path, change, message
):
  change(model)
  with pytest.raises(UserError, match=f'cannot be read as .*{message}'):
    load(model, tmp_path)


def test_a_place_outside_of_the_texts_is_found(model, tmp_path):
  """The last text, which a leaf names, is cut off."""
  charsmap = model.normalizer_spec.precompiled_charsmap
  size = 4 + int.from_bytes(charsmap[:4], 'little')
  model.normalizer_spec.precompiled_charsmap = charsmap[:size] + b'x\0'
  with pytest.raises(UserError, match='charsmap is damaged'):
    load(model, tmp_path)


def test_examples_of_a_task_need_a_vocabulary_that_can_be_read(tmp_path):
  (tmp_path / 'a.tsv').write_text('q\ta\none\ttwo\n')
  (tmp_path / 'task.yaml').write_text(
    "name: sums\nfiles: {train: a.tsv}\ninputs: '{q}'\ntargets: '{a}'\n"
    'metrics: [accuracy]\n'
  )
  vocabulary = tmp_path / 'broken.model'
  vocabulary.write_text('no vocabulary')
  words = 'tasks', 'sums', f'--task_file={tmp_path}/task.yaml'
  status, _, err = command.run(*words, f'--vocabulary={vocabulary}')
  assert status == 2 and f"vocabulary '{vocabulary}' cannot be read" in err
  assert 'user code' not in err and 'File "' not in err
