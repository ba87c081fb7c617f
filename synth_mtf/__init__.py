"""Synthesizer (arXiv 2005.00743) for Mesh-TensorFlow T5 models.

Importing registers the public names with gin and adds our gin folder to gin's
search path; it does nothing else. The `synth-mtf` command does the same only
when a subcommand needs it (`run.process.load_plugin`).
"""

from synth_mtf.host.shims import prepare_host
from synth_mtf.paths import gin_path as gin_path
from synth_mtf.run.process import is_command

__version__ = '0.1.0'

if not is_command():
  prepare_host()
  from synth_mtf._public import *  # noqa: F403
