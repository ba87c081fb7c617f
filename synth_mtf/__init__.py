"""Synthesizer (arXiv 2005.00743) for Mesh-TensorFlow T5 models.

Importing registers the public names with gin and adds our gin folder to gin's
search path; it does nothing else. The `synth-mtf` command does the same only
when a subcommand needs it (`run.process.load_plugin`).
"""

from typing import TYPE_CHECKING, Any

from synth_mtf.host.patches import prepare_host
from synth_mtf.paths import gin_path as gin_path, is_command

__version__ = '1.1.0'

if not is_command():
  prepare_host()
  from synth_mtf._public import *  # noqa: F403

if TYPE_CHECKING:
  # Synthesizing functions are discovered at import time, which a type checker
  # cannot see; with this, it accepts names such as `synth_mtf.Random`.
  def __getattr__(name: str) -> Any: ...
