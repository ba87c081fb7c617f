"""The Synthesizer family: the registry that the tests iterate over.

A member is a file of gin/variants that uses one of our layers, by its name: the
layer with its synthesizing functions in small sizes, and the same functions in
NumPy. registry_test.py fails if a function or a file has none.

Sizes are distinct primes as far as the functions allow, so that a swapped
dimension does not go unnoticed.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mesh_tensorflow.transformer import transformer

import synth_mtf
from tests import harness, reference

BATCH, HEADS, D_KV, LENGTH, D_MODEL, MAX_LENGTH = 2, 3, 5, 7, 11, 13
FACTORED = 21  # FactorizedDense makes it of 3 and 7
MEMORY_LENGTH, MEMORY_MAX_LENGTH = 9, FACTORED  # of the encoder's output

MakeFunction = Callable[..., synth_mtf.SynthesizingFunction]


@dataclasses.dataclass(frozen=True)
class Rows:
  """Segments of a batch; 0 is padding."""

  ids: npt.NDArray[Any]  # of the layer's rows, [batch..., length]
  inputs: npt.NDArray[Any]  # of the encoder's, [batch..., memory_length]

  @property
  def packed(self) -> bool:
    return bool((self.ids > 1).any())


# Also a row of one token, and one of nothing but padding.
PADDED = Rows(
  np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1] + [0] * 6, [0] * 7]),
  np.array([[1] * 5 + [0] * 4, [1] * 9, [1] + [0] * 8, [0] * 9]),
)
PACKED = Rows(
  np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0], [0] * 7]),
  np.array([[1, 1, 2, 2, 2, 2, 3, 3, 3], [1, 1, 1, 1, 2, 0, 0, 0, 0], [0] * 9]),
)
both_rows = pytest.mark.parametrize(
  'rows, stack',
  [
    pytest.param(
      *(PADDED, harness.ENCODER), id='encoder-padded', marks=pytest.mark.slow
    ),
    pytest.param(PACKED, harness.DECODER, id='decoder-packed'),
  ],
)
_SETTINGS = {'num_heads': HEADS, 'key_value_size': D_KV, 'packed': False}


@dataclasses.dataclass(frozen=True)
class Member:
  """A layer with synthesizing functions, and the same in NumPy."""

  synthesizers: tuple[MakeFunction, ...]
  formulas: tuple[reference.Function, ...]
  settings: Mapping[str, Any] = dataclasses.field(
    default_factory=lambda: _SETTINGS
  )
  tolerance: float = harness.TOLERANCE['float32']  # of gradients
  layer: Callable[..., transformer.TransformerLayer] = (
    synth_mtf.SyntheticAttention
  )

  def __call__(self) -> transformer.TransformerLayer:
    return self.layer(synthesizers=list(self.synthesizers), **self.settings)

  @property
  def reference(self) -> reference.Layer:
    names = {field.name for field in dataclasses.fields(reference.Layer)}
    names &= {*self.settings}
    return reference.Layer(
      self.formulas, **{name: self.settings[name] for name in names}
    )

  @property
  def is_cross_attention(self) -> bool:
    return self.layer is synth_mtf.SyntheticEncDecAttention

  def but(self, **settings: Any) -> 'Member':
    """The member with other settings of the layer."""
    return dataclasses.replace(self, settings={**self.settings, **settings})

  def of_size(self, **sizes: Any) -> 'Member':
    """The member with other settings of the functions that have them."""
    return dataclasses.replace(
      self, synthesizers=tuple(_resized(m, sizes) for m in self.synthesizers)
    )

  def functions(self) -> list[synth_mtf.SynthesizingFunction]:
    return [make() for make in self.synthesizers]

  def takes(self, setting: str) -> bool:
    """Whether one of its functions, or a function inside it, has a setting."""
    return any(_takes(make, setting) for make in self.synthesizers)

  def __add__(self, other: 'Member') -> 'Member':
    return dataclasses.replace(
      self,
      synthesizers=self.synthesizers + other.synthesizers,
      formulas=self.formulas + other.formulas,
      tolerance=max(self.tolerance, other.tolerance),
    )


def _takes(make: MakeFunction, setting: str) -> bool:
  inner = getattr(make, 'keywords', {}).get('inner')
  return setting in inspect.signature(make).parameters or bool(
    inner and _takes(inner, setting)
  )


def _resized(make: MakeFunction, sizes: Mapping[str, Any]) -> MakeFunction:
  own = inspect.signature(make).parameters
  changes = {name: size for name, size in sizes.items() if name in own}
  inner = getattr(make, 'keywords', {}).get('inner')
  if inner:
    changes['inner'] = _resized(inner, sizes)
  return functools.partial(make, **changes)


def single(
  function: MakeFunction, formula: reference.Function, **settings: Any
) -> Member:
  """The member with one function, of `MAX_LENGTH` if it has a table."""
  if 'max_length' in inspect.signature(function).parameters:
    settings = {'max_length': MAX_LENGTH, **settings}
  return Member((functools.partial(function, **settings),), (formula,))


def across(member: Member) -> Member:
  """The member in cross-attention: tables have a column per input token."""
  return dataclasses.replace(
    member.of_size(memory_max_length=MEMORY_MAX_LENGTH),
    layer=synth_mtf.SyntheticEncDecAttention,
  )


_PATTERNS = 'previous', 'left', 'start'


def bottleneck(
  inner: MakeFunction, formula: Callable[..., Any], scope: str, **settings: Any
) -> Member:
  """BottleneckDense with this function inside."""
  formula = functools.partial(formula, scope=f'bottleneck_dense/{scope}')
  return single(
    synth_mtf.BottleneckDense,
    functools.partial(reference.bottleneck, inner=formula),
    bottleneck_size=2,
    inner=functools.partial(inner, max_length=MAX_LENGTH, **settings),
  )


V = single(synth_mtf.DotProduct, reference.dot_product)
R = single(synth_mtf.Random, reference.random)
FR = single(synth_mtf.FactorizedRandom, reference.factorized_random, rank=4)
D = single(synth_mtf.Dense, reference.dense)
FD = single(
  synth_mtf.FactorizedDense, reference.factorized_dense, max_length=FACTORED
)

VARIANTS = {
  'vanilla': V,
  'random': R,
  'frozen_vanilla': single(
    synth_mtf.DotProduct, reference.dot_product, trainable=False
  ),
  'fixed_random': single(synth_mtf.Random, reference.random, trainable=False),
  'factorized_random': FR,
  'dense': D,
  'factorized_dense': FD,
  'random_dense': R + D,
  'dense_vanilla': D + V,
  'random_vanilla': R + V,
  'factorized_random_vanilla': FR + V,
  'factorized_random_dense': FR + D,
  'random_dense_vanilla': R + D + V,
  'mlp_mixer': R.but(normalize=None),
  'convolution': single(
    synth_mtf.ConvolutionalDense,
    reference.convolution,
    relu=False,
    filter_width=3,
  ),
  'conv_relu_conv': single(
    synth_mtf.ConvolutionalDense, reference.conv_relu_conv, filter_width=3
  ),
  **{
    f'conv_relu_conv_{width}': single(
      synth_mtf.ConvolutionalDense,
      reference.conv_relu_conv,
      filter_width=width,
    )
    for width in (5, 7)
  },
  'bottleneck_dense': bottleneck(synth_mtf.Dense, reference.dense, 'dense'),
  'bottleneck_conv_relu_conv': bottleneck(
    synth_mtf.ConvolutionalDense,
    reference.conv_relu_conv,
    'convolutional_dense',
    filter_width=3,
  ),
  'glu': single(synth_mtf.GatedDense, reference.gated),
  'fixed_patterns': dataclasses.replace(
    single(
      synth_mtf.FixedPatterns,
      functools.partial(reference.patterns, names=_PATTERNS, size=MAX_LENGTH),
      patterns=_PATTERNS,
    ),
    # The gradient of alpha sums logits of -30, which cancel.
    tolerance=3e-5,
  ),
}

# The D of mesh_tensorflow's own Synthesizer.
SHARED = D.of_size(shared_query=True, shared_heads=True)
_BIASED = ('dense', 'conv_relu_conv', 'glu', 'factorized_dense')

# Members without a gin file: settings and combinations of functions that the
# variants do not have.
MIXTURES = {
  'shared_dense': SHARED,
  'shared_dense_vanilla': (SHARED + V).but(mixing='layer_sigmoid'),
  **{f'biased_{n}': VARIANTS[n].of_size(use_bias=True) for n in _BIASED},
  'factorized_random_factorized_dense_vanilla': FR + FD + V,
  'convolution_random_patterns': (
    VARIANTS['conv_relu_conv'] + R + VARIANTS['fixed_patterns']
  ),
  'biased_values_random': R.but(value_bias=True),
  'biased_values_random_vanilla': (R + V).but(value_bias=True),
  'biased_values_mlp_mixer': R.but(value_bias=True, normalize=None),
  'random_random': R
  + single(
    synth_mtf.Random, functools.partial(reference.random, scope='random_1')
  ),
}

# The functions of synthesize_mode = "..." in our layer.
AS_ORIGINAL = {
  'as_original_random': R,
  'as_original_random_plus': R + V,
  'as_original_random_plus_alpha': R + V,
  'as_original_dense_minus': SHARED,
  'as_original_dense_plus': SHARED + V,
  'as_original_dense_plus_alpha': SHARED + V,
}

CROSS_VARIANTS = {
  f'cross_{name}': across(VARIANTS[name])
  for name in (
    *('vanilla', 'random', 'fixed_random', 'factorized_random', 'dense'),
    *('factorized_dense', 'random_dense', 'random_vanilla', 'dense_vanilla'),
    *('factorized_random_vanilla', 'factorized_random_dense'),
  )
}

# Cross-attention without a gin file.
CROSS_MIXTURES = {
  **{
    f'cross_{name}': across(VARIANTS[name])
    for name in ('conv_relu_conv', 'bottleneck_dense', 'glu', 'mlp_mixer')
  },
  'cross_factorized_dense_random_vanilla': across(FD + R + V),
  'cross_biased_values': across((R + V).but(value_bias=True)),
  'cross_tiles': across((R + FR).of_size(tile_length=4)),
}

ALL = {**VARIANTS, **MIXTURES}
CROSS = {**CROSS_VARIANTS, **CROSS_MIXTURES}
SINGLE = {n: m for n, m in VARIANTS.items() if len(m.synthesizers) == 1}
# Single functions, and mixtures that cover what mixtures add.
_FEW = {
  *SINGLE,
  *('cross_random', 'cross_factorized_dense', 'cross_tiles'),
  *('random_dense_vanilla', 'random_random'),
  *('shared_dense_vanilla', 'biased_dense', 'biased_values_random'),
  *('biased_values_random_vanilla', 'cross_biased_values'),
  'cross_factorized_dense_random_vanilla',
}
FEW = {n: m for n, m in {**ALL, **CROSS}.items() if n in _FEW}


def some(*names: str) -> pytest.MarkDecorator:
  """Parametrizes a test by `member`, for a few members by name."""
  members = {**ALL, **CROSS}
  return pytest.mark.parametrize(
    'member', [pytest.param(members[name], id=name) for name in names]
  )


def every(
  members: Mapping[str, Member], takes: str | None = None
) -> pytest.MarkDecorator:
  """Parametrizes a test by `member`, of all that have a setting.

  Most mixtures are slow.
  """
  return pytest.mark.parametrize(
    'member',
    [
      pytest.param(
        member, id=name, marks=[] if name in _FEW else pytest.mark.slow
      )
      for name, member in members.items()
      if takes is None or member.takes(takes)
    ],
  )


def one_in(count: int, cases: Iterable[Any]) -> list[Any]:
  """Similar cases of a test, of which only one in `count` is not slow."""
  return [
    pytest.param(
      *(case if isinstance(case, tuple) else (case,)),
      marks=pytest.mark.slow if number % count else [],
    )
    for number, case in enumerate(cases)
  ]


def tokens(sequence_id: npt.ArrayLike) -> npt.NDArray[np.float32]:
  """The input of a layer, [..., length, d_model], padding included."""
  return harness.draw('x', [*np.shape(sequence_id), D_MODEL])


def encoded(sequence_id: npt.ArrayLike) -> harness.Encoded:
  """An encoder's output for these rows, padding included."""
  shape = [*np.shape(sequence_id), D_MODEL]
  return harness.Encoded(harness.draw('memory', shape), np.asarray(sequence_id))


def float64(
  arrays: Mapping[str, npt.NDArray[Any]],
) -> dict[str, npt.NDArray[np.float64]]:
  return {name: array.astype(np.float64) for name, array in arrays.items()}
