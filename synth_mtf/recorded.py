"""Writes metrics.json and predictions.jsonl at each evaluation of T5's main.

`import synth_mtf.recorded` in a gin file switches it on; docs/runs.md describes
the files.
"""

from synth_mtf.host import evaluation
from synth_mtf.run.recording import Recorder

RECORDER = Recorder()
evaluation.observe(RECORDER)
evaluation.write_text()
