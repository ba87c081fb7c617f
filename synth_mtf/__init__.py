"""Synthesizer (arXiv 2005.00743) for Mesh-TensorFlow T5 models.

Importing registers the public names with gin and adds our gin folder to gin's
search path; it does nothing else. The `synth-mtf` command does the same only
when a subcommand needs it (`launcher.load_plugin`).
"""

from synth_mtf._paths import gin_path as gin_path
from synth_mtf.launcher import is_command, prepare_host

if not is_command():
  prepare_host()
  from synth_mtf._public import *  # noqa: F403
