"""Runs commands of t5_mesh_transformer, one a line of standard input.

Each runs the installed script itself, in a process of its own that is forked
from this one. What every command imports first is imported once, here: that
takes longer than most of them.
"""

import json
import os
import re
import runpy
import shutil
import sys

import t5.models.mesh_transformer_main  # noqa: F401

IMPORTS = ('--module_import=synth_mtf', '--module_import=synth_mtf.tasks')


def main(log: str) -> None:
  for line in sys.stdin:
    child = os.fork()
    if not child:
      _run(json.loads(line), log)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)


def _run(words: list[str], log: str) -> None:
  """Becomes the command, which cannot take our flags; does not return."""
  output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
  os.dup2(output, 1)
  os.dup2(output, 2)
  script = shutil.which('t5_mesh_transformer')
  assert script is not None
  sys.argv = [script, *IMPORTS]
  for word in words:
    if flag := re.fullmatch('--(data_dir|vocabulary)=(.*)', word):
      os.environ[f'SYNTH_MTF_{flag[1].upper()}'] = flag[2]
    else:
      sys.argv.append(word)
  runpy.run_path(script, run_name='__main__')


if __name__ == '__main__':
  main(sys.argv[1])
