"""The Synthesizer family: the one registry that the tests go through.

A row is a file of gin/variants that uses one of our layers, by its name: what
makes the layer's synthesizing functions in small sizes, and the same functions
in NumPy. All that must hold for every function and every variant is tested over
these rows; registry_test.py fails when a function or a file has none.

Sizes are primes of their own, as far as the functions allow, so that a swapped
dimension does not go unseen.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import pytest
from mesh_tensorflow.transformer import transformer

import synth_mtf
from tests import harness, reference

BATCH, HEADS, D_KV, LENGTH, D_MODEL, MAX_LENGTH = 2, 3, 5, 7, 11, 13
FACTORED = 21  # FactorizedDense makes it of 3 and 7
MEMORY_LENGTH, MEMORY_MAX_LENGTH = 9, FACTORED  # of an encoder's output

MakeFunction = Callable[..., synth_mtf.SynthesizingFunction]


@dataclasses.dataclass(frozen=True)
class Member:
  """Synthesizing functions as the layer takes them, and in NumPy.

  Attributes:
    synthesizers: makers of the layer's functions.
    formulas: the same in NumPy.
    normalize: the layer's setting of that name.
    tolerance: of gradients in float32.
    layer: the class of the layer.
  """

  synthesizers: tuple[MakeFunction, ...]
  formulas: tuple[reference.Function, ...]
  normalize: Optional[str] = 'softmax'
  tolerance: float = harness.TOLERANCE['float32']
  layer: Callable[..., transformer.TransformerLayer] = (
    synth_mtf.SyntheticAttention
  )

  def maker(self, **settings: Any) -> harness.MakeLayer:
    """Makes the layer; settings override the small sizes."""
    settings = {
      'num_heads': HEADS,
      'key_value_size': D_KV,
      'packed': False,
      'normalize': self.normalize,
      **settings,
    }
    return lambda: self.layer(synthesizers=list(self.synthesizers), **settings)

  def reference(self, **settings: Any) -> reference.Layer:
    """The same layer in NumPy."""
    settings = {
      'heads': HEADS,
      'd_kv': D_KV,
      'normalize': self.normalize == 'softmax',
      **settings,
    }
    return reference.Layer(self.formulas, **settings)

  def functions(self) -> list[synth_mtf.SynthesizingFunction]:
    """The layer's functions, newly made."""
    return [make() for make in self.synthesizers]

  def takes(self, setting: str) -> bool:
    """Whether one of its functions, or what is inside it, has a setting."""
    return any(_takes(make, setting) for make in self.synthesizers)

  def of_size(self, **sizes: Any) -> 'Member':
    """The member with other settings, where its functions have them."""
    return dataclasses.replace(
      self, synthesizers=tuple(_resized(m, sizes) for m in self.synthesizers)
    )

  def __add__(self, other: 'Member') -> 'Member':
    return Member(
      self.synthesizers + other.synthesizers,
      self.formulas + other.formulas,
      self.normalize,
      max(self.tolerance, other.tolerance),
      self.layer,
    )


def _inside(make: MakeFunction) -> dict[str, MakeFunction]:
  """The makers among a maker's settings."""
  keywords = make.keywords if isinstance(make, functools.partial) else {}
  return {name: value for name, value in keywords.items() if callable(value)}


def _takes(make: MakeFunction, setting: str) -> bool:
  return setting in inspect.signature(make).parameters or any(
    _takes(inner, setting) for inner in _inside(make).values()
  )


def _resized(make: MakeFunction, sizes: Mapping[str, Any]) -> MakeFunction:
  own = inspect.signature(make).parameters
  return functools.partial(
    make,
    **{name: _resized(inner, sizes) for name, inner in _inside(make).items()},
    **{name: size for name, size in sizes.items() if name in own},
  )


def alone(
  function: MakeFunction, formula: reference.Function, **settings: Any
) -> Member:
  """The member with one function, at `MAX_LENGTH` where it has a table."""
  if 'max_length' in inspect.signature(function).parameters:
    settings = {'max_length': MAX_LENGTH, **settings}
  return Member((functools.partial(function, **settings),), (formula,))


def across(member: Member) -> Member:
  """The member in cross-attention: a column for each token of the input."""
  return dataclasses.replace(
    member.of_size(memory_max_length=MEMORY_MAX_LENGTH),
    layer=synth_mtf.SyntheticEncDecAttention,
  )


_at_max_length = functools.partial(functools.partial, max_length=MAX_LENGTH)
_PATTERNS = 'previous', 'left', 'start'

V = alone(synth_mtf.DotProduct, reference.dot_product)
R = alone(synth_mtf.Random, reference.random)
FR = alone(synth_mtf.FactorizedRandom, reference.factorized_random, rank=4)
D = alone(synth_mtf.Dense, reference.dense)
FD = alone(
  synth_mtf.FactorizedDense, reference.factorized_dense, max_length=FACTORED
)

