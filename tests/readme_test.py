"""Every command of the documents: run as it stands, or at least checked.

A block of commands is fenced as `console` (its commands after `$ `) or `bash`.
It is run after the blocks above it, in the order of the text, in the root of a
fresh clone that was installed with `pip install .` and where a short demo has
been, unless a comment on the line before it says more:

    <!-- run with: WORDS -->    run, with these words added to each command
    <!-- run by: PATH ... -->   that file of the checkout runs it
    <!-- not run: REASON -->    it needs what a test does not have

Of the commands that are not run, flags, gin files and gin bindings are checked.
"""

import fnmatch
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import sys
from typing import Any
from unittest import mock

import pytest

from synth_mtf import cli
from synth_mtf.host import gin_files
from tests import checkout, forks
from tests.checkout import CHECKOUT
from tests.cli.t5_main import HAS_STOCK

pytestmark = pytest.mark.slow  # runs what is in the documents

BIN = pathlib.Path(sys.executable).parent
GIN = CHECKOUT / 'gin'
DOCUMENTS = [
  CHECKOUT / 'README.md',
  CHECKOUT / 'CONTRIBUTING.md',
  *sorted(CHECKOUT.glob('docs/**/*.md')),
]
BLOCK = re.compile(
  r'(?:^<!-- (?P<mark>run with|run by|not run): (?P<text>.*?) -->\n)?'
  r'^```(?P<language>console|bash)\n(?P<body>.*?)^```$',
  re.M | re.S,
)
SHORT = (
  '--steps 1 --eval_examples 2 --variants random '
  '--mixture synth_glue_rte_v002 --vocabulary bytes '
  '--gin_param "utils.run.batch_size = 4" --gin_param "num_layers = 1"'
)
# The shell's own words, and what few have.
SHELL = ('.', 'cd', 'export', 'gcloud', 'lm_eval', 'sbatch', 'sudo')


def blocks():
  """The mark, text and commands of each block, with its place as the id."""
  for document in DOCUMENTS:
    content = document.read_text(encoding='utf-8')
    for match in BLOCK.finditer(content):
      line = content.count('\n', 0, match.start('language')) + 1
      body = match['body'].replace('\\\n', ' ')
      commands = [c for c in body.splitlines() if c and c[0] != '#']
      if match['language'] == 'console':
        commands = [c[2:] for c in commands if c.startswith('$ ')]
      where = f'{document.relative_to(CHECKOUT)}:{line}'
      yield pytest.param(match['mark'], match['text'], commands, id=where)


BLOCKS = list(blocks())


@pytest.fixture(scope='module')
def reader(tmp_path_factory):
  """Runs commands where a reader does who has followed the text."""
  folder = tmp_path_factory.mktemp('reader')
  clone = checkout.copy_to(folder / 'synth_mtf')
  bin_ = checkout.install(clone)
  environment = {**os.environ, 'PATH': f'{bin_}:{BIN}:{os.environ["PATH"]}'}
  environment.pop('PYTHONPATH', None)  # of a checkout that is not installed
  where: dict[str, Any] = {'cwd': clone, 'env': environment}
  checkout.run('sh', '-c', f'synth-mtf demo {SHORT}', **where)
  with forks.commands(
    folder / 'log', *forks.IMPORTS, python=bin_ / 'python', **where
  ) as command:

    def run(line):
      words = shlex.split(line)
      variables = {}
      while re.match(r'\w+=', words[0]):  # of the command's environment
        name, _, value = words.pop(0).partition('=')
        variables[name] = value
      if words[0] == 'synth-mtf':
        command(*words, **variables)
      else:
        checkout.run('sh', '-c', line, **where)

    yield run


@pytest.mark.parametrize('mark, text, commands', BLOCKS)
def test_commands(mark, text, commands, request):
  assert commands
  if mark == 'run by':
    for path in text.split():
      assert (CHECKOUT / path).exists(), f'no file {path}'
  if mark in ('run by', 'not run'):
    for command in commands:
      check(command)
    return
  added = f' {text}' if mark else ''
  for command in commands:
    if command.startswith('t5_mesh_transformer') and not HAS_STOCK:
      pytest.skip('the stock command needs torch and TensorFlow 2.12')
    request.getfixturevalue('reader')(command + added)


def test_commands_of_the_notebook():
  """A nightly job executes it."""
  book = json.loads((CHECKOUT / 'examples/synthesizer.ipynb').read_text())
  code = [''.join(cell['source']) for cell in book['cells']]
  text = '\n'.join(code).replace('\\\n', ' ').replace('$DEVICE', '')
  assert not re.search('^!', text, re.M)  # what fails there fails no cell
  assert text.count('%%bash') == text.count('%%bash -e\n')
  commands = re.findall('^synth-mtf .*', text, re.M)
  assert len(commands) > 8
  for command in commands:
    check(command)


