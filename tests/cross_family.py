"""The members of the family in cross-attention, each beside its reference.

One `Member` for each gin/variants/cross_*.gin, under its name;
layer/enc_dec_attention_test.py fails when one is missing.
"""

import dataclasses
import functools

import numpy as np

import synth_mtf
from tests import family, harness, reference
from tests.family import BOTTLENECK_SIZE, FACTORED, FACTORS, MAX_LENGTH, RANK

MEMORY_LENGTH, MEMORY_MAX_LENGTH = 9, 17


class Member(family.Member):
  """A member whose layer attends to an encoder's output."""

  def maker(self, **settings):
    """Makes the layer; settings override the small sizes."""
    settings = {
      'num_heads': family.HEADS,
      'key_value_size': family.D_KV,
      'packed': False,
      'normalize': self.normalize,
      **settings,
    }
    return lambda: synth_mtf.SyntheticEncDecAttention(
      synthesizers=list(self.synthesizers), **settings
    )

  def __add__(self, other):
    return Member(**vars(super().__add__(other)))


def _table(function, columns=MEMORY_MAX_LENGTH, **settings):
  return functools.partial(
    function, max_length=MAX_LENGTH, memory_max_length=columns, **settings
  )


V = Member((synth_mtf.DotProduct,), (reference.dot_product(),))
R = Member(
  (_table(synth_mtf.Random),),
  (reference.random(MAX_LENGTH, MEMORY_MAX_LENGTH),),
  True,
)
FIX = Member((_table(synth_mtf.Random, trainable=False),), R.functions, True)
FR = Member(
  (_table(synth_mtf.FactorizedRandom, rank=RANK),),
  (reference.factorized_random(MAX_LENGTH, RANK, MEMORY_MAX_LENGTH),),
  True,
)
D = Member((_table(synth_mtf.Dense),), (reference.dense(MEMORY_MAX_LENGTH),))
FD = Member(
  (_table(synth_mtf.FactorizedDense, FACTORED, factors=FACTORS),),
  (reference.factorized_dense(*FACTORS),),
)
CRC = Member(
  (_table(synth_mtf.ConvolutionalDense, filter_width=3),),
  (reference.convolution(MEMORY_MAX_LENGTH, 3, True),),
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
      reference.dense(MEMORY_MAX_LENGTH, scope='bottleneck_dense/dense')
    ),
  ),
)
GLU = Member(
  (_table(synth_mtf.GatedDense),), (reference.gated(MEMORY_MAX_LENGTH),)
)
TILED = 4
TILES = Member(
  (
    _table(synth_mtf.Random, tile_length=TILED),
    _table(synth_mtf.FactorizedRandom, rank=RANK, tile_length=TILED),
  ),
  (
    reference.random(MAX_LENGTH, TILED),
    reference.factorized_random(MAX_LENGTH, RANK, TILED),
  ),
  True,
)

MEMBERS = {
  'cross_vanilla': V,
  'cross_random': R,
  'cross_fixed_random': FIX,
  'cross_factorized_random': FR,
  'cross_dense': D,
  'cross_factorized_dense': FD,
  'cross_random_dense': R + D,
  'cross_random_vanilla': R + V,
  'cross_dense_vanilla': D + V,
  'cross_factorized_random_vanilla': FR + V,
  'cross_factorized_random_dense': FR + D,
}
# What has no gin file.
MORE = {
  'conv_relu_conv': CRC,
  'bottleneck_dense': BOTTLENECK,
  'glu': GLU,
  'mlp_mixer': dataclasses.replace(R, normalize=None),
  'factorized_dense_random_vanilla': FD + R + V,
  'tiles': TILES,
}
ALL = {**MEMBERS, **MORE}


def encoded(sequence_id):
  """An encoder's output for these rows, padding included."""
  sequence_id = np.asarray(sequence_id)
  shape = [*sequence_id.shape, family.D_MODEL]
  return harness.Encoded(harness.draw('memory', shape), sequence_id)
