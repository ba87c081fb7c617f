"""Checks each run of T5's main before its first step.

`import synth_mtf.checked` in a gin file enables this; `run/checks.py` holds the
checks.
"""

from synth_mtf.host import patches
from synth_mtf.run import checks

patches.before_each_run(checks.check_run)
patches.leave_out_byte_order_marks()
