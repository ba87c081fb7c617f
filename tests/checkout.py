"""A fresh clone of the project, and its plain installation."""

import pathlib
import shutil
import subprocess
import sys
import sysconfig

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
# Names with a leading dot that belong to the project.
HIDDEN = ('.ci', '.gitignore', '.pre-commit-config.yaml')


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
  for words in (
    [sys.executable, '-m', 'venv', '--without-pip', str(venv)],
    [sys.executable, '-m', 'pip', '--python', str(python), '--quiet']
    + ['install', '--no-deps', '--no-build-isolation', str(copy)],
  ):
    done = subprocess.run(
      words, cwd='/', capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    (site_packages / 'host.pth').write_text(sysconfig.get_path('purelib'))
  return python.parent
