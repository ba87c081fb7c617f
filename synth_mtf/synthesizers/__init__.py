"""The synthesizing functions S(X), one a file."""

from synth_mtf.synthesizers.base import SynthesizingFunction
from synth_mtf.synthesizers.dense import Dense
from synth_mtf.synthesizers.dot_product import DotProduct
from synth_mtf.synthesizers.random import Random

__all__ = ['Dense', 'DotProduct', 'Random', 'SynthesizingFunction']
