"""Runs the `synth-mtf` command in this process."""

import contextlib
import io
import pathlib
import sys
from typing import Any

from synth_mtf import cli

# As installed, for a process of its own.
PROGRAM = str(pathlib.Path(sys.executable).with_name('synth-mtf'))


def run(*words: Any) -> tuple[int, str, str]:
  """Returns the exit status, and what was printed and what was complained."""
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    status = cli.main([str(w) for w in words])
  return status, out.getvalue(), err.getvalue()
