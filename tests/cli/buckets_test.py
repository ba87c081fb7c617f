"""Every flag that takes a path, with a bucket that refuses every request.

The flags are those of the parsers: one that is new has to be put into a table
here, with what it takes.
"""

import argparse
import os
import re
import shlex

import pytest
from absl import flags

from synth_mtf import cli
from synth_mtf.errors import UserError
from synth_mtf.run import config, main
from synth_mtf.tasks import vocabulary
from tests import made_up_gcs
from tests.cli import command, t5_main
from tests.results import made_runs

pytestmark = [
  pytest.mark.slow,  # some commands build models first
  made_up_gcs.needs_openssl,
]

BUCKET = 'gs://{status}-bucket/a'
COLA = 'synth_glue_cola_v002'
# The words of each command, in which each path is what can be read or written.
COMMANDS = {
  'pretrain': '{folder} --variant=V --data_dir={data_dir} --vocabulary=bytes',
  'finetune': f'{{folder}} --from={{source}} --task={COLA} '
  '--data_dir={data_dir}',
  'evaluate': f'{{folder}} --task={COLA} --data_dir={{data_dir}}',
  'predict': '{folder} one',
  'demo': '--out={new}',
  'vocabulary': '--data_dir={data_dir} --out={new}.model',
  'tasks': f'{COLA} --data_dir={{data_dir}}',
  'cache': f'--task={COLA} --data_dir={{data_dir}} --out={{out}} '
  '--vocabulary=bytes',
  'checkpoint inspect': '{path}',
  'checkpoint compare': '{first} {second}',
  'checkpoint convert': '{path} {folder} --gin_file=sizes/tiny.gin',
  'checkpoint keep': '{path}',
  'checkpoint export': '--to=hf {path} {folder}',
  'checkpoint import': '--from=hf {hf} {folder}',
  'cost': '--variants=vanilla',
  'table': '{runs}',
  'attention': '{folder} --text=a --out={new}.npz',
  'plot': '{runs} --out={out} --figures=heads --text=a',
  'report': '{runs} --out={out}',
  'replay': '{runs}',
  'doctor': '',
}
# Arguments of any command that name what is read or written.
PATHS = {
  *('data_dir', 'vocabulary', 'task_file', 'gin_file', 'source_gin_file'),
  *('path', 'first', 'second', 'folder', 'runs', 'out', 'input', 'attention'),
  'source',
  'text_path',  # --text
}
OTHERS = {
  *('variants', 'size', 'steps', 'pretrain_steps', 'finetune_steps', 'seeds'),
  *('mixture', 'eval_examples', 'gin_param', 'flags', 'model_type', 'name'),
  *(
    'skip_bad_rows',
    'module_import',
    'task',
    'names',
    'split',
    'splits',
    'verify',
    'resize',
  ),
  *('all', 'beams', 'learning_rate', 'max_length', 'perplexity', 'seed'),
  *('texts', 'variant', 'vocabulary_size'),
  *('best', 'dry_run', 'form', 'inputs', 'targets', 'model_parallelism'),
  *('device', 'batch_size', 'paper', 'layout', 'checkpoint', 'errors'),
  *('format', 'bold', 'text', 'target', 'examples', 'step', 'figures', 'tasks'),
  *(
    'layers',
    'heads',
    'values',
    'command',
    'help',
    'version',
    '==SUPPRESS==',
  ),
}
# What a command only hands on to the commands that it prints, and what is read
# after a model, which these folders do not hold.
NOT_REACHED = {
  *[('replay', name) for name in ('data_dir', 'vocabulary', 'task_file')],
  *[('evaluate', name) for name in ('data_dir', 'vocabulary')],
  *[('predict', name) for name in ('input', 'vocabulary')],
  *[(name, 'text_path') for name in ('cache', 'tasks')],
  ('finetune', 'data_dir'),
  ('checkpoint export', 'vocabulary'),
  ('checkpoint import', 'gin_file'),
}
# Their folder is that of a run which is there.
OF_A_RUN = ('attention', 'evaluate', 'predict')
# They go on without the attention that was asked for.
GO_ON = ('plot', 'report')

