"""Decoder-only language modelling on the One Billion Word benchmark.

The targets are one sentence, and there are no inputs (arXiv 1312.3005).
"""

from __future__ import annotations

import functools

import seqio

from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.files.text import SentenceReader, held_out, kept_in
from synth_mtf.tasks.registering import TOKENIZE, define
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES

_ROOTS = (
  'lm1b/',
  'lm1b/1-billion-word-language-modeling-benchmark-r13output/',
  '1-billion-word-language-modeling-benchmark-r13output/',
)
_TRAIN = 'training-monolingual.tokenized.shuffled/news.en-*'
_HELD_OUT = 'heldout-monolingual.tokenized.shuffled/news.en.heldout-*'
# Other tokenised news, one sentence per line; some of the lines are held out.
_STAND_IN = 'corpus/news_sentences/*.txt'


def _split(official: str, stand_in: SentenceReader) -> Split:
  otherwise = Split({_STAND_IN: stand_in})
  for root in reversed(_ROOTS):
    otherwise = Split({root + official: SentenceReader()}, otherwise)
  return otherwise


TASKS = {
  'lm1b': define(
    'lm1b',
    {
      'train': _split(_TRAIN, SentenceReader(kept_in)),
      'test': _split(_HELD_OUT, SentenceReader(held_out)),
    },
    preprocessors=[
      functools.partial(seqio.preprocessors.rekey, key_map={'targets': 'text'}),
      *TOKENIZE,
    ],
    tfds_name='lm1b:1.1.0',
    output_features={'targets': OUTPUT_FEATURES['targets']},
  )
}
