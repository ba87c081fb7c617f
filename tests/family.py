"""The members of the Synthesizer family, each beside its reference.

One `Member` for each file of gin/variants that uses our layer, under its name;
registry_test.py fails when one is missing. Sizes are primes of their own, as
far as the functions allow, so that a swapped dimension does not go unseen.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

import synth_mtf
from tests import harness, reference

BATCH, HEADS, D_KV, LENGTH, D_MODEL, MAX_LENGTH = 2, 3, 5, 7, 11, 13
FACTORS = 3, 7  # of FactorizedDense, whose tables have 21 columns
FACTORED = FACTORS[0] * FACTORS[1]
RANK = 4
BOTTLENECK_SIZE = 2


@dataclasses.dataclass(frozen=True)
class Member:
  """Synthesizing functions as the layer takes them, and their references.

  Attributes:
    synthesizers: makers of the layer's functions.
    functions: the same in NumPy.
    shared: whether the logits do not depend on the input.
    normalize: the layer's setting of that name.
    tolerance: of gradients in float32.
  """

  synthesizers: tuple[Callable[[], synth_mtf.SynthesizingFunction], ...]
  functions: tuple[reference.Function, ...]
  shared: bool = False
  normalize: Optional[str] = 'softmax'
  tolerance: float = harness.TOLERANCE['float32']

  def maker(self, **settings: Any) -> harness.MakeLayer:
    """Makes the layer; settings override the small sizes."""
    settings = {
      'num_heads': HEADS,
      'key_value_size': D_KV,
      'packed': False,
      'normalize': self.normalize,
      **settings,
    }
    return lambda: synth_mtf.SyntheticAttention(
      synthesizers=list(self.synthesizers), **settings
    )

  def reference(self, **settings: Any) -> reference.Layer:
    """The same layer in NumPy."""
    settings = {
      'heads': HEADS,
      'd_kv': D_KV,
      'normalize': self.normalize == 'softmax',
      **settings,
    }
    return reference.Layer(self.functions, **settings)

  def __add__(self, other: 'Member') -> 'Member':
    return Member(
      self.synthesizers + other.synthesizers,
      self.functions + other.functions,
      self.shared and other.shared,
      self.normalize,
      max(self.tolerance, other.tolerance),
    )


def _table(
  function: Callable[..., synth_mtf.SynthesizingFunction], **settings: Any
) -> Callable[[], synth_mtf.SynthesizingFunction]:
  return functools.partial(function, max_length=MAX_LENGTH, **settings)


V = Member((synth_mtf.DotProduct,), (reference.dot_product(),))
R = Member((_table(synth_mtf.Random),), (reference.random(MAX_LENGTH),), True)
FIX = Member((_table(synth_mtf.Random, trainable=False),), R.functions, True)
FR = Member(
  (_table(synth_mtf.FactorizedRandom, rank=RANK),),
  (reference.factorized_random(MAX_LENGTH, RANK),),
  True,
)
D = Member((_table(synth_mtf.Dense),), (reference.dense(MAX_LENGTH),))
FD = Member(
  (
    functools.partial(
      synth_mtf.FactorizedDense, max_length=FACTORED, factors=FACTORS
    ),
  ),
  (reference.factorized_dense(*FACTORS),),
)
CONV = Member(
  (_table(synth_mtf.ConvolutionalDense, relu=False, filter_width=3),),
  (reference.convolution(MAX_LENGTH, 3, False),),
)
CRC = Member(
  (_table(synth_mtf.ConvolutionalDense, filter_width=3),),
  (reference.convolution(MAX_LENGTH, 3, True),),
)
BOTTLENECK = Member(
  (
    functools.partial(
      synth_mtf.BottleneckDense,
      bottleneck_size=BOTTLENECK_SIZE,
      inner=_table(synth_mtf.Dense),
    ),
  ),
  (
    reference.bottleneck(
      reference.dense(MAX_LENGTH, scope='bottleneck_dense/dense')
    ),
  ),
)
BOTTLENECK_CRC = Member(
  (
    functools.partial(
      synth_mtf.BottleneckDense,
      bottleneck_size=BOTTLENECK_SIZE,
      inner=_table(synth_mtf.ConvolutionalDense, filter_width=2),
    ),
  ),
  (
    reference.bottleneck(
      reference.convolution(
        MAX_LENGTH, 2, True, scope='bottleneck_dense/convolutional_dense'
      )
    ),
  ),
)
GLU = Member((_table(synth_mtf.GatedDense),), (reference.gated(MAX_LENGTH),))
PATTERNS = 'previous', 'left', 'start'
PATTERN = Member(
  (_table(synth_mtf.FixedPatterns, patterns=PATTERNS),),
  (reference.patterns(PATTERNS, MAX_LENGTH),),
  True,
  # The gradient of alpha sums up logits of -30, which cancel.
  tolerance=3e-5,
)
MIXER = dataclasses.replace(R, normalize=None)

MEMBERS = {
  'vanilla': V,
  'random': R,
  'fixed_random': FIX,
  'factorized_random': FR,
  'dense': D,
  'factorized_dense': FD,
  'random_dense': R + D,
  'dense_vanilla': D + V,
  'random_vanilla': R + V,
  'factorized_random_vanilla': FR + V,
  'factorized_random_dense': FR + D,
  'mlp_mixer': MIXER,
  'convolution': CONV,
  'conv_relu_conv': CRC,
  'bottleneck_dense': BOTTLENECK,
  'bottleneck_conv_relu_conv': BOTTLENECK_CRC,
  'glu': GLU,
  'fixed_patterns': PATTERN,
  'random_dense_vanilla': R + D + V,
}
# Mixtures without a gin file.
MORE = {
  'factorized_random_factorized_dense_vanilla': FR + FD + V,
  'convolution_random_patterns': CRC + R + PATTERN,
  'random_random': R
  + Member(
    R.synthesizers, (reference.random(MAX_LENGTH, scope='random_1'),), True
  ),
}
ALL = {**MEMBERS, **MORE}


def tokens(sequence_id: npt.ArrayLike) -> npt.NDArray[np.float32]:
  """A layer's input, [..., length, d_model], padding included."""
  return harness.draw('x', [*np.shape(sequence_id), D_MODEL])


def float64(
  arrays: Mapping[str, npt.NDArray[Any]],
) -> dict[str, npt.NDArray[np.float64]]:
  return {name: array.astype(np.float64) for name, array in arrays.items()}
