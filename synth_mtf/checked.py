"""Has gin check each run of T5's main before its first step.

Importing this module does it: `import synth_mtf.checked` in a gin file. What is
checked is in `synth_mtf.run.preflight`.
"""

import gin

from synth_mtf.run import preflight

gin.config.register_finalize_hook(preflight.check_run)
