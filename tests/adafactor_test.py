"""The optimizer by the name that older runs have for it."""

import gin
import mesh_tensorflow as mtf

import synth_mtf


def test_older_runs_name_the_hosts_optimizer():
  gin.parse_config(
    """
    utils.run.optimizer = @synth_mtf.Adafactor
    AdafactorOptimizer.decay_rate = 0.5
    """,
    skip_unknown=['utils.run'],
  )
  made = synth_mtf.Adafactor(learning_rate=0.1)
  assert isinstance(made, mtf.optimize.AdafactorOptimizer)
  assert made._decay_rate == 0.5  # noqa: SLF001
