"""What is distributed, and that it works from anywhere; the make targets."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

import synth_mtf
from tests import checkout
from tests.checkout import CHECKOUT

pytestmark = pytest.mark.slow  # builds a wheel and starts processes

# Where a part of the checkout stands in an installation.
INSTALLED_AS = {
  'synth_mtf': 'synth_mtf',
  'gin': 'synth_mtf/gin',
  'tasks': 'synth_mtf/tasks',
}


def run(*words, **options):
  return subprocess.run(
    words, capture_output=True, text=True, timeout=300, check=False, **options
  )


def files(folder: pathlib.Path) -> set[str]:
  """The files below a folder, relative to it, but for Python's own."""
  return {
    str(path.relative_to(folder))
    for path in folder.rglob('*')
    if path.is_file() and '__pycache__' not in path.parts
  }


@pytest.fixture(scope='module')
def copy(tmp_path_factory) -> pathlib.Path:
  """A copy of the checkout, its links included."""
  return checkout.copy_to(tmp_path_factory.mktemp('copy') / 'checkout')


@pytest.fixture(scope='module')
def sdist(copy, tmp_path_factory) -> pathlib.Path:
  """A source distribution, built in the copy."""
  folder = tmp_path_factory.mktemp('sdist')
  words = ('setup.py', '--quiet', 'sdist', '--dist-dir', folder)
  done = run(sys.executable, *words, cwd=copy)
  assert done.returncode == 0, done.stderr
  assert 'warning: no files found matching' not in done.stderr
  (archive,) = folder.iterdir()
  return archive


@pytest.fixture(scope='module', params=['copy', 'sdist'])
def installed(request, tmp_path_factory) -> pathlib.Path:
  """A folder with an installed wheel, built from a checkout or an sdist."""
  source = request.getfixturevalue(request.param)
  folder = tmp_path_factory.mktemp('installed')
  pip = [sys.executable, '-m', 'pip', '--quiet']
  options = ['--no-deps', '--no-build-isolation', '--no-compile']
  done = run(*pip, 'install', *options, '--target', folder, source, cwd='/')
  assert done.returncode == 0, done.stderr
  return folder


def test_nothing_but_synth_mtf_is_a_top_level_name(installed):
  names = {path.name for path in installed.iterdir()}
  (metadata,) = (name for name in names if name.endswith('.dist-info'))
  assert names == {'synth_mtf', 'bin', metadata}
  assert [path.name for path in (installed / 'bin').iterdir()] == ['synth-mtf']


def test_every_file_is_in_it_and_no_other(installed):
  expected = {
    f'{there}/{name}'
    for here, there in INSTALLED_AS.items()
    for name in files(CHECKOUT / here)
  }
  found = files(installed / 'synth_mtf')
  assert {f'synth_mtf/{name}' for name in found} == expected
  assert 'gin/__init__.py' not in found


def test_the_command_is_in_it(installed):
  done = run(
    sys.executable,
    installed / 'bin' / 'synth-mtf',
    '--version',
    env={**os.environ, 'PYTHONPATH': str(installed)},
  )
  assert done.stdout == f'synth-mtf {synth_mtf.__version__}\n', done.stderr


def test_an_sdist_holds_the_checkout(copy, sdist):
  with tarfile.open(sdist) as archive:
    found = {name.partition('/')[2] for name in archive.getnames()}
  made = ('build/', 'synth_mtf.egg-info/')  # where the wheel was built
  ours = {name for name in files(copy) if not name.startswith(made)}
  assert ours - found == {'.gitignore'}
  for name in ('constraints.txt', 'constraints-tf2.15.txt', 'docs/results.md'):
    assert name in found
  assert not any('__pycache__' in name for name in found)


def test_the_version_is_the_same_everywhere():
  citation = (CHECKOUT / 'CITATION.cff').read_text()
  changes = (CHECKOUT / 'CHANGELOG.md').read_text()
  (version,) = re.findall(r'^version: (.*)$', citation, re.M)
  (date,) = re.findall(r'^date-released: "(.*)"$', citation, re.M)
  sections = re.findall(r'^## (.*)$', changes, re.M)
  assert version == synth_mtf.__version__
  assert sections[:2] == ['[Unreleased]', f'[{version}] - {date}']


def test_gin_files_and_tasks_are_found_from_another_folder(installed, tmp_path):
  script = tmp_path / 'look.py'
  script.write_text(
    'import gin, pathlib, synth_mtf, synth_mtf.tasks, seqio\n'
    'from synth_mtf.host import gin_files\n'
    'print(synth_mtf.__file__)\n'
    'print(synth_mtf.tasks.__file__)\n'
    'print(synth_mtf.gin_path())\n'
    'print(gin.__file__)\n'
    'print("synth_en_mix" in seqio.MixtureRegistry.names())\n'
    'variants = pathlib.Path(synth_mtf.gin_path(), "variants").glob("*.gin")\n'
    'for variant in variants:\n'
    '  gin_files.parse(["sizes/tiny.gin", str(variant)])\n'
  )
  done = run(
    sys.executable,
    script,
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': str(installed)},
  )
  assert done.returncode == 0, done.stderr
  package, tasks, gin_files, gin, has_mixture = done.stdout.splitlines()
  assert package == str(installed / 'synth_mtf' / '__init__.py')
  assert tasks == str(installed / 'synth_mtf' / 'tasks' / '__init__.py')
  assert gin_files == str(installed / 'synth_mtf' / 'gin')
  assert not gin.startswith(str(installed))
  assert has_mixture == 'True'


