"""Writes metrics.json and predictions.jsonl at each evaluation of T5's main.

`import synth_mtf.recorded` in a gin file enables this; docs/runs.md describes
the files.
"""

from synth_mtf.host import patches
from synth_mtf.run import evaluations

RECORDER = evaluations.Recorder()
patches.evaluate_with(
  get_estimator=RECORDER.get_estimator,
  eval_model=RECORDER.eval_model,
  get_inputs_from_file=RECORDER.get_inputs_from_file,
  write_lines_to_file=evaluations.write_lines,
)
