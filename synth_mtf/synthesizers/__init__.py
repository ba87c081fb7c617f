"""The synthesizing functions S(X), one a file."""

from synth_mtf.synthesizers.base import SynthesizingFunction
from synth_mtf.synthesizers.bottleneck_dense import BottleneckDense
from synth_mtf.synthesizers.convolutional_dense import ConvolutionalDense
from synth_mtf.synthesizers.dense import Dense
from synth_mtf.synthesizers.dot_product import DotProduct
from synth_mtf.synthesizers.factorized_dense import FactorizedDense
from synth_mtf.synthesizers.factorized_random import FactorizedRandom
from synth_mtf.synthesizers.fixed_patterns import FixedPatterns
from synth_mtf.synthesizers.gated_dense import GatedDense
from synth_mtf.synthesizers.random import Random

__all__ = [
  'BottleneckDense',
  'ConvolutionalDense',
  'Dense',
  'DotProduct',
  'FactorizedDense',
  'FactorizedRandom',
  'FixedPatterns',
  'GatedDense',
  'Random',
  'SynthesizingFunction',
]