def test_metadata(installed):
  (metadata,) = installed.glob('synth_mtf-*.dist-info/METADATA')
  text = metadata.read_text()
  (python,) = re.findall(r'^Requires-Python: (.*)$', text, re.M)
  assert set(python.split(',')) == {'>=3.9', '<3.12'}
  required = re.findall(r'^Requires-Dist: ([\w-]+)(.*)$', text, re.M)
  always = {name for name, rest in required if 'extra ==' not in rest}
  assert 'torch' not in always
  assert {'t5', 'mesh-tensorflow', 'tensorflow'} <= always
  assert any(name == 'torch' and 't5-cli' in rest for name, rest in required)


def test_the_checkout_does_not_hide_gin_config():
  assert not (CHECKOUT / 'gin' / '__init__.py').exists()
  done = run(
    sys.executable, '-c', 'import gin; print(gin.bind_parameter)', cwd=CHECKOUT
  )
  assert done.returncode == 0, done.stderr


def python_of(folder, name, version):
  """Writes a program that answers like a Python of another version."""
  program = folder / name
  major, minor, _ = version.split('.')
  program.write_text(
    '#!/bin/sh\n'
    f'if [ "$1" = --version ]; then echo Python {version}; exit; fi\n'
    f'[ {major} = 3 ] && [ {minor} -ge 9 ] && [ {minor} -le 11 ]\n'
  )
  program.chmod(0o755)
  return program


def find_python(folder, *words):
  return run(
    '/bin/sh', CHECKOUT / '.ci' / 'find_python', *words, env={'PATH': folder}
  )


def test_a_wrong_python_is_refused_in_one_sentence(tmp_path):
  python_of(tmp_path, 'python3', '3.12.1')
  done = find_python(tmp_path)
  assert done.returncode == 1
  assert done.stdout == ''
  assert done.stderr == (
    'synth_mtf needs Python 3.9, 3.10 or 3.11, but python3 is Python 3.12.1; '
    'run make with another one: make PYTHON=/path/to/python3.11 ...\n'
  )


def test_a_suitable_python_is_found_after_a_wrong_one(tmp_path):
  python_of(tmp_path, 'python3', '3.13.0')
  suitable = python_of(tmp_path, 'python3.10', '3.10.13')
  assert find_python(tmp_path).stdout == f'{suitable}\n'


def test_a_python_that_was_named_is_the_only_candidate(tmp_path):
  python_of(tmp_path, 'python3', '3.11.7')
  old = python_of(tmp_path, 'old', '3.8.18')
  done = find_python(tmp_path, old)
  assert done.returncode == 1
  assert f'but {old} is Python 3.8.18;' in done.stderr


def test_this_python_is_suitable(tmp_path):
  done = find_python(tmp_path, sys.executable)
  assert done.stdout == f'{sys.executable}\n'


def make(*words, cwd=CHECKOUT):
  """What make would run; also where make itself runs the tests."""
  settings = [f'--unset={name}' for name in ('MAKEFLAGS', 'MAKELEVEL', 'TF')]
  return run('env', *settings, 'make', '-n', *words, cwd=cwd)


@pytest.mark.skipif(not shutil.which('make'), reason='make is not installed')
class TestMake:
  def test_makes_the_environment_only_if_need_be(self, tmp_path):
    for name in ('Makefile', 'setup.py', 'constraints.txt'):
      shutil.copy(CHECKOUT / name, tmp_path)
    assert 'pip install' in make('test', cwd=tmp_path).stdout
    (tmp_path / '.venv').mkdir()
    (tmp_path / '.venv' / '.installed').touch()
    again = make('test', cwd=tmp_path).stdout
    assert again.startswith('.venv/bin/python -m pytest ')

  def test_passes_arguments_on(self):
    done = make('demo', 'DEMO_ARGS=--steps 3')
    assert done.stdout.endswith('.venv/bin/synth-mtf demo --steps 3\n')

  def test_fast_tests_are_those_that_are_not_slow(self):
    done = make('test-fast', 'TEST_ARGS=-k NAME')
    (command,) = done.stdout.replace('\\\n', ' ').splitlines()[-1:]
    assert " -m 'not slow and not tpu_proof' -k NAME" in command
    assert ' -n 2 --dist loadfile ' in command

  def test_the_other_tensorflow_has_an_environment_of_its_own(self):
    done = make('test', 'TF=2.15')
    assert '.venv-tf2.15/bin/python -m pytest ' in done.stdout

  def test_an_unknown_tensorflow_is_refused(self):
    done = make('test', 'TF=2.13')
    assert done.returncode
    assert 'TF=2.13 is not supported: give TF=2.12 or TF=2.15' in done.stderr
