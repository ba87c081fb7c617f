"""The name that saved operative_config.gin files have for T5's optimizer."""

import gin
import mesh_tensorflow as mtf


@gin.configurable(module='synth_mtf')
class Adafactor(mtf.optimize.AdafactorOptimizer):
  """T5's own Adafactor (arXiv 1804.04235), with its gin bindings."""
