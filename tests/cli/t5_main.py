"""T5's main in a test: by `synth-mtf transformer` or by the stock command."""

import argparse
import contextlib
import importlib.util
import pathlib
import re
from collections.abc import Callable, Iterator

import gin
import pytest
import tensorflow.compat.v1 as tf
from absl import flags, logging
from absl.testing import flagsaver

from synth_mtf.cli import transformer
from tests import forks
from tests.conftest import CHECKOUT

# A small model on short rows of text, whose training repeats.
REPEATABLE = (
  '--gin_file=sizes/tiny.gin',
  '--gin_file=variants/random_vanilla.gin',
  '--gin_file=runs/pretrain_text.gin',
  '--gin_file=runs/cpu.gin',
  '--gin_file=runs/repeatable.gin',
  '--gin_param=num_layers = 1',
  "--gin_param=utils.run.sequence_length = {'inputs': 32, 'targets': 32}",
)
# T5's default again, after a file that sets a mesh.
NO_MESH = '--gin_param=utils.run.mesh_shape = @utils.tpu_mesh_shape()'
IMPORTS = ('--module_import=synth_mtf', '--module_import=synth_mtf.tasks')
# What runs the stock command.
HAS_STOCK = bool(
  importlib.util.find_spec('torch') and tf.__version__.startswith('2.12')
)
STOCK = (
  pytest.mark.stock_cli,
  pytest.mark.skipif(
    not HAS_STOCK,
    reason='t5_mesh_transformer needs torch (extra t5-cli) and TensorFlow 2.12',
  ),
)


def synth_mtf_transformer(*words: str) -> int:
  """Runs our command in this process, and leaves the process as it was."""
  from t5.models import mesh_transformer_main  # noqa: F401  defines its flags

  # gin does not take a search folder back.
  prefixes = list(gin.config._LOCATION_PREFIXES)  # noqa: SLF001
  verbosity = logging.get_verbosity()
  try:
    with flagsaver.flagsaver(), pytest.MonkeyPatch.context() as patch:
      patch.setenv('PYTHONHASHSEED', '0')
      return transformer.run(argparse.Namespace(flags=list(words)))
  finally:
    gin.config._LOCATION_PREFIXES[:] = prefixes  # noqa: SLF001
    gin.clear_config()
    flags.FLAGS.unparse_flags()
    logging.set_verbosity(verbosity)
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.reset_default_graph()


@contextlib.contextmanager
def t5_mesh_transformer(folder: pathlib.Path) -> Iterator[Callable[..., int]]:
  """The stock command, which logs to a folder and cannot take our flags."""
  main = 't5.models.mesh_transformer_main'
  with forks.commands(folder / 'stock.log', main, cwd=CHECKOUT) as command:

    def run(*words: str) -> int:
      ours = [
        re.fullmatch('--(data_dir|vocabulary|task_file|cache_dir)=(.*)', word)
        for word in words
      ]
      command(
        't5_mesh_transformer',
        *IMPORTS,
        *(word for word, flag in zip(words, ours, strict=True) if not flag),
        **{f'SYNTH_MTF_{flag[1].upper()}': flag[2] for flag in ours if flag},
      )
      return 0

    yield run
