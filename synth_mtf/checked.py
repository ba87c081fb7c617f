"""Has gin check each run of T5's main before its first step.

Importing this module does it: `import synth_mtf.checked` in a gin file. What is
checked is in `synth_mtf.run.checks`.
"""

import gin

from synth_mtf.run import checks

gin.config.register_finalize_hook(checks.check_run)
