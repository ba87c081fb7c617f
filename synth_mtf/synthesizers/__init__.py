"""The synthesizing functions S(X), one a file."""

from synth_mtf.synthesizers.base import SynthesizingFunction
from synth_mtf.synthesizers.dense import Dense
from synth_mtf.synthesizers.dot_product import DotProduct
from synth_mtf.synthesizers.factorized_dense import FactorizedDense
from synth_mtf.synthesizers.factorized_random import FactorizedRandom
from synth_mtf.synthesizers.random import Random

__all__ = [
  'Dense',
  'DotProduct',
  'FactorizedDense',
  'FactorizedRandom',
  'Random',
  'SynthesizingFunction',
]
