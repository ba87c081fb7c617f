"""What is distributed, and that it works from anywhere; the make targets."""

import os
import re
import shutil
import sys
import tarfile
import zipfile

import pytest

import synth_mtf
from tests import checkout
from tests.checkout import CHECKOUT, run

pytestmark = pytest.mark.slow  # builds a wheel and starts processes

# Where a part of the checkout stands in an installation.
INSTALLED_AS = {
  'synth_mtf': 'synth_mtf',
  'gin': 'synth_mtf/gin',
  'tasks': 'synth_mtf/tasks',
}
# Prints where things are found.
LOOK = """
import gin, pathlib, synth_mtf, synth_mtf.tasks, seqio
from synth_mtf.host import gin_files
for found in (synth_mtf, synth_mtf.tasks, gin):
  print(found.__file__)
print(synth_mtf.gin_path())
print('synth_en_mix' in seqio.MixtureRegistry.names())
for variant in pathlib.Path(synth_mtf.gin_path(), 'variants').glob('*.gin'):
  gin_files.parse(['sizes/tiny.gin', str(variant)])
"""


def files(folder):
  """The files below a folder, relative to it, but for Python's own."""
  found = {str(p.relative_to(folder)) for p in folder.rglob('*') if p.is_file()}
  return {name for name in found if '__pycache__' not in name}


@pytest.fixture(scope='module')
def copy(tmp_path_factory):
  return checkout.copy_to(tmp_path_factory.mktemp('copy') / 'checkout')


@pytest.fixture(scope='module')
def sdist(copy, tmp_path_factory):
  folder = tmp_path_factory.mktemp('sdist')
  words = ('setup.py', '--quiet', 'sdist', '--dist-dir', folder)
  done = run(sys.executable, *words, cwd=copy)
  assert 'warning: no files found matching' not in done.stderr
  (archive,) = folder.iterdir()
  return archive


@pytest.fixture(scope='module')
def installed(sdist, tmp_path_factory):
  folder = tmp_path_factory.mktemp('installed')
  pip = [sys.executable, '-m', 'pip', '--quiet']
  options = ['--no-deps', '--no-build-isolation', '--no-compile']
  run(*pip, 'install', *options, '--target', folder, sdist, cwd='/')
  return folder


def test_every_file_is_in_it_and_no_other(installed):
  (metadata,) = installed.glob('*.dist-info')
  names = {path.name for path in installed.iterdir()}
  assert names == {'synth_mtf', 'bin', metadata.name}
  assert files(installed / 'bin') == {'synth-mtf'}
  found = {f'synth_mtf/{name}' for name in files(installed / 'synth_mtf')}
  assert found == {
    f'{there}/{name}'
    for here, there in INSTALLED_AS.items()
    for name in files(CHECKOUT / here)
  }
  text = (metadata / 'METADATA').read_text()
  (pythons,) = re.findall(r'^Requires-Python: (.*)$', text, re.M)
  assert set(pythons.split(',')) == {'>=3.10', '<3.14'}
  required = re.findall(r'^Requires-Dist: ([\w-]+)(.*)$', text, re.M)
  always = {name for name, rest in required if 'extra ==' not in rest}
  assert 'torch' not in always
  assert {'t5', 'mesh-tensorflow', 'tensorflow'} <= always
  assert any(name == 'torch' and 't5-cli' in rest for name, rest in required)


def test_it_works_from_another_folder(installed, tmp_path):
  (tmp_path / 'look.py').write_text(LOOK)
  environment = {**os.environ, 'PYTHONPATH': str(installed)}
  look = [sys.executable, tmp_path / 'look.py']
  looked = run(*look, cwd='/', env=environment)
  package, tasks, gin, gin_files, has_mixture = looked.stdout.splitlines()
  assert package == str(installed / 'synth_mtf' / '__init__.py')
  assert tasks == str(installed / 'synth_mtf' / 'tasks' / '__init__.py')
  assert gin_files == str(installed / 'synth_mtf' / 'gin')
  assert not gin.startswith(str(installed))
  assert has_mixture == 'True'
  command = installed / 'bin' / 'synth-mtf'
  version = [sys.executable, command, '--version']
  printed = run(*version, env=environment).stdout
  assert printed == f'synth-mtf {synth_mtf.__version__}\n'


