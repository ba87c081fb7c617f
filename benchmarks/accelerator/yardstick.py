"""The operations of T5, a yardstick for all programs."""

from collections.abc import Mapping


def t5_flops(size: Mapping[str, int]) -> float:
  """Counts the products of a training step of T5, without padding.

  A product of [n, k] and [k, m] has 2 n k m operations forward and twice that
  backward. Embeddings are looked up; logits are a product with all of them.
  """
  n, m = size['inputs'], size['targets']
  width = size['num_heads'] * size['d_kv']
  projection = size['d_model'] * width  # of a token, to or from all heads
  dense = 2 * size['d_model'] * size['d_ff']
  encoder = n * (4 * projection + dense) + 2 * n * n * width
  decoder = m * (4 * projection + dense) + 2 * m * m * width
  cross = 2 * (m + n) * projection + 2 * m * n * width
  logits = m * size['d_model'] * size['vocab']
  blocks = size['layers'] * (encoder + decoder + cross)
  return 3 * 2 * float(size['batch'] * (blocks + logits))
