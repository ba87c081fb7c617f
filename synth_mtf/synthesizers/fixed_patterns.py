"""Fixed patterns: alignments without learned parameters."""

from collections.abc import Sequence

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.context import row_sequence_id
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import weighted
from synth_mtf.errors import ConfigurationError, nearest
from synth_mtf.synthesizers.base import CROSS_ATTENTION_SCOPE, Table

_OFFSETS = {'current': 0, 'previous': -1, 'next': 1}
PATTERNS = (*_OFFSETS, 'left', 'right', 'start', 'end')
# The logit of tokens outside the pattern. In float32, exp(-30) vanishes next to
# 1; if all visible tokens are outside, attention is uniform.
_OUT = -30.0


@gin.configurable(module='synth_mtf')
class FixedPatterns(Table):
  """Fixed attention patterns after Raganato et al. (arXiv 2002.10260).

  Head h uses pattern number h mod (number of patterns).

      current, previous, next    one token, at distance 0, -1, +1
      left, right                the larger context: tokens at a distance d of
                                 2 or more, with weight (1 - d / N)^3
      start, end                 the first or last token of the sequence

  In packed rows with `index_by = 'row'`, `start` is the first token of the row.
  If a pattern has no visible token (`next` at the end, or in a decoder),
  attention is uniform over the visible tokens. Distances are defined only
  within one sequence, which rules out cross-attention.
  """

  letter = 'Patterns'
  unshaped = 'patterns', 'max_length'

  def __init__(
    self,
    patterns: Sequence[str] = PATTERNS,
    max_length: int | None = None,
  ) -> None:
    """Creates a Fixed Patterns synthesizing function.

    Args:
      patterns: names from `PATTERNS`; 'end' works only in an encoder.
      max_length: N. Default: the host's `Unitransformer.max_length` (512).

    Raises:
      ConfigurationError: if a pattern is unknown or none is given, and in
        cross-attention.
    """
    super().__init__(max_length)
    if CROSS_ATTENTION_SCOPE in gin.current_scope():
      raise ConfigurationError(
        'FixedPatterns is for self-attention, where queries and keys are '
        'tokens of one sequence; bind another function to '
        'SyntheticEncDecAttention.synthesizers'
      )
    unknown = [name for name in patterns if name not in PATTERNS]
    if unknown or not patterns:
      raise ConfigurationError(
        f'FixedPatterns.patterns = {list(patterns)}: expected names out of '
        f'{list(PATTERNS)}' + ''.join(nearest(n, PATTERNS) for n in unknown)
      )
    self.patterns = tuple(patterns)

  def logits(self, call: LayerCall, alpha: mtf.Tensor | None) -> mtf.Tensor:
    self.check_lengths(call, queries=False)
    ahead = call.index.keys - call.index.queries
    logits = [self._pattern(name, call, ahead) for name in self.patterns]
    dims = {d for x in logits for d in x.shape.dims}
    shape = mtf.Shape([d for d in call.local.dims if d in dims])
    logits = [mtf.transpose(mtf.broadcast(x, shape), shape) for x in logits]
    stacked = mtf.stack(logits, 'pattern')
    head = mtf.zeros(call.context.mesh, mtf.Shape([]), tf.int32)
    for dim in call.heads:  # the index of each head
      head = head * dim.size + mtf.range(call.context.mesh, dim, tf.int32)
    pattern = head % len(self.patterns)
    choice = mtf.one_hot(
      pattern, stacked.shape.dims[0], dtype=call.logits_dtype
    )
    dims.update(call.heads)
    shape = mtf.Shape([d for d in call.local.dims if d in dims])
    return mtf.einsum([weighted(choice, alpha), stacked], shape)

  def _pattern(
    self, name: str, call: LayerCall, ahead: mtf.Tensor
  ) -> mtf.Tensor:
    """Returns logits of one pattern, over some of [length, memory_length]."""

    def only(inside: mtf.Tensor) -> mtf.Tensor:
      return _OUT * mtf.cast(mtf.logical_not(inside), call.logits_dtype)

    if name == 'start':
      return only(mtf.equal(call.index.keys, 0))
    if name == 'end':
      return only(_is_last(call))
    if name in _OFFSETS:
      return only(mtf.equal(ahead, _OFFSETS[name]))
    distance = ahead if name == 'right' else -ahead
    far = mtf.greater_equal(distance, 2)
    near = mtf.cast(distance * mtf.cast(far, tf.int32), call.logits_dtype)
    return only(far) + 3.0 * mtf.log(1.0 - near / self.max_length)


def _is_last(call: LayerCall) -> mtf.Tensor:
  sequence_id = row_sequence_id(call.context)
  if call.context.read_priority is not None:
    raise ConfigurationError(
      "FixedPatterns.patterns: 'end' needs the whole sequence, which a decoder "
      'does not see; set decoder/FixedPatterns.patterns without it'
    )
  if sequence_id is None:
    raise ConfigurationError(
      "FixedPatterns.patterns: 'end' needs segment ids to find the last token; "
      'this model gets none'
    )
  (length,) = call.length
  following = mtf.shift(sequence_id, -1, length, wrap=False)
  last = mtf.not_equal(sequence_id, following)
  return mtf.replace_dimensions(last, length, call.memory_length)