def test_an_sdist_holds_the_checkout(copy, sdist):
  with tarfile.open(sdist) as archive:
    found = {name.partition('/')[2] for name in archive.getnames()}
  made = ('build/', 'synth_mtf.egg-info/')  # where the wheel was built
  ours = {name for name in files(copy) if not name.startswith(made)}
  assert ours - found == {'.gitignore'}
  assert not any('__pycache__' in name for name in found)


def test_the_version_is_the_same_everywhere():
  citation = (CHECKOUT / 'CITATION.cff').read_text()
  changes = (CHECKOUT / 'CHANGELOG.md').read_text()
  (version,) = re.findall(r'^version: (.*)$', citation, re.M)
  (date,) = re.findall(r'^date-released: "(.*)"$', citation, re.M)
  sections = re.findall(r'^## (.*)$', changes, re.M)
  assert version == synth_mtf.__version__
  assert sections[:2] == ['[Unreleased]', f'[{version}] - {date}']


@pytest.mark.parametrize(
  'version, message',
  [
    ('(3, 14, 0)', 'synth_mtf needs Python 3.10 to 3.13'),
    ('(3, 9, 18)', 'synth_mtf needs Python 3.10 to 3.13'),
    ('(4, 0, 0)', 'synth_mtf needs Python 3.10 to 3.13'),
    ('(3, 10, 9)', ''),
    ('(3, 13, 0)', ''),
  ],
)
def test_a_wrong_python_is_one_line_for_pip(version, message):
  code = f'import sys; sys.version_info = {version}; import build_backend'
  done = run(sys.executable, '-c', code, check=False)
  assert done.returncode == bool(message)
  assert done.stderr.count('\n') == bool(message)
  assert done.stderr.startswith(message)


@pytest.mark.parametrize(
  'versions, words, found, message',
  [
    (
      ['3.14.0'],
      [''],
      '',
      'TensorFlow 2.12 or 2.20 needs Python 3.10 to 3.13, but python3 is '
      'Python 3.14.0; run make with another one: '
      'make PYTHON=/path/to/python3.13 ...\n',
    ),
    (['3.13.0', '3.10.13'], [''], 'python3', ''),
    (['3.13.0', '3.10.13'], ['2.12'], 'python3.10', ''),
    (['3.10.13', '3.13.0'], ['2.20'], 'python3', ''),
    (['3.12.1'], ['2.12'], '', 'needs Python 3.10 to 3.11, but python3'),
    (['3.11.7', '3.9.18'], ['', 'python3.9'], '', 'python3.9 is Python 3.9'),
  ],
)
def test_a_suitable_python_is_found(tmp_path, versions, words, found, message):
  """The first version is python3's; others have names of their own."""
  names = ['python3', *(f'python{v.rpartition(".")[0]}' for v in versions[1:])]
  for name, version in zip(names, versions, strict=True):
    program = tmp_path / name
    program.write_text(
      '#!/bin/sh\n'
      f'if [ "$1" = --version ]; then echo Python {version}; exit; fi\n'
      f'exec {sys.executable} -c "import sys\n'
      f'sys.version_info = ({version.replace(".", ", ")})\n$2"\n'
    )
    program.chmod(0o755)
  command = ['/bin/sh', CHECKOUT / '.ci' / 'find_python', *words]
  done = run(*command, check=False, env={'PATH': tmp_path})
  assert done.returncode == (not found)
  assert done.stdout == (f'{tmp_path / found}\n' if found else '')
  assert message in done.stderr


