"""Attention made up for tests: even weights, or those of random logits."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from synth_mtf.attention.file import SIDES_OF_STACK, Array, Attention, Stack

TOKENS = {
  'encoder': ['▁The', '▁red', '▁$5', '</s>'],
  'decoder': ['<s>', '▁das', '▁rote'],
}
SENTENCES = {
  'encoder': (
    '▁A ▁book ▁that ▁was ▁read ▁by ▁many .',
    '▁The ▁cat ▁<b>sat</b> ▁on & ▁on .',
    '▁Anna ▁painted ▁a ▁red ▁boat .',
    '▁No .',
  ),
  'decoder': (
    '<start> ▁read .',
    '<start> ▁s at',
    '<start> ▁a ▁boat ▁, ▁red .',
    '<start> ▁no',
  ),
}


def attention(
  label: str = 'Syn (R)',
  step: int = 100,
  layers: int = 6,
  weights: Array | None = None,
  stacks: Iterable[str] = SIDES_OF_STACK,
) -> Attention:
  """Returns attention of one text, whose default weights are even."""
  made = {}
  for name in stacks:
    n, m = (len(TOKENS[side]) for side in SIDES_OF_STACK[name])
    even = np.ones([layers, 1, 3, n, m])
    if name == 'decoder':
      even = np.tril(even)
    even /= even.sum(-1, keepdims=True)
    made[name] = Stack(even if weights is None else weights, even - 0.3)
  return Attention(
    'runs/x',
    label,
    step,
    made,
    {side: np.array([tokens]) for side, tokens in TOKENS.items()},
    {side: np.array(['text']) for side in TOKENS},
  )


def random_attention(
  label: str = 'Syn (R)',
  functions: Sequence[str] = 'R',
  layers: int = 3,
  heads: int = 5,
  shared: bool = False,
  seed: int = 0,
  length: int = 0,
) -> Attention:
  """Returns attention of four examples, the `SENTENCES`.

  They share weights if `shared`, and all have a `length` if one is given.
  """
  rng = np.random.default_rng(seed)
  tokens = {}
  for side, sentences in SENTENCES.items():
    rows = [sentence.split(' ') for sentence in sentences]
    if length:
      rows = [(row * length)[:length] for row in rows]
    tokens[side] = np.array(list(itertools.zip_longest(*rows, fillvalue=''))).T

  def stack(name: str) -> Stack:
    queries, memory = (
      tokens[side][: 1 if shared else 4] for side in SIDES_OF_STACK[name]
    )
    seen = np.ones([len(queries), queries.shape[1], memory.shape[1]], bool)
    if not shared:
      seen &= (queries != '')[:, :, None] & (memory != '')[:, None]
    if name == 'decoder':
      seen &= np.tri(queries.shape[1], dtype=bool)
    shape = (layers, len(seen), heads, *seen.shape[1:])
    logits = 2 * rng.standard_normal(shape).astype('f4')
    seen = seen[:, None]
    alpha = None
    if len(functions) > 1:
      alpha = _softmax(rng.standard_normal((layers, heads, len(functions))))
    return Stack(
      _softmax(np.where(seen, logits, -1e9)) * seen,
      logits,
      list(functions),
      alpha,
    )

  return Attention(
    run=f'my_runs/{label}',
    label=label,
    step=100,
    stacks={name: stack(name) for name in SIDES_OF_STACK},
    tokens=tokens,
    texts={side: np.array(texts) for side, texts in SENTENCES.items()},
  )


def _softmax(logits: Array) -> Array:
  e = np.exp(logits - logits.max(axis=-1, keepdims=True))
  return e / e.sum(axis=-1, keepdims=True)
