"""Exported tokenizers make the ids of the run's vocabulary."""

import json
import random
import subprocess
import sys
import unicodedata
from typing import Any

import pytest
import seqio
from sentencepiece import sentencepiece_model_pb2

from synth_mtf.errors import UserError
from synth_mtf.tasks import vocabulary as vocabularies

transformers = pytest.importorskip('transformers', minversion='5')
from synth_mtf.huggingface import tokenizer  # noqa: E402

pytestmark = pytest.mark.slow

# SentencePiece's trainer needs a process without TensorFlow.
TRAINER = """
import json, sys, sentencepiece
path, options = sys.argv[1:]
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(open(0, encoding='utf-8').read().splitlines()),
    model_writer=open(path, 'wb'), **json.loads(options))
"""
LINES = [
  'The cat sat on a mat, and a dog ran to the water. 1234 prices, {x} < y',
  'Größe naïve café ﬁne 漢字 한국어 über <b> a tag </b> [SEP] the <speaker1>',
  'word [SEP] other words | and $ more of the text that people write',
] * 20
ODD = [
  *('</s>', '<pad>', '<unk>', '<s>', '<', '>', '<extra_id_', '<extra_id_100>'),
  *('<extra_id_0>', '<extra_id_1>', '<extra_id_10>', '<extra_id_99>'),
  *(' ', '  ', '\n', '\t', '\r', '\0', '\x01', '\x7f', '\x85', '\u2028'),
  *(
    '\u00a0',
    '\u200b',
    '\u3000',
    '\ufeff',
    '…',
    'ﬁ',
    'Ａ',
    '＜',
    'é',
    'e\u0301',
  ),
  *(
    '漢',
    '한국어',
    '🙂',
    'ß',
    'İ',
    '½',
    '①',
    '﷽',
    '\ufffd',
    '\ue000',
    '<0x0A>',
  ),
  *('[SEP]', '<speaker1>', '{', '}', '<ctrl>', '[C]', 'x', 'the', 'THE'),
]
WORDS = ' '.join(LINES).split()
UNIGRAM: dict[str, dict[str, Any]] = {
  'T5': {},
  'case folding': {'normalization_rule_name': 'nmt_nfkc_cf'},
  'blanks kept': {
    'normalization_rule_name': 'identity',
    'remove_extra_whitespaces': False,
  },
  'bytes': {'byte_fallback': True, 'vocab_size': 600},
  'pieces of several words': {'split_by_whitespace': False},
  'symbols': {
    'user_defined_symbols': ['[SEP]', '<speaker1>', '{', '}'],
    'control_symbols': ['<ctrl>', '[C]'],
  },
  'lines': {
    'normalization_rule_name': 'identity',
    'remove_extra_whitespaces': False,
    'user_defined_symbols': ['\n', '\t'],
  },
}
BPE: dict[str, dict[str, Any]] = {
  f'BPE, {name}': {'model_type': 'bpe', **UNIGRAM[name]}
  for name in ('T5', 'case folding', 'blanks kept', 'bytes')
}


def trained(path, **options):
  """A vocabulary of LINES."""
  options = {
    'pad_id': 0,
    'eos_id': 1,
    'unk_id': 2,
    'bos_id': -1,
    'vocab_size': 200,
    'hard_vocab_limit': False,
    'minloglevel': 2,
    **options,
  }
  subprocess.run(
    [sys.executable, '-c', TRAINER, path, json.dumps(options)],
    input='\n'.join(LINES).encode(),
    check=True,
  )
  return seqio.SentencePieceVocabulary(str(path), 100)


def texts(count, seed=0):
  """Odd strings: special names, blanks, controls, words, any characters.

  Without rows of equal signs, of which several segmentations are equally good,
  and without characters that join: transformers normalizes these differently.
  """
  rng = random.Random(seed)

  def part():
    kind = rng.randrange(5)
    if kind < 2:
      return rng.choice(ODD)
    if kind == 2:
      return rng.choice(WORDS)
    if kind == 3:
      return ' '
    return chr(rng.choice([*range(0x20, 0x250), *range(0x4E00, 0x5000)]))

  return [
    ''.join(part() for _ in range(rng.randrange(12))) for _ in range(count)
  ]


def reloaded(vocabulary, folder):
  tokenizer.convert(vocabulary, 512).save_pretrained(folder)
  return transformers.AutoTokenizer.from_pretrained(folder)


def differences(vocabulary, converted, odd):
  return [
    (text, expected, actual)
    for text in odd
    for expected in [[*vocabulary.encode(text), 1]]
    for actual in [converted(text)['input_ids']]
    if actual != expected
  ]


