"""A stand-in for pip and uv on a made-up VM: links what is installed here.

It is the VM's module `pip`, which `make env` runs. It looks for the files that
it is given, downloads nothing, and puts itself in place of both programs. The
variable FROM names the environment with the packages.
"""

import itertools
import os
import pathlib
import shutil
import sys
import sysconfig

FROM = 'MADE_UP_PIP_FROM'
_FILES = ('-c', '--constraint', '-r', '--requirement')
_PLUGIN = pathlib.Path(__file__).resolve().parent / 'pjrt' / 'made_up_tpu.py'
_PACKAGES = pathlib.Path(sysconfig.get_path('purelib'))
_PROGRAMS = pathlib.Path(sys.prefix, 'bin')


def main(command: str, *words: str) -> None:
  """Runs a command of pip, or of `uv pip`."""
  if command == 'config':
    return
  assert command == 'install', command
  for flag, file in itertools.pairwise(words):
    assert flag not in _FILES or os.path.isfile(file), file
  if '--editable' in words:
    _link(os.environ[FROM], os.getcwd())
  elif words[-1] == 'uv':
    _become_pip_and_uv()
  elif words[-1] == 'jax[tpu]':
    (_PACKAGES / 'jax_plugins').mkdir()
    shutil.copy(_PLUGIN, _PACKAGES / 'jax_plugins')


def _become_pip_and_uv() -> None:
  this = f'exec {sys.executable} -m pip "$@"\n'
  _program('pip', f'#!/bin/sh\n{this}')
  _program('uv', f'#!/bin/sh\nshift\n{this}')


def _link(source: str, checkout: str) -> None:
  """Links a checkout and, behind it, the packages of an environment."""
  packages = sysconfig.get_path('purelib', vars={'base': source})
  # `addsitedir` reads the .pth files there, too.
  (_PACKAGES / 'links.pth').write_text(
    f'{checkout}\nimport site; site.addsitedir({packages!r})\n'
  )
  installed = pathlib.Path(source, 'bin', 'synth-mtf').read_text()
  _, _, body = installed.partition('\n')
  _program('synth-mtf', f'#!{sys.executable}\n{body}')


def _program(name: str, body: str) -> None:
  path = _PROGRAMS / name
  path.unlink(missing_ok=True)
  path.write_text(body)
  path.chmod(0o755)


if __name__ == '__main__':
  main(*sys.argv[1:])
