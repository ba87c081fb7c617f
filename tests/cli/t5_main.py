"""T5's main in a test: by `synth-mtf transformer` or by the stock command."""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import gin
import pytest
import tensorflow.compat.v1 as tf
from absl import flags, logging
from absl.testing import flagsaver

from synth_mtf.cli import transformer
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


# What runs the stock command.
STOCK = (
  pytest.mark.stock_cli,
  pytest.mark.skipif(
    not importlib.util.find_spec('torch'),
    reason='t5_mesh_transformer needs torch (extra t5-cli)',
  ),
)


class Failed(Exception):
  """The stock command ended with an error; holds the end of its output."""


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
  """The stock command, which logs to a folder."""
  log = folder / 'stock.log'
  with subprocess.Popen(
    [sys.executable, '-m', 'tests.cli.stock', log],
    cwd=CHECKOUT,
    env={
      **os.environ,
      'PATH': f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}',
      'PYTHONHASHSEED': '0',
      'TF_CPP_MIN_LOG_LEVEL': '3',
    },
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as server:
    commands, statuses = server.stdin, server.stdout
    assert commands is not None and statuses is not None

    def run(*words: str) -> int:
      print(json.dumps(words), file=commands, flush=True)
      if int(statuses.readline()):
        raise Failed(log.read_text()[-3000:])
      return 0

    yield run
    commands.close()
