"""Checks each run of T5's main before its first step.

`import synth_mtf.checked` in a gin file enables this, and
`synth_mtf.run_on_devices`; `run/checks.py` holds the checks.
"""

from synth_mtf.host import patches
from synth_mtf.run import checks

patches.each_run_inside(checks.checked_run)
patches.types_of_gin(checks.takes_types_of_gin)
patches.leave_out_byte_order_marks()
