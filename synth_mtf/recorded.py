"""Writes metrics.json and predictions.jsonl at each evaluation of T5's main.

`import synth_mtf.recorded` in a gin file enables this; docs/runs.md describes
the files.
"""

import functools

from mesh_tensorflow.transformer import utils

from synth_mtf.host import patches
from synth_mtf.run import evaluations

patches.change_each_estimator(evaluations.recorded)
patches.change_lines_read(evaluations.counted)
patches.evaluate_with(
  eval_model=functools.partial(evaluations.eval_model, utils.eval_model),
  write_lines_to_file=evaluations.write_lines,
)
