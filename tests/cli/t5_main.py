"""T5's main in a test: by `synth-mtf transformer` or by the stock command."""

import argparse
import os
import pathlib
import subprocess
import sys

import gin
import pytest
import tensorflow.compat.v1 as tf
from absl import flags, logging
from absl.testing import flagsaver

from synth_mtf.cli import transformer


def synth_mtf_transformer(*words) -> int:
  """Runs our command in this process, and leaves the process as it was."""
  from t5.models import mesh_transformer_main  # noqa: F401  defines its flags

  hooks = list(gin.config._FINALIZE_HOOKS)
  prefixes = list(gin.config._LOCATION_PREFIXES)
  verbosity = logging.get_verbosity()
  try:
    with flagsaver.flagsaver(), pytest.MonkeyPatch.context() as patch:
      patch.setenv('PYTHONHASHSEED', '0')
      return transformer.run(argparse.Namespace(flags=list(words)))
  finally:
    gin.config._FINALIZE_HOOKS[:] = hooks
    gin.config._LOCATION_PREFIXES[:] = prefixes
    gin.clear_config()
    flags.FLAGS.unparse_flags()
    logging.set_verbosity(verbosity)
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.reset_default_graph()


def t5_mesh_transformer(*words) -> int:
  """Runs the stock command, which cannot take flags of ours."""
  settings = {}
  for flag in ('data_dir', 'vocabulary'):
    for word in words:
      if word.startswith(f'--{flag}='):
        settings[f'SYNTH_MTF_{flag.upper()}'] = word.split('=', 1)[1]
  done = subprocess.run(
    [
      pathlib.Path(sys.executable).with_name('t5_mesh_transformer'),
      '--module_import=synth_mtf',
      '--module_import=synth_mtf.tasks',
      *(w for w in words if not w.startswith(('--data_dir=', '--vocabulary='))),
    ],
    env={
      **os.environ,
      **settings,
      'PYTHONHASHSEED': '0',
      'TF_CPP_MIN_LOG_LEVEL': '3',
    },
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done.returncode
