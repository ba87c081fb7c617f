"""Has each evaluation of T5's main leave metrics.json and predictions.jsonl.

Importing this module does it: `import synth_mtf.recorded` in a gin file. What
is written is said in docs/runs.md.
"""

from synth_mtf.host import evaluation
from synth_mtf.run.recording import Recorder

RECORDER = Recorder()
evaluation.observe(RECORDER)
evaluation.write_text()