def write_index(folder):
  """An index of packages that has `sample` alone, a wheel without code."""
  wheel = folder / 'sample' / 'sample-1.0-py3-none-any.whl'
  wheel.parent.mkdir(parents=True)
  files = {
    'METADATA': 'Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n',
    'WHEEL': 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    'RECORD': '',
  }
  with zipfile.ZipFile(wheel, 'w') as archive:
    for name, text in files.items():
      archive.writestr(f'sample-1.0.dist-info/{name}', text)
  link = f'<a href="{wheel.name}">{wheel.name}</a>'
  (wheel.parent / 'index.html').write_text(link)


@pytest.mark.parametrize(
  'settings, variables',
  [
    ('index-url = {full}', {}),
    ('index-url = {empty}\nextra-index-url = {empty}\n  {full}', {}),
    ('index-url = {empty}', {'PIP_INDEX_URL': '{full}'}),
    ('index-url = {empty}', {'UV_DEFAULT_INDEX': '{full}'}),
    ('no-index = true\nfind-links = {empty}\n  {full}/sample', {}),
  ],
)
def test_uv_has_the_index_of_pip(tmp_path, settings, variables):
  write_index(tmp_path / 'full')
  (tmp_path / 'empty').mkdir()
  urls = {name: (tmp_path / name).as_uri() for name in ('full', 'empty')}
  config = tmp_path / 'pip.conf'
  config.write_text(f'[global]\n{settings.format(**urls)}\n')
  environment = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(('PIP_', 'UV_'))
  }
  environment |= {'HOME': str(tmp_path), 'PIP_CONFIG_FILE': str(config)}
  for name, value in variables.items():
    environment[name] = value.format(**urls)
  target = tmp_path / 'target'
  uv = [sys.executable, CHECKOUT / '.ci' / 'uv', 'pip', 'install']
  words = ['--python', sys.executable, '--target', target, 'sample']
  run(*uv, *words, env=environment)
  assert (target / 'sample-1.0.dist-info').is_dir()


def make(*words, cwd=CHECKOUT):
  """What make would run; also where make itself runs the tests."""
  settings = [f'--unset={name}' for name in ('MAKEFLAGS', 'MAKELEVEL', 'TF')]
  return run('env', *settings, 'make', '-n', *words, cwd=cwd, check=False)


def test_make_makes_the_environment_only_if_need_be(tmp_path):
  for name in ('Makefile', 'setup.py', 'constraints.txt'):
    shutil.copy(CHECKOUT / name, tmp_path)
  assert '.ci/uv pip install ' in make('test', cwd=tmp_path).stdout
  (tmp_path / '.venv').mkdir()
  (tmp_path / '.venv' / '.installed').touch()
  again = make('test', cwd=tmp_path).stdout
  assert again.startswith('.venv/bin/python -m pytest ')


@pytest.mark.parametrize(
  'words, message',
  [
    (['demo', 'DEMO_ARGS=--steps 3'], '.venv/bin/synth-mtf demo --steps 3\n'),
    (
      ['test-fast', 'TEST_ARGS=-k NAME'],
      " --dist worksteal -m 'not slow and not tpu_proof' -k NAME\n",
    ),
    (['test', 'TF=2.20'], '.venv-tf2.20/bin/python -m pytest '),
    (['-B', 'env', 'TF=2.12'], '--constraint constraints.txt --edit'),
    (['-B', 'env', 'TF=2.20'], '--constraint constraints-tf2.20.txt --edit'),
    (['-B', 'env', 'TPU=1'], '--constraint constraints-tf2.20.txt --edit'),
    (['-B', 'env', 'TPU=1'], '--no-deps --requirement requirements-tpu.txt\n'),
    (['test', 'TPU=1'], '.venv-tpu/bin/python -m pytest '),
    (['env', 'TPU=1', 'TF=2.12'], 'TPU=1 needs TF=2.20'),
    (['test', 'TF=2.15'], 'TF=2.15 is not supported: give TF=2.12 or TF=2.20'),
  ],
)
def test_make_passes_arguments_on(words, message):
  done = make(*words)
  assert message in done.stdout + done.stderr
  assert bool(done.returncode) == message.startswith(('TF=', 'TPU='))
