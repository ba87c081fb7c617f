"""Installed commands, each in a process forked from one that imported for all.

That process imports what all of them import first, which takes longer than most
of them. A command is then run by its installed script itself.
"""

import contextlib
import importlib
import json
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Failed(Exception):
  """A command ended with an error; holds the end of its output."""


@contextlib.contextmanager
def commands(
  log: pathlib.Path,
  *modules: str,
  python: pathlib.Path = pathlib.Path(sys.executable),
  env: Mapping[str, str] = os.environ,
  **options: Any,
) -> Iterator[Callable[..., None]]:
  """Yields a function of a command's words and of variables for it.

  Args:
    log: holds the output of the last command.
    *modules: what is imported first.
    python: the interpreter, beside which the commands are installed.
    env: the variables of all commands.
    **options: of subprocess.Popen.
  """
  environment = {
    **env,
    'PATH': f'{python.parent}:{env["PATH"]}',
    'PYTHONHASHSEED': '0',
    'TF_CPP_MIN_LOG_LEVEL': '3',
  }
  with subprocess.Popen(
    [python, __file__, log, *modules],
    env=environment,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    **options,
  ) as server:
    requests, statuses = server.stdin, server.stdout
    assert requests is not None and statuses is not None

    def run(*words: str, **variables: str) -> None:
      print(json.dumps([words, variables]), file=requests, flush=True)
      if int(statuses.readline()):
        raise Failed(f'{words}: {log.read_text()[-3000:]}')

    yield run
    requests.close()


def serve(log: str, *modules: str) -> None:
  """Runs the commands of standard input, one a line."""
  del sys.path[0]  # the folder of this file, not of the command
  for module in modules:
    importlib.import_module(module)
  for line in sys.stdin:
    child = os.fork()
    if not child:
      words, variables = json.loads(line)
      _become(words, variables, log)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)


def _become(words: list[str], variables: dict[str, str], log: str) -> None:
  """Becomes the command; does not return."""
  output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
  os.dup2(output, 1)
  os.dup2(output, 2)
  os.environ.update(variables)
  script = shutil.which(words[0])
  assert script is not None, words[0]
  sys.argv = [script, *words[1:]]
  sys.path.insert(0, os.path.dirname(script))
  runpy.run_path(script, run_name='__main__')


if __name__ == '__main__':
  serve(*sys.argv[1:])