@pytest.mark.parametrize('name', [*UNIGRAM, *BPE])
def test_ids_of_odd_strings(name, tmp_path):
  vocabulary = trained(tmp_path / 'v.model', **{**UNIGRAM, **BPE}[name])
  converted = reloaded(vocabulary, tmp_path / 'hf')
  odd = texts(3000)
  different = differences(vocabulary, converted, odd)
  # Equally good segmentations are rare.
  assert len(different) <= 5, (len(different), different[:3])
  plain = ' '.join(WORDS[:30])
  ids = vocabulary.encode(plain)
  text = converted.decode([0, *ids, 1, 0], skip_special_tokens=True)
  assert text == vocabulary.decode(ids)
  ids = [*ids[:3], 2, *ids[3:], 2]  # with <unk>
  text = converted.decode([*ids, 1], skip_special_tokens=True)
  assert text == vocabulary.decode(ids) and text.count('⁇') == 2
  rng = random.Random(1)
  known = vocabulary.tokenizer
  count = vocabulary.vocab_size
  for _ in range(500):
    ids = [rng.randrange(2, count) for _ in range(6)]
    pieces = [known.id_to_piece(i) for i in ids if i < known.vocab_size()]
    if not any(piece.startswith('<0x') for piece in pieces):  # half a character
      assert converted.decode(ids) == vocabulary.decode(ids), pieces
  assert converted.convert_tokens_to_ids('<extra_id_0>') == len(converted) - 1
  assert (converted.pad_token_id, converted.eos_token_id) == (0, 1)
  batch = converted(['the cat', 'a'], padding=True, truncation=True)
  assert [row[-1] for row in batch['attention_mask']] == [1, 0]
  assert converted.decode(converted('</s> x')['input_ids']).startswith('</s> x')
  long = converted(plain * 100, truncation=True)['input_ids']
  assert len(long) == 512 and long[-1] == 1


COMPOSED = [
  '한국어 문장',
  'Tiếng Việt được viết',
  'été où',
  'हिन्दी क्षेत्र',
  'שָׁלוֹם',
  'السَّلَامُ',
  'ガギグゲゴ パピプペポ',
  'Ἀθῆναι ᾧ',
  'ọ̀rọ̀ ẹ̀kọ́',
  'தமிழ் கொ',
  'ё й ½',
]


@pytest.mark.parametrize('form', ['NFC', 'NFD'])
def test_composed_and_decomposed_characters(form, tmp_path):
  """Files of macOS are decomposed; bytes show each difference."""
  vocabulary = trained(tmp_path / 'v.model', **UNIGRAM['bytes'])
  converted = reloaded(vocabulary, tmp_path / 'hf')
  odd = [unicodedata.normalize(form, text) for text in COMPOSED]
  assert not differences(vocabulary, converted, odd)


@pytest.mark.parametrize('form', ['▁<extra_id_{}>', '<extra_id_{}>'])
def test_sentinels_inside(form, tmp_path):
  """Of the kind of mT5 and T5X."""
  path = tmp_path / 'v.model'
  trained(path)
  model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
  for number in reversed(range(100)):
    piece = form.format(number)
    model.pieces.add(piece=piece, type=model.SentencePiece.USER_DEFINED)
  path.write_bytes(model.SerializeToString())
  vocabulary = vocabularies.load(str(path))
  converted = reloaded(vocabulary, tmp_path / 'hf')
  assert len(differences(vocabulary, converted, texts(3000))) <= 5
  last = len(converted) - 1
  assert last == vocabulary.vocab_size - 1
  assert last in converted('the <extra_id_0> cat')['input_ids']


def test_bytes(tmp_path):
  vocabulary = seqio.ByteVocabulary()
  converted = reloaded(vocabulary, tmp_path)
  assert not differences(vocabulary, converted, texts(3000))
  # A model has 384 rows, and may write any of them, and half a character.
  rng = random.Random(1)
  outputs = [[rng.randrange(384) for _ in range(20)] for _ in range(500)]
  outputs = [[i for i in ids if i != 1] for ids in outputs]
  decoded = converted.batch_decode(outputs, skip_special_tokens=True)
  assert decoded == [vocabulary.decode(ids) for ids in outputs]


def test_what_cannot_be_converted_is_refused(tmp_path):
  for name, options, message in (
    ('char', {'model_type': 'char'}, 'CHAR, expected UNIGRAM or BPE'),
    ('prefix', {'add_dummy_prefix': False}, 'other ids of .*extra_id'),
    (
      'symbols',
      {'model_type': 'bpe', 'user_defined_symbols': ['[SEP]']},
      r'other ids of .*\[SEP\]',
    ),
  ):
    vocabulary = trained(tmp_path / name, **options)
    with pytest.raises(UserError, match=message):
      tokenizer.convert(vocabulary, 512)


def test_damage_that_only_tokenizers_sees_is_refused(tmp_path):
  path = tmp_path / 'whole'
  trained(path)
  model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
  charsmap = model.normalizer_spec.precompiled_charsmap
  model.normalizer_spec.precompiled_charsmap = charsmap[:-3] + b'\xff\xff\0'
  refused(tmp_path / 'charsmap', model, 'cannot be exported: .*charsmap')
  model.normalizer_spec.precompiled_charsmap = charsmap
  model.pieces[9].score = float('nan')
  refused(tmp_path / 'nan', model, 'piece 9, .* has the score nan')


def refused(path, model, message):
  path.write_bytes(model.SerializeToString())
  vocabulary = vocabularies.load(str(path))
  with pytest.raises(UserError, match=message):
    tokenizer.convert(vocabulary, 512)