# Flags of T5's main whose names sound like paths, with the words to try each.
FLAGS = {
  'model_dir': '',
  'gin_file': '',
  'gin_location_prefix': '--gin_file=of_nobody.gin',
  'data_dir': '',
  'task_data_dirs': '',
  'vocabulary': '',
  'task_file': '',
  'cache_dir': '',
  'additional_task_cache_dirs': (
    '--gin_param=mesh_train_dataset_fn.use_cached=True'
  ),
  'word_vectors': '',
  't5_tfds_data_dir': (
    f'--task_data_dirs=synth_glue*=tfds --gin_param="MIXTURE_NAME = {COLA!r}"'
  ),
}
# Those of T5's Model API, each with its mode.
FLAGS_OF_MODEL_API = {
  'pretrained_model_dir': 'finetune',
  'eval_summary_dir': 'eval',
  'input_file': 'predict',
  'target_file': 'score --input_file={lines}',
  'output_file': 'predict --input_file={lines}',
  'export_dir': 'export_predict',
}
OTHER_FLAGS = {
  'index_dir',  # of row counts, which are counted again if they are not kept
  *(
    'log_dir',
    'profile_file',
    'xml_output_file',
  ),  # of absl, which ignores them
  *('test_srcdir', 'test_tmpdir', 'showprefixforinfo', 'noshowprefixforinfo'),
  *('tfds_debug_list_dir', 'notfds_debug_list_dir', 'run_with_profiling'),
  'use_cprofile_for_profiling',
}
# Settings of gin that name files, each with the words that make a run read it.
SETTINGS = {
  'run.init_checkpoint': '',
  'run.eval_summary_dir': '--gin_file=runs/eval_en_mix.gin',
  'run.export_path': '--gin_param="utils.run.mode = \'export\'"',
}


def arguments_of(parser, name=''):
  """Yields the command and the destination of every argument."""
  for action in parser._actions:  # noqa: SLF001  argparse lists them nowhere
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
      for word, subparser in action.choices.items():
        yield from arguments_of(subparser, f'{name} {word}'.strip())
    yield name, action.dest


def cases():
  """Each argument of each command, forbidden; other statuses once for each."""
  found = {x for x in arguments_of(cli.parser()) if x[1] in PATHS}
  forbidden: list[tuple[str, str, int]] = []
  others: dict[tuple[str, int], tuple[str, str, int]] = {}
  for name, dest in sorted(found - NOT_REACHED):
    forbidden.append((name, dest, 403))
    others |= {(dest, status): (name, dest, status) for status in (401, 404)}
  return [*forbidden, *others.values()]


def test_every_argument_is_known():
  found = {dest for _, dest in arguments_of(cli.parser())}
  assert found == PATHS | OTHERS
  assert not PATHS & OTHERS
  assert {name for name, *_ in cases()} == set(COMMANDS)


def test_every_flag_of_t5s_main_is_known():
  main.prepare()
  sounds = re.compile('dir|file|path|prefix|vectors|vocabulary')
  found = {
    flag.name
    for module in main.FLAG_MODULES
    for flag in flags.FLAGS.flags_by_module_dict().get(module, ())
    if sounds.search(flag.name)
  }
  assert found <= {*FLAGS, *FLAGS_OF_MODEL_API, *OTHER_FLAGS}
  assert {*FLAGS, *FLAGS_OF_MODEL_API} <= found
  paths = {
    f'run.{name}'
    for name, check in config._OF_RUN.items()  # noqa: SLF001
    if 'the path of' in check.expected
  }
  assert paths == set(SETTINGS)


@pytest.fixture(scope='module')
def refusing(tmp_path_factory):
  folder = tmp_path_factory.mktemp('gcs')
  with made_up_gcs.running(folder, made_up_gcs.refused_by_name) as environment:
    yield environment


@pytest.fixture(scope='module')
def pieces(tmp_path_factory):
  """A vocabulary of as many pieces as the checkpoints of `made_runs` have."""
  path = tmp_path_factory.mktemp('vocabulary') / 'a.model'
  vocabulary.train([f'a bird sang {i}' for i in range(99)], path, 26)
  return path


@pytest.fixture(autouse=True)
def bucket(refusing, pieces, tmp_path, monkeypatch):
  for name, value in refusing.items():
    monkeypatch.setenv(name, value)
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', str(pieces))
  monkeypatch.setenv('PYTHONHASHSEED', '0')  # or a run starts again
  monkeypatch.chdir(tmp_path)


