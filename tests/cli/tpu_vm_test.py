"""docs/tpu.md and docs/sweeps.md, on stand-ins for Google's cloud and a TPU.

The commands are the document's, in its order; models are smaller. What is made
up: `gcloud`, whose VMs are folders (`made_up_gcloud.py`), storage, which
TensorFlow asks as it asks Google's (`made_up_gcs.py`), the metadata of a VM,
its chips (`made_up_tpu.py`), and pip, which links the packages of the tests
(`made_up_pip.py`).
"""

import contextlib
import gzip
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
from typing import Any

import pytest

from synth_mtf.results import records
from tests import (
  checkout,
  forks,
  made_up_gcloud,
  made_up_gcs,
  made_up_pip,
  official_files,
  sentencepieces,
)
from tests.checkout import CHECKOUT
from tests.cli.command import PROGRAM
from tests.readme_test import BLOCK

pytestmark = [
  pytest.mark.slow,  # trains
  pytest.mark.xla,
  made_up_gcs.needs_openssl,
]

BUCKET = 'BUCKET-OF-YOURS'  # that of the documents
ENVIRONMENT = '.venv-tf2.20'
TASK = "MIXTURE_NAME = 'synth_glue_rte_v002'"
MODEL = (
  *('d_ff = 24', 'd_kv = 8', 'd_model = 24', 'num_heads = 3', 'num_layers = 1'),
  "utils.run.sequence_length = {'inputs': 32, 'targets': 16}",
  'utils.run.batch_size = 8',
)
# Of each kind of run. A finetuning counts the steps of its checkpoint, too.
SHORT = {
  'pretrain_c4': (*MODEL, 'utils.run.train_steps = 2'),
  'finetune_en_mix': (*MODEL, 'utils.run.train_steps = 4', TASK),
  'eval_en_mix': (
    *(*MODEL, TASK, 'mesh_eval_dataset_fn.num_eval_examples = 8'),
    'Bitransformer.decode.max_decode_length = 4',
  ),
}
# Of a run that is stopped; words of the script's variable DEVICE.
SMALL = (
  '--gin_param=num_layers=1 '
  "--gin_param=utils.run.sequence_length={'inputs':32,'targets':32}"
)
# What a VM's metadata server gives to those who ask for storage.
TOKEN = 'made-up'
CREDENTIALS = {
  'access_token': TOKEN,
  'expires_in': 3600,
  'token_type': 'Bearer',
}
SECONDS = '1500'  # that a shell has


def blocks(page, *, of_a_slice=False):
  """The commands of each block that this file runs."""
  text = (CHECKOUT / 'docs' / page).read_text(encoding='utf-8')
  for block in BLOCK.finditer(text):
    if pathlib.Path(__file__).name in (block['text'] or ''):
      body = block['body'].replace('\\\n', ' ')
      if ('--worker=all' in body) == of_a_slice:
        yield re.findall(r'^\$ (.*)$', body, re.M)


def is_of_laptop(command):
  """Whether a command is for the user's own machine: it asks the cloud."""
  return 'gcloud' in command or 'git ' in command or ' table ' in command


def shortened(command):
  """Makes a run smaller and shorter."""
  if 'synth-mtf cache' in command:
    return f'{command} --split=validation'
  kind = re.search(r'--gin_file=runs/(\w+)\.gin', command)
  if ' transformer ' not in command or not kind:
    return command
  command = command.replace('ckpt-524288', 'ckpt-2')
  end, quote = '', '"'
  if '--command=' in command:  # which is quoted
    command, end, quote = command.removesuffix('"'), '"', '\\"'
  params = (f'--gin_param={quote}{each}{quote}' for each in SHORT[kind[1]])
  return ' '.join([command, *params]) + end


def program(folder, name, body):
  """Puts a program of this name into a folder."""
  path = folder / name
  path.write_text(f'#!/bin/sh\n{body}\n')
  path.chmod(0o755)


class Shell:
  """A shell that stays open, and knows the status of each command."""

  def __init__(self, *words, **options):
    self._process: Any = subprocess.Popen(
      ['timeout', SECONDS, *words],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      **options,
    )

  def run(self, command, fails=False):
    """Returns what a command printed, which must fail or must not."""
    self._process.stdin.write(f'{command}\necho "status $?"\n')
    self._process.stdin.flush()
    printed: list[str] = []
    for line in self._process.stdout:
      if line.startswith('status '):
        output = ''.join(printed)
        assert line == f'status {int(fails)}\n', f'{command}: {output[-5000:]}'
        return output
      printed.append(line)
    raise AssertionError(f'{command}: the shell has ended: {printed}')

  def words(self, command):
    """Returns the words of a command, with the variables of this shell."""
    return shlex.split(self.run(f'echo "{command}"'))

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self._process.communicate()


