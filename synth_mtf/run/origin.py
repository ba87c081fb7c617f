"""Where results come from: the command, code, machine, vocabulary and data.

Training adds its origin to `origins.json` in the model folder, an evaluation to
its metrics.json. `synth-mtf replay` compares them with this machine.
"""

import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import seqio
import tensorflow.compat.v1 as tf

import synth_mtf
from synth_mtf import tasks
from synth_mtf.checkpoints.identity import describe_vocabulary
from synth_mtf.errors import UserError
from synth_mtf.host import explanations
from synth_mtf.results import records, runs
from synth_mtf.storage import json_files
from synth_mtf.tasks.data_settings import BYTES

_SETTINGS = [field.name for field in dataclasses.fields(tasks.Settings)]
# The environment variables that results depend on; an index only saves time.
ENVIRONMENT = (
  'PYTHONHASHSEED',
  *(f'SYNTH_MTF_{x.upper()}' for x in _SETTINGS if x != 'index_dir'),
)
_PACKAGES = (
  'tensorflow',
  'mesh-tensorflow',
  't5',
  'seqio-nightly',
  'gin-config',
)


def here(vocabulary: Any, date: str = '') -> records.Origin:
  """Returns the origin of what this process computes.

  Args:
    vocabulary: of the run: a seqio vocabulary, a pair of them, or None.
    date: when the run started.
  """
  return {
    'date': date,
    'folder': os.getcwd(),
    'command': shlex.join(sys.argv),
    'environment': {x: os.environ[x] for x in ENVIRONMENT if x in os.environ},
    'machine': _machine(),
    'versions': _versions(),
    'vocabulary': vocabulary and describe_vocabulary(vocabulary),
  }


def _machine() -> str:
  processor = platform.processor() or platform.machine()
  devices = [device.name for device in tf.config.list_physical_devices()]
  return f'{processor}, {", ".join(devices)}, {os.cpu_count()} cores'


def record(vocabulary: Any, date: str, model_dir: str) -> None:
  """Adds the origin of a training run to those of its folder."""
  origins = json_files.read(model_dir, records.ORIGINS, list) or []
  origins.append(here(vocabulary, date))
  path = os.path.join(model_dir, records.ORIGINS)
  json_files.write(path, origins, indent=1)


def command(made: records.Origin) -> str:
  """Returns a shell line that runs an origin's command from any folder."""
  words = shlex.split(made['command'])
  is_ours = os.path.basename(words[0]) == 'synth-mtf'
  words[0] = 'synth-mtf' if is_ours else 't5_mesh_transformer'
  environment = made['environment']  # untrusted: it may hold LD_PRELOAD
  variables = []
  for name in ENVIRONMENT:
    if name in environment:
      variables.append(f'{name}={environment[name]}')
  line = shlex.join(['env', *variables, *words])
  return f'cd {shlex.quote(made["folder"])} && {line}'


def differences(made: records.Origin) -> Iterator[str]:
  """Yields what differs between an origin and this process."""
  now = here(None)
  if made.get('vocabulary'):
    try:
      with explanations.explained():
        now = here(_vocabulary(made))
    except UserError as error:
      yield str(error)
  facts, facts_here = _facts(made), _facts(now)
  for name, value in facts.items():
    if value != facts_here.get(name):
      yield f'{name}: {value} there, {facts_here.get(name)} here'


def _vocabulary(made: records.Origin) -> seqio.Vocabulary:
  """Loads the vocabulary in the settings, by default that of an origin."""
  recorded = made['vocabulary']['inputs']['name']
  if recorded == seqio.ByteVocabulary.__name__:
    recorded = BYTES
  return tasks.vocabulary.load(tasks.settings().vocabulary or recorded)


def _facts(made: records.Origin) -> dict[str, Any]:
  """Returns the machine, versions and vocabularies of an origin, by name."""
  facts = {'machine': made['machine'], **made['versions']}
  for side, vocabulary in (made.get('vocabulary') or {}).items():
    facts[f'vocabulary of {side}'] = vocabulary['sha256']
  return facts


def data_differences(run: runs.Run) -> Iterator[str]:
  """Yields the splits whose files here are not those that were evaluated."""
  evaluated = {}
  for result in run.results:
    if result.digest:
      evaluated[result.task, result.split] = result.digest
  for (task, split), digest in evaluated.items():
    try:
      digest_here = tasks.inspection.digest(task, split) or 'no files'
    except UserError as error:
      digest_here = f'none: {error}'
    if digest_here != digest:
      yield f'data of {task}, {split}: {digest} there, {digest_here} here'


def _versions() -> dict[str, str]:
  installed = {
    package.metadata['Name']: package.version
    for package in importlib.metadata.distributions()
  }
  versions = {
    'python': platform.python_version(),
    'synth-mtf': synth_mtf.__version__,
  }
  for name in _PACKAGES:
    if name in installed:
      versions[name] = installed[name]
  root = pathlib.Path(synth_mtf.__file__).parents[1]
  if (root / '.git').exists() and shutil.which('git'):
    words = ['git', 'describe', '--always', '--dirty', '--abbrev=40']
    git = subprocess.run(words, cwd=root, capture_output=True, text=True)
    versions['commit'] = git.stdout.strip() or 'unknown'
  return versions
