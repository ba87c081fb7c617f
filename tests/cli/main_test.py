"""`synth-mtf` itself: its version, its commands, what it says of mistakes."""

import os
import re
import shlex
import signal
import subprocess
import sys
from unittest import mock

import gin
import pytest
from absl import flags

import synth_mtf
from synth_mtf import cli
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.results.layouts import LAYOUTS
from synth_mtf.run import output
from tests import checkout
from tests.cli.command import PROGRAM, run

TASK = 'synth_glue_rte_v002'


def shown(capsys, *words) -> str:
  """What a flag prints before it ends the command."""
  with pytest.raises(SystemExit) as end:
    cli.main(words)
  assert end.value.code == 0
  return capsys.readouterr().out


def test_version_and_list_of_commands(capsys):
  version = f'synth-mtf {synth_mtf.__version__}\n'
  assert shown(capsys, '--version') == version
  text = shown(capsys, '--help')
  commands = re.findall(r'^    (\w+)(?: |$)', text, re.MULTILINE)
  assert commands == list(cli.COMMANDS)
  assert run() == (2, '', text)


@pytest.mark.slow  # starts a process
def test_no_garbage_is_looked_for_at_the_end():
  program = """
class Garbage:
  def __init__(self):
    self.itself = self
  def __del__(self):
    print('collected')

from synth_mtf import cli
cli.main([])
Garbage()
"""
  done = subprocess.run(
    [sys.executable, '-c', program],
    stdout=subprocess.PIPE,
    text=True,
    check=True,
  )
  assert not done.stdout


@pytest.mark.parametrize('name', sorted({*cli.COMMANDS} - {'transformer'}))
def test_each_command_has_help(name, capsys):
  assert f'synth-mtf {name}' in shown(capsys, name, '--help')


def test_help_of_transformer_lists_the_flags_of_t5_and_ours():
  status, out, _ = run('transformer', '--help')
  assert status == 0
  for flag in ('--gin_file', '--tpu', '--model_dir', '--data_dir'):
    assert flag in out


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    ('tabel x', "); did you mean 'table'?\n"),
    ('cost --siz=tiny', "arguments: --siz=tiny; did you mean '--size'?\n"),
    ('demo --nothing', 'unrecognized arguments: --nothing\n'),
    ('vocabulary --txt=a', "--txt=a; did you mean '--text'"),
    ('table . --layout=glu', "did you mean 'glue'?\n"),
    ('plot . --text=a --task=b', '--task: not allowed with'),
    ('demo --steps 0', '1 or more'),
    ('demo --eval_examples 0', '1 or more'),
    ('demo --eval_examples some', '1 or more'),
    ('demo --pretrain_steps -1', '1 or more'),
    ('demo --seeds 0 -1', '0 or more'),
    ('vocabulary --size=-4 --out=v', "'-4': expected a number, 4 or more"),
    ('cost --model_parallelism=0', "'0': expected a number, 1 or more"),
  ],
)
def test_words_are_not_guessed_and_numbers_are_in_range(words, message, capsys):
  with pytest.raises(SystemExit) as done:
    cli.main(words.split())
  assert done.value.code == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize('name', cli.COMMANDS)
def test_help_has_an_example_that_is_a_command(name):
  with mock.patch('os.path.lexists'):  # files of the reader exist
    words = shlex.split(f'{name} {cli.EXAMPLES[name]}')
    assert cli.parser().parse_args(words).command == name


def test_help_has_defaults(capsys):
  with pytest.raises(SystemExit):
    cli.main(['plot', '--help'])
  text = ' '.join(capsys.readouterr().out.split())
  assert 'where to write (default: figures)' in text
  assert 'Example: synth-mtf plot my_runs/rv' in text
  assert 'None' not in text and 'SUPPRESS' not in text


def test_the_shell_completes_commands_flags_and_choices(tmp_path):
  for line, expected in {
    'repo': ['report'],
    'table --lay': ['--layout'],
    'table --layout ': [*LAYOUTS, 'all'],
    'cost --size ti': ['tiny'],
    'pretrain my_run --variant R+': ['R+D', 'R+V', 'R+D+V'],
    'finetune my_run --task synth_glue_co': ['synth_glue_cola_v002'],
    'demo --variants random random_d': ['random_dense', 'random_dense_vanilla'],
    'tasks synth_glue_co': ['synth_glue_cola_v002'],
    'tasks synth_en_mix_': ['synth_en_mix_with_c4'],
    'cache --task synth_glue_cola_v002,synth_en_mix_': [
      'synth_glue_cola_v002,synth_en_mix_with_c4'
    ],
    'report . --task synth_glue_co': ['synth_glue_cola_v002'],
    'demo --mixture synth_en_mix_': ['synth_en_mix_with_c4'],
    'cost --variants vanilla,dense_v': ['vanilla,dense_vanilla'],
    'checkpoint convert . b --gin_file sizes/ba': [
      'sizes/base.gin',
      'sizes/base_8x128.gin',
      'sizes/base_plus.gin',
    ],
    'transformer --gin_file=variants/glu': ['--gin_file=variants/glu.gin'],
  }.items():
    whole = f'{PROGRAM} {line}'
    checkout.run(
      PROGRAM,
      env={
        **os.environ,
        '_ARGCOMPLETE': '1',
        '_ARGCOMPLETE_IFS': '\n',
        '_ARGCOMPLETE_STDOUT_FILENAME': str(tmp_path / 'found'),
        'COMP_LINE': whole,
        'COMP_POINT': str(len(whole)),
      },
    )
    found = (tmp_path / 'found').read_text().split()
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
  ('error', 'status', 'message'),
  [
    (UserError('give another one'), 2, 'error: give another one'),
    (RunFailed('see the log'), 1, 'error: see the log'),
    (
      OSError(28, 'No space left', '/x'),
      1,
      "error: [Errno 28] No space left: '/x'",
    ),
    (KeyboardInterrupt(), 130, 'interrupted'),
  ],
)
def test_an_error_is_one_message(monkeypatch, error, status, message):
  def fail(args):
    raise error

  monkeypatch.setattr('synth_mtf.cli.doctor.run', fail)
  assert run('doctor') == (status, '', f'synth-mtf: {message}\n')


