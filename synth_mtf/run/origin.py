"""Where results come from: the command, code, machine, vocabulary and data.

Training adds its origin to `origins.json` in the model folder, an evaluation to
its metrics.json. `synth-mtf replay` compares them with this machine.
"""

import dataclasses
import datetime
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
from synth_mtf import json_files, tasks
from synth_mtf.checkpoints.identity import describe_vocabulary
from synth_mtf.errors import UserError
from synth_mtf.host import explanations
from synth_mtf.results import records, runs
from synth_mtf.tasks.data_settings import BYTES

# The environment variables that results depend on; an index only saves time.
ENVIRONMENT = (
  'PYTHONHASHSEED',
  *(
    f'SYNTH_MTF_{setting.name.upper()}'
    for setting in dataclasses.fields(tasks.Settings)
    if setting.name != 'index_dir'
  ),
)
_PACKAGES = 'tensorflow', 'mesh-tensorflow', 't5', 'seqio-nightly', 'gin-config'
# Fixed, so that all results of an evaluation share one origin.
_BEGUN = datetime.datetime.now(datetime.timezone.utc).isoformat('T', 'seconds')


def here(vocabulary: Any) -> records.Origin:
  """Returns the origin of what this process computes.

  Args:
    vocabulary: of the run: a seqio vocabulary, a pair of them, or None.
  """
  devices = (device.name for device in tf.config.list_physical_devices())
  return {
    'date': _BEGUN,
    'folder': os.getcwd(),
    'command': shlex.join(sys.argv),
    'environment': {x: os.environ[x] for x in ENVIRONMENT if x in os.environ},
    'machine': f'{platform.processor() or platform.machine()}, '
    f'{", ".join(devices)}, {os.cpu_count()} cores',
    'versions': _versions(),
    'vocabulary': vocabulary and describe_vocabulary(vocabulary),
  }


def record(vocabulary: Any, model_dir: str) -> None:
  """Adds the origin of a training to those of its folder."""
  origins = json_files.read(model_dir, records.ORIGINS, list) or []
  origins.append(here(vocabulary))
  path = os.path.join(model_dir, records.ORIGINS)
  json_files.write(path, origins, indent=1)


def command(made: records.Origin) -> str:
  """Returns a shell line that runs an origin's command from any folder."""
  words = shlex.split(made['command'])
  is_ours = os.path.basename(words[0]) == 'synth-mtf'
  words[0] = 'synth-mtf' if is_ours else 't5_mesh_transformer'
  given = made['environment']  # untrusted: it may hold LD_PRELOAD
  variables = [f'{name}={given[name]}' for name in ENVIRONMENT if name in given]
  line = shlex.join(['env', *variables, *words])
  return f'cd {shlex.quote(made["folder"])} && {line}'


def differences(made: records.Origin) -> Iterator[str]:
  """Yields what differs between an origin and this process."""
  vocabulary, now = made.get('vocabulary'), here(None)
  if vocabulary:
    name = vocabulary['inputs']['name']
    recorded = BYTES if name == seqio.ByteVocabulary.__name__ else name
    try:
      with explanations.explained():
        now = here(
          tasks.vocabulary.load(tasks.settings().vocabulary or recorded)
        )
    except UserError as error:
      yield str(error)
  there, found = _facts(made), _facts(now)
  for what, value in there.items():
    if value != found.get(what):
      yield f'{what}: {value} there, {found.get(what)} here'


def _facts(made: records.Origin) -> dict[str, Any]:
  vocabulary = made.get('vocabulary') or {}
  return {
    'machine': made['machine'],
    **made['versions'],
    **{f'vocabulary of {k}': one['sha256'] for k, one in vocabulary.items()},
  }


def data_differences(run: runs.Run) -> Iterator[str]:
  """Yields the splits whose files here are not those that were evaluated."""
  known = {(x.task, x.split): x.digest for x in run.results if x.digest}
  for (task, split), digest in known.items():
    try:
      found = tasks.inspection.digest(task, split) or 'no files'
    except UserError as error:
      found = f'none: {error}'
    if found != digest:
      yield f'data of {task}, {split}: {digest} there, {found} here'


def _versions() -> dict[str, str]:
  installed = {
    package.metadata['Name']: package.version
    for package in importlib.metadata.distributions()
  }
  found = {
    'python': platform.python_version(),
    'synth-mtf': synth_mtf.__version__,
    **{name: installed[name] for name in _PACKAGES if name in installed},
  }
  root = pathlib.Path(synth_mtf.__file__).parents[1]
  if (root / '.git').exists() and shutil.which('git'):
    words = ['git', 'describe', '--always', '--dirty', '--abbrev=40']
    git = subprocess.run(words, cwd=root, capture_output=True, text=True)
    found['commit'] = git.stdout.strip() or 'unknown'
  return found