VARIANTS = {
  'vanilla': V,
  'random': R,
  'fixed_random': alone(synth_mtf.Random, reference.random, trainable=False),
  'factorized_random': FR,
  'dense': D,
  'factorized_dense': FD,
  'random_dense': R + D,
  'dense_vanilla': D + V,
  'random_vanilla': R + V,
  'factorized_random_vanilla': FR + V,
  'factorized_random_dense': FR + D,
  'random_dense_vanilla': R + D + V,
  'mlp_mixer': dataclasses.replace(R, normalize=None),
  'convolution': alone(
    synth_mtf.ConvolutionalDense,
    reference.convolution,
    relu=False,
    filter_width=3,
  ),
  'conv_relu_conv': alone(
    synth_mtf.ConvolutionalDense, reference.conv_relu_conv, filter_width=3
  ),
  'bottleneck_dense': alone(
    synth_mtf.BottleneckDense,
    functools.partial(
      reference.bottleneck,
      inner=functools.partial(reference.dense, scope='bottleneck_dense/dense'),
    ),
    bottleneck_size=2,
    inner=_at_max_length(synth_mtf.Dense),
  ),
  'bottleneck_conv_relu_conv': alone(
    synth_mtf.BottleneckDense,
    functools.partial(
      reference.bottleneck,
      inner=functools.partial(
        reference.conv_relu_conv, scope='bottleneck_dense/convolutional_dense'
      ),
    ),
    bottleneck_size=2,
    inner=_at_max_length(synth_mtf.ConvolutionalDense, filter_width=2),
  ),
  'glu': alone(synth_mtf.GatedDense, reference.gated),
  'fixed_patterns': dataclasses.replace(
    alone(
      synth_mtf.FixedPatterns,
      functools.partial(reference.patterns, names=_PATTERNS, size=MAX_LENGTH),
      patterns=_PATTERNS,
    ),
    # The gradient of alpha sums up logits of -30, which cancel.
    tolerance=3e-5,
  ),
}

# Mixtures without a gin file: what the others do not add to each other.
MIXTURES = {
  'factorized_random_factorized_dense_vanilla': FR + FD + V,
  'convolution_random_patterns': (
    VARIANTS['conv_relu_conv'] + R + VARIANTS['fixed_patterns']
  ),
  'random_random': R
  + alone(
    synth_mtf.Random, functools.partial(reference.random, scope='random_1')
  ),
}

# The functions of synthesize_mode = "..." in our layer; what is different about
# the layer is tested in checkpoints/as_original_test.py.
AS_ORIGINAL = {
  'as_original_random': R,
  'as_original_random_plus': R + V,
  'as_original_random_plus_alpha': R + V,
  'as_original_dense_minus': D,
  'as_original_dense_plus': D + V,
  'as_original_dense_plus_alpha': D + V,
}

CROSS_VARIANTS = {
  f'cross_{name}': across(VARIANTS[name])
  for name in (
    'vanilla',
    'random',
    'fixed_random',
    'factorized_random',
    'dense',
    'factorized_dense',
    'random_dense',
    'random_vanilla',
    'dense_vanilla',
    'factorized_random_vanilla',
    'factorized_random_dense',
  )
}

# What has no gin file in cross-attention.
CROSS_MIXTURES = {
  **{
    f'cross_{name}': across(VARIANTS[name])
    for name in ('conv_relu_conv', 'bottleneck_dense', 'glu', 'mlp_mixer')
  },
  'cross_factorized_dense_random_vanilla': across(FD + R + V),
  'cross_tiles': across((R + FR).of_size(tile_length=4)),
}

ALL = {**VARIANTS, **MIXTURES}
CROSS = {**CROSS_VARIANTS, **CROSS_MIXTURES}
SINGLE = {n: m for n, m in VARIANTS.items() if len(m.synthesizers) == 1}
# The functions alone, and mixtures that have all that mixtures add.
_FAST = {
  *SINGLE,
  'cross_random',
  'cross_dense',
  'cross_factorized_dense',
  'random_dense_vanilla',
  'random_random',
  'convolution_random_patterns',
  'cross_factorized_dense_random_vanilla',
  'cross_tiles',
}


def each(
  names: Iterable[str] = tuple(ALL), takes: Optional[str] = None
) -> pytest.MarkDecorator:
  """Parametrizes a test by the `name` of a member; few mixtures are fast.

  Args:
    names: of the members.
    takes: a setting; members without it are left out.
  """
  members = {**ALL, **CROSS}
  return pytest.mark.parametrize(
    'name',
    [
      pytest.param(
        name,
        marks=[] if name in _FAST else pytest.mark.slow,
      )
      for name in names
      if takes is None or members[name].takes(takes)
    ],
  )


def tokens(sequence_id: npt.ArrayLike) -> npt.NDArray[np.float32]:
  """A layer's input, [..., length, d_model], padding included."""
  return harness.draw('x', [*np.shape(sequence_id), D_MODEL])


def encoded(sequence_id: npt.ArrayLike) -> harness.Encoded:
  """An encoder's output for these rows, padding included."""
  shape = [*np.shape(sequence_id), D_MODEL]
  return harness.Encoded(harness.draw('memory', shape), np.asarray(sequence_id))


def float64(
  arrays: Mapping[str, npt.NDArray[Any]],
) -> dict[str, npt.NDArray[np.float64]]:
  return {name: array.astype(np.float64) for name, array in arrays.items()}
