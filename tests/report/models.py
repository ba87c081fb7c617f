"""What made-up models attend to: real softmax weights of random logits."""

from collections.abc import Sequence

import numpy as np

from synth_mtf.attention.file import SIDES, Array, Attention, Stack

ENCODER = (
  '▁A ▁book ▁that ▁was ▁read ▁by ▁many .',
  '▁The ▁cat ▁<b>sat</b> ▁on & ▁on .',
  '▁Anna ▁painted ▁a ▁red ▁boat .',
  '▁No .',
)
DECODER = (
  '<start> ▁read .',
  '<start> ▁s at',
  '<start> ▁a ▁boat ▁, ▁red .',
  '<start> ▁no',
)


def softmax(logits: Array) -> Array:
  """Returns the weights of [..., memory] logits."""
  e = np.exp(logits - logits.max(axis=-1, keepdims=True))
  return e / e.sum(axis=-1, keepdims=True)


def attention(
  label: str,
  functions: Sequence[str],
  layers: int = 3,
  heads: int = 5,
  shared: bool = False,
  seed: int = 0,
  lengths: int = 0,
) -> Attention:
  """Returns what a model attends to in four examples.

  Args:
    label: its name.
    functions: letters of its synthesizing functions.
    layers: of each stack.
    heads: of each layer.
    shared: whether the examples share weights, as if all were of one length.
    seed: of its logits.
    lengths: of the examples on both sides, if not those of the sentences.
  """
  rng = np.random.default_rng(seed)
  sentences = {
    'encoder': [_tokens(one, lengths) for one in ENCODER],
    'decoder': [_tokens(one, lengths) for one in DECODER],
  }
  tokens = {side: _padded(found) for side, found in sentences.items()}

  def stack(name: str) -> Stack:
    queries, memory = (tokens[side] for side in SIDES[name])
    examples = 1 if shared else len(queries)
    axes = (layers, examples, heads, queries.shape[1], memory.shape[1])
    logits = 2 * rng.standard_normal(axes).astype('f4')
    seen = np.ones((examples, queries.shape[1], memory.shape[1]), bool)
    if not shared:
      seen &= (queries != '')[:, :, np.newaxis] & (memory != '')[:, np.newaxis]
    if name == 'decoder':
      seen &= np.tri(queries.shape[1], dtype=bool)
    seen = np.expand_dims(seen, 1)
    alpha = softmax(rng.standard_normal((layers, heads, len(functions))))
    return Stack(
      softmax(np.where(seen, logits, -1e9)) * seen,
      logits,
      functions,
      alpha if len(functions) > 1 else None,
    )

  return Attention(
    run=f'my_runs/{label}',
    label=label,
    step=100,
    stacks={name: stack(name) for name in SIDES},
    tokens=tokens,
    texts={
      'encoder': np.array(ENCODER),
      'decoder': np.array(DECODER),
    },
  )


def _tokens(sentence: str, length: int) -> list[str]:
  tokens = sentence.split(' ')
  return (tokens * length)[:length] if length else tokens


def _padded(sentences: Sequence[Sequence[str]]) -> Array:
  length = max(map(len, sentences))
  return np.array([[*one, *[''] * (length - len(one))] for one in sentences])