@pytest.fixture
def given(made_data, tmp_path):
  """What each argument is, unless it is the bucket."""
  run = tmp_path / 'run'
  made_runs.trained(run)
  hf = tmp_path / 'hf'
  hf.mkdir()
  (hf / 'config.json').write_text('{}')
  new = str(tmp_path / 'new')
  runs = dict.fromkeys(['path', 'first', 'second', 'runs', 'source'], str(run))
  written = dict.fromkeys(['new', 'out', 'folder'], new)
  return {**runs, **written, 'hf': str(hf), 'data_dir': str(made_data)}


def complaint(words):
  """Returns the status and the message of a command."""
  try:
    status, out, err = command.run(*words)
  except UserError as error:
    return 2, str(error)
  # In a process, what precedes the message is in the log of a run.
  return status, (out + err).rpartition('synth-mtf: error: ')[2]


@pytest.mark.parametrize('name, dest, status', cases())
def test_an_argument(name, dest, status, given, tmp_path):
  path = BUCKET.format(status=status)
  words = COMMANDS[name]
  if name in OF_A_RUN and dest != 'folder':
    given['folder'] = given['path']
  if name == 'checkpoint import' and dest == 'path':
    words = words.replace('{hf}', '{path}')
  if f'{{{dest}}}' not in words:
    words += f' --{dest.removesuffix("_path")}={{{dest}}}'
  if name in GO_ON and dest in ('vocabulary', 'task_file'):
    words += ' --text=a'
  if dest in ('input', 'attention', 'data_dir'):
    words = words.replace('--text=a', '')
  if dest == 'data_dir' and name in ('attention', 'plot', 'report'):
    words += f' --task={COLA}'
  before = set(os.listdir(tmp_path))
  filled = words.format(**{**given, dest: path})
  code, message = complaint([*name.split(), *shlex.split(filled)])
  assert code == (1 if name == 'doctor' else 2) or name in GO_ON, message
  assert path in message
  assert 'Traceback' not in message and ' is empty' not in message
  if status != 404:
    is_local = re.search('local|exists already', message)
    assert is_local or f'response code {status}' in message
  if name not in GO_ON:
    assert set(os.listdir(tmp_path)) == before


def refusal(*words):
  with pytest.raises(UserError) as caught:
    t5_main.synth_mtf_transformer(*words)
  return str(caught.value)


@pytest.mark.parametrize('status', made_up_gcs.STATUSES)
@pytest.mark.parametrize('name', FLAGS)
def test_a_flag_of_a_run(name, status, made_data):
  if name == 't5_tfds_data_dir' and status != made_up_gcs.STATUSES[0]:
    pytest.skip('seqio keeps the first folder for the whole process')
  path = BUCKET.format(status=status)
  given = f'synth_*={path}' if name == 'task_data_dirs' else path
  words = ['--model_dir=run', f'--data_dir={made_data}']
  words += [*t5_main.REPEATABLE, f'--{name}={given}', *shlex.split(FLAGS[name])]
  message = refusal(*words)
  assert path in message
  assert status == 404 or str(status) in message


@pytest.mark.parametrize('status', made_up_gcs.STATUSES)
@pytest.mark.parametrize('name', FLAGS_OF_MODEL_API)
def test_a_flag_of_the_model_api(name, status, made_data, tmp_path):
  path = BUCKET.format(status=status)
  (tmp_path / 'lines').write_text('one\n')
  mode = FLAGS_OF_MODEL_API[name].format(lines='lines')
  message = refusal(
    *('--use_model_api', '--model_dir=run', f'--data_dir={made_data}'),
    *(f'--mixture_or_task={COLA}', f'--{name}={path}'),
    *f'--mode={mode}'.split(),
  )
  assert f'--{name}' in message and os.path.dirname(path) in message
  assert status == 404 or f'response code {status}' in message


@pytest.mark.parametrize('status', made_up_gcs.STATUSES)
@pytest.mark.parametrize('name', SETTINGS)
def test_a_setting_of_gin(name, status, given, made_data):
  path = BUCKET.format(status=status)
  message = refusal(
    *(f'--model_dir={given["path"]}', f'--data_dir={made_data}'),
    *t5_main.REPEATABLE,
    *shlex.split(SETTINGS[name]),
    f'--gin_param=utils.{name} = {path + "/model.ckpt-1"!r}',
  )
  assert path in message
  assert status == 404 or f'response code {status}' in message