def test_standard_streams_may_be_closed(tmp_path, monkeypatch):
  for name in ('stdin', 'stdout', 'stderr'):
    monkeypatch.setattr(sys, name, None)
  assert cli.main(['table', str(tmp_path / 'missing')]) == 2
  with sys.stdin, sys.stdout, sys.stderr:
    output.Console().line('Some progress.')
    print('A result.')
    assert not sys.stdin.read()
    assert os.get_inheritable(sys.stdout.fileno())


PRINTING = pytest.mark.parametrize(
  'words',
  [['--help'], ['tasks', '--help'], ['transformer', '--help'], ['tasks']],
)


@PRINTING
@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='of Linux')
def test_results_that_cannot_be_written_are_an_error(
  monkeypatch, capsys, words
):
  with open('/dev/full', 'w') as full:
    monkeypatch.setattr(sys, 'stdout', full)
    assert cli.main(words) == 1
  assert capsys.readouterr().err == (
    'synth-mtf: error: standard output cannot be written: No space left on '
    'device\n'
  )


@PRINTING
def test_a_closed_pipe_ends_a_command_quietly(monkeypatch, capsys, words):
  """As `synth-mtf tasks | head -1` closes it."""
  reader, writer = os.pipe()
  os.close(reader)
  with open(writer, 'w') as pipe:
    monkeypatch.setattr(sys, 'stdout', pipe)
    assert cli.main(words) == 141
  assert capsys.readouterr().err == ''


def status_of(words):
  try:
    return cli.main(words)
  except SystemExit as end:  # of argparse
    return end.code


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='of Linux')
@pytest.mark.parametrize('words', [['tasks', 'nothing'], ['nothing'], []])
def test_a_message_that_cannot_be_written_keeps_the_status(monkeypatch, words):
  with open('/dev/full', 'w', buffering=1) as full:
    monkeypatch.setattr(sys, 'stderr', full)
    assert status_of(words) == 2


def test_a_user_may_have_no_home(monkeypatch):
  def homes(args):
    print(os.path.expanduser('~'))

  monkeypatch.setattr('synth_mtf.cli.doctor.run', homes)
  monkeypatch.setattr('pwd.getpwuid', {}.__getitem__)
  monkeypatch.delenv('HOME')
  assert run('doctor') == (0, '/nonexistent\n', '')
  assert 'HOME' not in os.environ


def test_a_command_leaves_the_environment(tmp_path, monkeypatch):
  """The next one of this process would take it for the user's."""
  during: dict[str, str] = {}
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'mine')
  monkeypatch.setenv('SYNTH_MTF_CACHE_DIR', str(tmp_path))
  before = dict(os.environ)
  words = [f'--task={TASK}', f'--out={tmp_path}', f'--data_dir={tmp_path}']
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      'synth_mtf.cli.cache.run', lambda args: during.update(os.environ)
    )
    assert run('cache', *words, '--vocabulary=bytes') == (0, '', '')
  assert during['SYNTH_MTF_DATA_DIR'] == str(tmp_path)
  assert during['SYNTH_MTF_VOCABULARY'] == 'bytes'
  assert dict(os.environ) == before
  # It takes the folder of caches out.
  assert run('cache', *words[:1], '--out=a*')[0] == 2
  assert dict(os.environ) == before


def test_a_demo_leaves_the_handlers_of_signals():
  before = signal.getsignal(signal.SIGTERM)
  assert run('demo', '--out=gs://bucket/demo')[0] == 2
  assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_leaves_neither_flags_nor_bindings(tmp_path):
  """The next one of this process would add its own to them."""
  gin.bind_parameter('utils.run.batch_size', 8)
  before = gin.config_str()
  words = [f'--model_dir={tmp_path}/run', '--gin_file=sizes/tiny.gin']
  for more in (['--gin_param=dropout_rate = 0.3'], []):
    status, _, err = run('transformer', *words, *more)
    assert status == 2 and 'error: no mesh is set' in err
    assert gin.config_str() == before and not gin.config_is_locked()
    assert not flags.FLAGS.model_dir.startswith(str(tmp_path))
    assert not flags.FLAGS.gin_file and not flags.FLAGS.gin_param


def test_an_unknown_error_keeps_its_traceback(monkeypatch):
  monkeypatch.setattr('synth_mtf.cli.doctor.run', lambda args: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    run('doctor')
