"""Runs `synth-mtf` commands in copies of a process that has imported the host.

To import it takes 6 s, which is a large part of a short training. Python's own
fork server imports it once; a command has a process of its own nevertheless, as
on the command line.
"""

import multiprocessing
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import forkserver

from synth_mtf import cli

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
_CONTEXT = multiprocessing.get_context('forkserver')
_PRELOADED = 'benchmarks._preloaded'


def start() -> None:
  """Starts the process that is copied, unless it runs."""
  # Of a process that has begun, the seed of hashes and where modules are found
  # stand: it gets them here.
  environment = dict(os.environ)
  found_in = os.environ.get('PYTHONPATH', '')
  os.environ.update(PYTHONHASHSEED='0', PYTHONPATH=f'{CHECKOUT}:{found_in}')
  _CONTEXT.set_forkserver_preload([_PRELOADED])
  try:
    forkserver.ensure_running()
  finally:
    os.environ.clear()
    os.environ.update(environment)


def call(words: Sequence[str], log: pathlib.Path) -> int:
  """Runs a `synth-mtf` command on one core, from the checkout, in a copy.

  Args:
    words: the command line.
    log: a file, to which what the command writes is added.

  Returns:
    The exit status.
  """
  process = _CONTEXT.Process(target=_run, args=(words, str(log)))
  process.start()
  process.join()
  return process.exitcode or 0


def call_alone(words: Sequence[str], log: pathlib.Path) -> int:
  """Does the same with any command, on all cores, in a process of its own."""
  with log.open('a', encoding='utf-8') as file:
    done = subprocess.run(
      words, cwd=CHECKOUT, stdout=file, stderr=file, check=False
    )
  return done.returncode


def _run(words: Sequence[str], log: str) -> None:
  with open(log, 'ab', buffering=0) as file:
    for descriptor in (1, 2):
      os.dup2(file.fileno(), descriptor)
  os.chdir(CHECKOUT)
  os.environ.update(TF_NUM_INTRAOP_THREADS='1', TF_NUM_INTEROP_THREADS='1')
  sys.argv = list(words)
  sys.exit(cli.main())
