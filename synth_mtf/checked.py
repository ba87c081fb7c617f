"""Has gin check each run of T5's main ahead of its first step.

Importing this module does it: `import synth_mtf.checked` in a gin file.
"""

import gin

from synth_mtf import preflight

gin.config.register_finalize_hook(preflight.check_run)