@pytest.fixture
def laptop(tmp_path):
  """The folder of a user: the checkout, with data."""
  folder = checkout.copy_to(tmp_path / 'laptop')
  git = ['git', '-C', folder, '-c', 'user.name=a', '-c', 'user.email=a@b']
  checkout.run(*git, 'init', '--quiet')
  checkout.run(*git, 'add', '--all')
  checkout.run(*git, 'commit', '--quiet', '--message=all')
  data = folder / 'my_data'
  official_files.write_samples(data)
  (data / 'GENERATED_SAMPLE.txt').unlink()  # or they are not the benchmarks
  text = official_files.write_text(data, 200) / 'corpus' / 'text.txt'
  sentencepieces.train(folder / 'my_vocabulary.model', text)
  rows = [json.dumps({'text': row}) for row in text.read_text().split('\n\n')]
  (data / 'c4').mkdir()
  with gzip.open(data / 'c4/c4-train.00000-of-00001.json.gz', 'wt') as stream:
    stream.write('\n'.join(rows))
  return folder


@pytest.fixture
def cloud(tmp_path):
  return made_up_gcloud.Cloud(tmp_path / 'cloud')


@pytest.fixture
def vm(tmp_path, cloud):
  """Makes the environment of each host of a VM."""
  bin_, packages = tmp_path / 'vm', tmp_path / 'packages'
  bin_.mkdir()
  program(bin_, 'python3', f'exec {os.path.realpath(sys.executable)} "$@"')
  program(bin_, 'sudo', 'exec "$@"')
  program(bin_, 'apt-get', '[ "$1" = update ] || [ "$1" = install ]')
  packages.mkdir()
  (packages / 'pip.py').symlink_to(made_up_pip.__file__)

  with contextlib.ExitStack() as servers:

    def hosts(kind, count=1):
      for number in range(count):
        folder = tmp_path / f'network-{number}'
        folder.mkdir()
        answering = answers(cloud, metadata(kind, number, count))
        network = made_up_gcs.running(folder, answering)
        variables = servers.enter_context(network)
        del variables['NO_GCE_CHECK']
        yield {
          **variables,
          'http_proxy': variables['https_proxy'],  # to the metadata
          'no_proxy': '127.0.0.1,localhost',
          # TensorFlow asks for so much at a time, and clears the memory for it.
          'GCS_READ_CACHE_BLOCK_SIZE_MB': '1',
          'JAX_FORCE_TPU_INIT': '1',
          'PATH': f'{bin_}:/usr/bin:/bin',
          'PYTHONPATH': str(packages),
          'TMPDIR': str(tmp_path),
          'TPU_ACCELERATOR_TYPE': kind,
          made_up_pip.FROM: sys.prefix,
        }

    yield hosts


def metadata(kind, number, count):
  """What the metadata server of a host of a slice knows."""
  return {
    'agent-worker-number': str(number),
    'token': json.dumps(CREDENTIALS),
    'tpu-env': f"ACCELERATOR_TYPE: '{kind}'\n",
    'worker-network-endpoints': ','.join(['unknown:unknown:127.0.0.1'] * count),
  }


def answers(cloud, values):
  """Makes what answers a VM: its metadata, and storage with its token."""

  def answer(request):
    if request.path.startswith('/computeMetadata/'):
      value = values.get(request.path.rpartition('/')[2])
      if value is None:
        return made_up_gcs.refused(404)
      return made_up_gcs.Answer(value.encode())
    if request.headers.get('Authorization') != f'Bearer {TOKEN}':
      return made_up_gcs.refused(401)
    return cloud.objects.answer(request)

  return answer


@pytest.fixture
def here(tmp_path, laptop):
  """The user's shell, in the checkout."""
  bin_ = tmp_path / 'bin'
  bin_.mkdir()
  # Clones the repository of a T5 of Hugging Face.
  program(
    bin_,
    'git',
    '[ "$1" = clone ] || exec /usr/bin/git "$@"\n'
    '[ "$2" = https://huggingface.co/google-t5/t5-base ] && mkdir "$3" &&\n'
    'cp my_vocabulary.model "$3/spiece.model"',
  )
  environment = {
    **os.environ,
    'PATH': f'{bin_}:{os.path.dirname(PROGRAM)}:{os.environ["PATH"]}',
    'PYTHONPATH': str(CHECKOUT),
  }
  with Shell('sh', cwd=laptop, env=environment) as shell:
    yield shell


