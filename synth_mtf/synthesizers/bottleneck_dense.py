"""Bottleneck Dense: a local function of a low-rank projection of the token."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import InnerProduct
from synth_mtf.errors import ConfigurationError
from synth_mtf.synthesizers.base import SynthesizingFunction, check_sizes
from synth_mtf.synthesizers.dense import Dense
from synth_mtf.synthesizers.local import Local, project


@gin.configurable(module='synth_mtf')
class BottleneckDense(SynthesizingFunction):
  """S(X) = F(X'), x'_i = U D x_i with D: d_model -> r, U: r -> d_model.

  (Version 1, section 6.2.) F is Dense, or ConvolutionalDense for the
  bottleneck before conv-ReLU-conv. Version 1 lists each in one bullet.
  We assume no nonlinearity between D and U, and r = d_model / 4.
  """

  def __init__(
    self,
    bottleneck_size: int | None = None,
    inner: Callable[[], Local] = Dense,
  ) -> None:
    """Creates a Bottleneck Dense synthesizing function.

    Args:
      bottleneck_size: r < d_model. Default: d_model / 4.
      inner: makes F, a local function (`@Dense`, `@ConvolutionalDense`,
        `@GatedDense`).

    Raises:
      ConfigurationError: if r < 1 or `inner` does not make a local function.
    """
    self.bottleneck_size = bottleneck_size
    check_sizes(self, bottleneck_size=bottleneck_size)
    self.inner = inner()
    made: Any = self.inner
    if not isinstance(made, Local) or getattr(made, 'shared_query', False):
      raise ConfigurationError(
        f'BottleneckDense.inner made {self.inner}: expected a local function '
        'that has its own W1, such as Dense or ConvolutionalDense'
      )

  @property
  def letter(self) -> str:
    return 'B' + self.inner.letter

  def logits(self, call: LayerCall, alpha: mtf.Tensor | None) -> InnerProduct:
    d_model = call.x.shape.dims[-1]
    r = mtf.Dimension(
      'bottleneck', self.bottleneck_size or max(1, d_model.size // 4)
    )
    if r.size >= d_model.size:
      raise ConfigurationError(
        f'BottleneckDense.bottleneck_size = {r.size}: expected less than '
        f'd_model = {d_model.size}'
      )
    narrow = project(call, project(call, call.x, 'D', [r]), 'U', [d_model])
    narrow_call = dataclasses.replace(call, x=narrow)
    with tf.variable_scope(self.inner.scope):
      return self.inner.logits(narrow_call, alpha)
