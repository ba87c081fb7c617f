"""Installed commands, each in a process forked from one that imported for all.

That process, the server, imports what all of them import first, which takes
longer than most of them, and does nothing else: a fork has no thread of the
runtime of TensorFlow. Each command is then run by its installed script itself.
"""

import contextlib
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Most of what `synth-mtf transformer` imports.
IMPORTS = ('synth_mtf', 't5.models.mesh_transformer_main', 't5.data.mixtures')
# Starts of the names of variables that are read during an import. XLA reads
# XLA_FLAGS later.
_OF_IMPORTS = (
  *('CUDA_', 'HOME', 'JAX_', 'KMP_', 'LD_', 'MPL', 'OMP_', 'PYTHON', 'TF_'),
  *('TPU_', 'XDG_'),
)
_HASH_SEED = 'PYTHONHASHSEED'
_HERE = os.path.dirname(__file__)
# Not a script of the shell, which changes the environment.
_CLIENT = """#!{} -IS
import sys
sys.path.insert(0, {!r})
import forked
forked.main({!r}, {!r}, *sys.argv[1:])
"""


class Failed(Exception):
  """A command ended with an error; holds the end of its output."""


@contextlib.contextmanager
def programs(
  *modules: str,
  python: pathlib.Path = pathlib.Path(sys.executable),
  env: Mapping[str, str] = os.environ,
  cwd: Any = None,
) -> Iterator[pathlib.Path]:
  """Yields a folder of programs, to be used like those that are installed.

  A program whose environment differs from `env` in what imports read is not
  forked, but a process as any other. Otherwise PYTHONHASHSEED is 0.

  Args:
    *modules: what is imported for all.
    python: the interpreter, beside which the programs are installed.
    env: the environment of the imports.
    cwd: the folder of the imports.
  """
  with (
    tempfile.TemporaryDirectory() as folder,
    socket.socket(socket.AF_UNIX) as listening,
  ):
    address = f'{folder}/server'
    listening.bind(address)
    listening.listen(64)
    for name in ('synth-mtf', 't5_mesh_transformer'):
      program = pathlib.Path(folder, name)
      installed = str(python.with_name(name))
      program.write_text(_CLIENT.format(python, _HERE, address, installed))
      program.chmod(0o755)
    with subprocess.Popen(
      [python, __file__, str(listening.fileno()), *modules],
      env={**env, _HASH_SEED: '0'},
      cwd=cwd,
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      pass_fds=[listening.fileno()],
      start_new_session=True,  # whoever interrupts the tests ends it by EOF
    ):
      listening.close()  # so that a server that fails does not keep us waiting
      yield pathlib.Path(folder)


@contextlib.contextmanager
def commands(
  log: pathlib.Path,
  *modules: str,
  env: Mapping[str, str] = os.environ,
  **options: Any,
) -> Iterator[Callable[..., None]]:
  """Yields a function of a command's words and of variables for it.

  Args:
    log: holds the output of the last command.
    *modules: what is imported first.
    env: the variables of all commands.
    **options: of `programs`.
  """
  env = {**env, 'TF_CPP_MIN_LOG_LEVEL': '3'}
  with programs(*modules, env=env, **options) as folder:

    def run(name: str, *words: str, **variables: str) -> None:
      with log.open('wb') as output:
        done = subprocess.run(
          [folder / name, *words],
          env={**env, **variables},
          cwd=options.get('cwd'),
          stdout=output,
          stderr=output,
          check=False,
        )
      if done.returncode:
        raise Failed(f'{name} {words}: {log.read_text()[-3000:]}')

    yield run


def serve(listening: socket.socket, *modules: str) -> None:
  """Forks for each client, until standard input is closed."""
  del sys.path[0]  # the folder of this file, not of the command
  before = dict(os.environ)
  for module in modules:
    importlib.import_module(module)
  added = {k: v for k, v in os.environ.items() if k not in before}
  gc.freeze()  # so that the forks share what was imported
  while sys.stdin not in select.select([sys.stdin, listening], [], [])[0]:
    client, _ = listening.accept()
    with contextlib.suppress(ChildProcessError):  # there is none yet
      while os.waitpid(-1, os.WNOHANG)[0]:  # supervisors that have ended
        pass
    if not os.fork():
      listening.close()
      _supervise(client, before, added)
      os._exit(0)
    client.close()


def _supervise(
  client: socket.socket, before: Mapping[str, str], added: Mapping[str, str]
) -> None:
  """Runs the command of a client in a fork, which dies with the client."""
  _, (*files, content), *_ = socket.recv_fds(client, 1, 4)
  with open(content, encoding='utf-8') as opened:
    opened.seek(0)
    request = json.load(opened)
  if _of_imports(request['environment']) != _of_imports(before):
    client.sendall(b'null')
    return
  child = os.fork()
  if not child:
    client.close()
    _become(request, files, added)
  for file in files:  # so that its readers see the end
    os.close(file)
  ended = os.pidfd_open(child)
  while ended not in select.select([client, ended], [], [])[0]:
    # The numbers of signals, or nothing from a client that is dead.
    for number in client.recv(100) or [signal.SIGKILL]:
      os.kill(child, number)
  _, status = os.waitpid(child, 0)
  with contextlib.suppress(BrokenPipeError):
    client.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode())


def _of_imports(environment: Mapping[str, str]) -> dict[str, str]:
  found = {k: v for k, v in environment.items() if k.startswith(_OF_IMPORTS)}
  return {_HASH_SEED: '0', **found}


def _become(
  request: dict[str, Any], files: list[int], added: Mapping[str, str]
) -> None:
  """Becomes the command; does not return."""
  for number, file in enumerate(files):
    os.dup2(file, number)
    os.close(file)
  os.chdir(request['folder'])
  os.environ.clear()
  os.environ.update({**added, _HASH_SEED: '0', **request['environment']})
  for number in request['ignored']:
    signal.signal(number, signal.SIG_IGN)
  if 'numpy' in sys.modules:
    sys.modules['numpy'].random.seed()  # Python seeds its own
  sys.argv = request['words']
  program = sys.argv[0]
  sys.path.insert(0, os.path.dirname(program))
  runpy.run_path(program, run_name='__main__')
  sys.exit()


if __name__ == '__main__':
  serve(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:])
