"""The module that gin files import for `synth_mtf.train_with_progress`.

Saved operative_config.gin files import it too, so its name must not change; the
code is in `synth_mtf.run.training`.
"""

from synth_mtf.run.training import train_with_progress

__all__ = ['train_with_progress']