def test_from_nothing_to_scores(tmp_path, cloud, vm, here, laptop):
  (variables,) = hosts = [*vm('v5litepod-8')]
  cloud.install(hosts, tmp_path / 'bin')
  printed = []
  with contextlib.ExitStack() as opened:
    there: Any = None
    for command in itertools.chain(*blocks('tpu.md')):
      if ' ssh ' in command:
        name, *words = here.words(command)
        there = opened.enter_context(Shell(tmp_path / 'bin' / name, *words))
        continue
      is_doctor = 'doctor' in command
      shell = there if there and not is_of_laptop(command) else here
      printed.append(shell.run(shortened(command), fails=is_doctor))
      if is_doctor:  # what follows is forked
        (home,) = cloud.homes('tpu-1')
        forked = forks.programs(
          *forks.IMPORTS,
          python=home / 'synth_mtf' / ENVIRONMENT / 'bin' / 'python',
          env={'HOME': str(home), **variables},
        )
        there.run(f'PATH={opened.enter_context(forked)}:$PATH')
  output = ''.join(printed)
  assert 'state: ACTIVE' in output
  # No folder has the device files of a TPU.
  assert re.search(r'FAULT +there is no /dev/accel', output)
  assert re.search(r'JAX [\d.]+ finds: 1 tpu', output)
  assert '\n1 fault.\n' in output
  assert 'Runs read it with --cache_dir=gs://BUCKET-OF-YOURS/cache' in output
  assert 'Wrote gs://BUCKET-OF-YOURS/rv/model.ckpt-2\n' in output
  assert 'Starts after step 2, that of its checkpoint' in output
  assert 'rv_en_mix/model.ckpt-4.index' in cloud.objects.names(BUCKET)
  results = records.read(str(laptop / 'my_runs/rv_en_mix/validation_eval'))
  assert {(result.step, result.n) for result, _ in results} == {(2, 8), (4, 8)}
  assert re.search(r'\| Syn \(R\+V\) .*\d\.\d \|\n', output)
  assert not printed[-1].strip()  # the list of VMs


def test_a_slice_of_two_hosts(tmp_path, cloud, vm, here):
  cloud.install([*vm('v5litepod-16', 2)], tmp_path / 'bin')
  for command in itertools.chain(*blocks('tpu.md')):
    if 'rv_en_mix' in command:
      break
    is_here = is_of_laptop(command) or 'export ZONE' in command
    if is_here and ' tpu-vm ' not in command:
      here.run(command.replace('v5litepod-8', 'v5litepod-16'))
  commands = itertools.chain(*blocks('tpu.md', of_a_slice=True))
  printed = ''.join(here.run(shortened(command)) for command in commands)
  assert 'Mesh: batch:2, all devices' in printed
  assert 'Wrote gs://BUCKET-OF-YOURS/rv/model.ckpt-2\n' in printed
  assert 'rv/model.ckpt-2.index' in cloud.objects.names(BUCKET)
  for home in cloud.homes('tpu-1'):
    assert (home / 'synth_mtf' / '.venv-tpu' / 'bin' / 'synth-mtf').exists()


def test_a_startup_script_trains_until_its_vm_ends(
  tmp_path, cloud, vm, here, laptop
):
  cloud.install([*vm('v5litepod-8')], tmp_path / 'bin', tmp_path / 'vm')
  script = laptop / 'examples' / 'startup.sh'
  text = script.read_text()
  for given, smaller in {
    '--device=tpu': f'"--device=tpu {SMALL}"',
    'run.sh base': 'run.sh tiny',
  }.items():
    assert text.count(given) == 1, given
    text = text.replace(given, smaller)
  script.write_text(text)
  for command in itertools.chain(*blocks('sweeps.md')):
    here.run(command)
  (name,) = cloud.names()
  prefix = 'sweep/tiny/random_vanilla/seed_0/pretrain/'

  def saved():
    """Returns the steps of the checkpoints in the bucket."""
    names = cloud.objects.names(BUCKET, prefix)
    return {int(step) for step in re.findall(r'-(\d+)\.index', str(names))}

  deadline = time.monotonic() + int(SECONDS)
  while not saved() and cloud.is_running(name):
    assert time.monotonic() < deadline
    time.sleep(0.2)
  printed = cloud.delete(name)
  step = max(saved(), default=None)
  assert f'Stopped. model.ckpt-{step} is saved' in printed, printed


def test_the_commands_of_the_readme_are_those_of_the_document():
  in_readme = list(itertools.chain(*blocks('../README.md')))
  in_document = list(map(shlex.split, itertools.chain(*blocks('tpu.md'))))
  assert in_readme
  for command in in_readme:
    assert sorted(shlex.split(command)) in map(sorted, in_document)
