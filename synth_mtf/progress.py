"""What a gin file imports for `synth_mtf.train_with_progress`.

The name is part of the interface: gin files and the `operative_config.gin` of
runs import it. What it stands for is `synth_mtf.run.training`.
"""

from synth_mtf.run.attention_summaries import train_with_attention_summaries
from synth_mtf.run.training import (
  ProgressHook,
  listen,
  train_with_progress,
)

__all__ = [
  'ProgressHook',
  'listen',
  'train_with_attention_summaries',
  'train_with_progress',
]
