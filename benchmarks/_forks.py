"""Runs `synth-mtf` of this checkout in processes that have imported it.

Importing TensorFlow and T5 takes as long as some hundred steps of a small
model. The processes are forks of a server that imports both and does nothing
else: a fork has no thread of the runtime of TensorFlow.
"""

import multiprocessing
import os
import pathlib
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from unittest import mock

from benchmarks._worker import HERE

_IMPORTS = ('synth_mtf.cli', 't5.models.mesh_transformer_main')
_CONTEXT = multiprocessing.get_context('forkserver')
_CONTEXT.set_forkserver_preload([*_IMPORTS])
# Starting a process also looks whether others have ended.
_LOCK = threading.Lock()


def run(
  words: Sequence[str], log: pathlib.Path, environment: Mapping[str, str]
) -> int:
  """Runs a command, from any thread, and returns its exit status.

  Args:
    words: the command line, without the program.
    log: file to which its output is added.
    environment: variables that it has besides those of this process.
  """
  process = _CONTEXT.Process(target=_become, args=(words, log, environment))
  # The server may start, too; without the variable, its forks start again.
  with _LOCK, mock.patch.dict(os.environ, PYTHONHASHSEED='0'):
    process.start()
  connection.wait([process.sentinel])
  with _LOCK:
    process.join()
  assert process.exitcode is not None
  return process.exitcode


def _become(
  words: Sequence[str], log: pathlib.Path, environment: Mapping[str, str]
) -> None:
  """Becomes the command; does not return."""
  with log.open('a', encoding='utf-8') as file:
    for descriptor in (1, 2):
      os.dup2(file.fileno(), descriptor)
  os.environ.update(environment)
  os.chdir(HERE)
  sys.argv = ['synth-mtf', *words]

  from synth_mtf import cli
  from synth_mtf.demo import processes

  with processes.at_exit():
    sys.exit(cli.main())