def test_the_loop_over_variants_and_seeds(tmp_path):
  """tests/cli/words_test.py runs such commands; here, the words are written."""
  text = (CHECKOUT / 'docs/questions.md').read_text(encoding='utf-8')
  (script,) = re.findall('^```sh\n(.*?)^```', text, re.M | re.S)
  program = tmp_path / 'synth-mtf'
  program.write_text('#!/bin/sh\necho synth-mtf "$@" >> commands.txt\n')
  program.chmod(0o755)
  (tmp_path / 'my_runs' / 'V-seed0-mood').mkdir(parents=True)
  environment = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}'}
  checkout.run('sh', '-ec', script, cwd=tmp_path, env=environment)
  commands = (tmp_path / 'commands.txt').read_text().splitlines()
  assert len({*commands}) == 2 * 3 * 3 + 1
  for command in commands:
    check(command)


def check(command):
  """Checks the words of a command that is not run."""
  words = shlex.split(command.partition(' > ')[0])
  while words and re.match(r'\w+=', words[0]):  # variables of its environment
    del words[0]
  program = words[0].replace('.venv/bin/', '')
  if program == 't5_mesh_transformer':
    check_t5_main(words[1:])
  elif words[1:2] == ['transformer'] and program == 'synth-mtf':
    check_t5_main(words[2:])
  elif program == 'synth-mtf':
    with mock.patch('os.path.lexists'), mock.patch('os.path.exists'):
      cli.parser().parse_args(words[1:])  # files of the reader exist
  elif program == 'make':
    checkout.run('make', '-n', *words[1:])
  elif program == 'pip':
    check_pip(words)
  elif program == 'docker':
    check_docker(words)
  elif re.fullmatch(r'python(3(\.\d+)?)?', program):
    assert words[1] == '-m' or (CHECKOUT / words[1]).exists(), words[1]
  else:
    is_made = program.startswith('.venv-')  # by a command before
    assert shutil.which(program) or is_made or program in SHELL, program


def check_pip(words):
  for flag, value in itertools.pairwise(words):
    if flag in ('-c', '--constraint', '-r', '--requirement'):
      assert (CHECKOUT / value).exists(), f'no file {value}'
  setup = (CHECKOUT / 'setup.py').read_text()
  for extras in re.findall(r'\[(.*?)\]', ' '.join(words)):
    for extra in extras.split(','):
      assert f"'{extra}': [" in setup, f'no extra {extra}'


def instructions(name):
  """What stands behind a name in the Dockerfile, each time."""
  text = (CHECKOUT / 'Dockerfile').read_text(encoding='utf-8')
  return re.findall(rf'^{name} (.*)', text, re.M)


def check_docker(words):
  """Checks what is given to the image, and what the image is given to run."""
  given = ' '.join(words)
  for name in re.findall(r'--build-arg (\w+)=', given):
    assert f'{name}=' in instructions('ARG')
  if words[1] == 'build':
    assert words[-1] == '.'
    return
  assert f':{instructions("WORKDIR")[-1]} ' in given
  (entry,) = instructions('ENTRYPOINT')
  image = next(word for word in words if word.startswith('synth_mtf'))
  arguments = words[words.index(image) + 1 :]
  check(shlex.join([*json.loads(entry), *arguments]))


def test_the_image_is_built_of_what_is_there():
  (run,) = instructions('RUN')
  assert run.startswith('pip install ')
  check_pip(shlex.split(run))
  assert instructions('COPY') == [f'. {instructions("WORKDIR")[0]}']
  text = (CHECKOUT / '.dockerignore').read_text(encoding='utf-8')
  users = checkout.left_behind(str(CHECKOUT), os.listdir(CHECKOUT))
  for name in {*os.listdir(CHECKOUT)} - {*users}:
    ignored = [p for p in text.split() if fnmatch.fnmatchcase(name, p)]
    assert not ignored, f'{name} is not copied: {ignored}'


def check_t5_main(words):
  """Parses the flags, and the gin files and bindings they name."""
  from absl import flags
  from absl.testing import flagsaver

  from synth_mtf.run import main

  main.prepare()
  with flagsaver.flagsaver():
    rest = flags.FLAGS(['t5_mesh_transformer', *words])
    assert rest[1:] == [], 'not flags'
    files = [
      file
      for file in flags.FLAGS.gin_file or []
      if not re.search(r'://|\$|operative_config', file)
      and (not flags.FLAGS.gin_location_prefix or (GIN / file).exists())
    ]
    gin_files.parse(files, flags.FLAGS.gin_param or [])
    flags.FLAGS.unparse_flags()
