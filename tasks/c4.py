"""Span corruption, T5's pretraining: on C4, or on any folder of text.

15 % of the tokens are noise, in spans of 3 on average; each span becomes one
sentinel of the inputs, and the targets are the spans, each after its sentinel
(arXiv 1910.10683, section 3.3). 512 inputs then need 114 targets.
"""

from __future__ import annotations

from collections.abc import Callable

import seqio

from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.files.text import (
  PassageReader,
  TextJsonReader,
  held_out,
  kept_in,
)
from synth_mtf.tasks.registering import adopt, define

_SPAN_CORRUPTION = 'c4_v220_span_corruption'


def _corpus_split(keep: Callable[[str], bool]) -> Split:
  passages, json_lines = PassageReader(keep), TextJsonReader(keep)
  readers = {'txt': passages, 'jsonl': json_lines, 'json': json_lines}
  return Split(
    {
      f'corpus/**/*.{suffix}{packed}': reader
      for suffix, reader in readers.items()
      for packed in ('', '.gz')
    }
  )


def _c4_split(split: str) -> Split:
  names = [f'c4-{split}.*.json', f'c4-{split}.*.json.gz']
  return Split(
    {
      f'{root}{n}': TextJsonReader()
      for root in ('c4/**/', 'en/')
      for n in names
    }
  )


_C4_SPLITS = {name: _c4_split(name) for name in ('train', 'validation')}

TASKS = {
  'c4': adopt(_SPAN_CORRUPTION, _C4_SPLITS, 'c4_span_corruption'),
  'text': define(
    'text_span_corruption',
    {'train': _corpus_split(kept_in), 'validation': _corpus_split(held_out)},
    preprocessors=seqio.TaskRegistry.get(_SPAN_CORRUPTION).preprocessors,
  ),
}
# Also under the name that T5's has, with its version.
adopt(_SPAN_CORRUPTION, _C4_SPLITS)
