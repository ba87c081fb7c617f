"""A fresh clone of the project, its plain installation, and its commands."""

import pathlib
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
# Names with a leading dot that belong to the project.
HIDDEN = (
  '.ci',
  '.dockerignore',
  '.github',
  '.gitignore',
  '.pre-commit-config.yaml',
)


def run(
  *words: Any,
  cwd: Any = CHECKOUT,
  check: bool = True,
  timeout: int | None = 3000,
  **options: Any,
) -> 'subprocess.CompletedProcess[str]':
  """Runs a command to its end; with `check`, it must not fail."""
  done = subprocess.run(
    words,
    cwd=cwd,
    capture_output=True,
    text=True,
    timeout=timeout,
    check=False,
    **options,
  )
  if check:
    assert not done.returncode, (
      f'{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}'
    )
  return done


def left_behind(folder: str, names: list[str]) -> list[str]:
  """The files in the checkout that are the user's, not the project's."""
  return [
    name
    for name in names
    if name == '__pycache__'
    or name.endswith('.egg-info')
    or folder == str(CHECKOUT)
    and (
      name in ('build', 'dist', 'synth-mtf-demo')
      or name.startswith('my_')
      or (name.startswith('.') and name not in HIDDEN)
    )
  ]


def copy_to(folder: pathlib.Path) -> pathlib.Path:
  return shutil.copytree(CHECKOUT, folder, symlinks=True, ignore=left_behind)


def install(copy: pathlib.Path) -> pathlib.Path:
  """Installs a copy into `.venv` in it, over the packages of this environment.

  Returns the folder of commands.
  """
  venv = copy / '.venv'
  python = venv / 'bin' / 'python'
  version = f'python{sys.version_info[0]}.{sys.version_info[1]}'
  site_packages = venv / 'lib' / version / 'site-packages'
  run(sys.executable, '-m', 'venv', '--without-pip', venv, cwd='/')
  host = sysconfig.get_path('purelib')
  # `addsitedir` reads the .pth files there, too: setuptools' is for distutils.
  (site_packages / 'host.pth').write_text(
    f'import site; site.addsitedir({host!r})'
  )
  pip = [sys.executable, '-m', 'pip', '--python', python, '--quiet', 'install']
  run(*pip, '--no-deps', '--no-build-isolation', copy, cwd='/')
  return python.parent
