"""The tokens that a layer attends to, and how decoding caches them."""

from collections.abc import Callable

import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core import dimensions
from synth_mtf.core.indexing import put
from synth_mtf.errors import ConfigurationError

# Maps [batch..., memory_length, d_model], or [batch..., d_model] for a single
# token, to the same shape with other dimensions in place of d_model.
Projection = Callable[[mtf.Tensor], mtf.Tensor]
# Projects each token independently, and only once in decoding, to [batch...,
# memory_length, ...]. In incremental decoding, the result includes the tokens
# of earlier steps, and memory_length is its second-to-last dimension.
Memory = Callable[[Projection], mtf.Tensor]


def own_sequence(
  context: transformer.Context, x: mtf.Tensor, memory_length: mtf.Dimension
) -> Memory:
  """Attends to the layer's own input, which grows by a token per step."""
  if context.mode != 'incremental':
    # mtf.replace_dimensions would split x again before it gathers its parts.
    dims = context.length_dim, memory_length
    if all(dimensions.parts(dim, context.model) > 1 for dim in dims):
      raise ConfigurationError(
        'utils.run.layout_rules split both length and memory_length, which '
        'would change the order of the keys; split one of them'
      )
    x = mtf.replace_dimensions(x, context.length_dim, memory_length)

  def project(projection: Projection) -> mtf.Tensor:
    projected = projection(x)
    if context.mode == 'incremental':
      (earlier,) = context.get_states(1)
      projected = put(projected, earlier, context.position, memory_length)
    elif context.mode == 'first_part':
      projected = _for_steps(projected, memory_length)
    if context.mode in ('first_part', 'incremental'):
      context.record_new_states([projected])
    return projected

  return project


def encoder_output(context: transformer.Context) -> Memory:
  """Attends to the encoder's output, projected once for all decoding steps."""

  def project(projection: Projection) -> mtf.Tensor:
    if context.mode == 'incremental':
      return context.get_constant_state()
    projected = projection(context.encoder_output)
    if context.mode == 'first_part':
      projected = _for_steps(projected, context.encoder_length_dim)
      context.record_constant_state(projected)
    return projected

  return project


def _for_steps(x: mtf.Tensor, memory_length: mtf.Dimension) -> mtf.Tensor:
  """Arranges x as one matrix per head, the layout that decoding multiplies."""
  *others, last = (d for d in x.shape.dims if d != memory_length)
  return mtf.transpose(x, mtf.Shape([*others, memory_length, last]))
