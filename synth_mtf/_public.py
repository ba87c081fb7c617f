"""The public names; importing them registers them with gin."""

import gin

from synth_mtf._paths import gin_path
from synth_mtf.attention import SyntheticAttention
from synth_mtf.baselines import Linformer
from synth_mtf.checkpoints import warm_start
from synth_mtf.synthesizers import *  # noqa: F403
from synth_mtf.synthesizers import __all__ as _functions

__all__ = ['Linformer', 'SyntheticAttention', 'warm_start', *_functions]

gin.add_config_file_search_path(gin_path())
