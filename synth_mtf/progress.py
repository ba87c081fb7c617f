"""What a gin file imports for `synth_mtf.train_with_progress`.

Gin files and the operative_config.gin of runs import this name; the code is in
`synth_mtf.run.training`.
"""

from synth_mtf.run.attention_summaries import train_with_attention_summaries
from synth_mtf.run.training import train_with_progress

__all__ = ['train_with_attention_summaries', 'train_with_progress']
