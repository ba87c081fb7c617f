"""`synth-mtf doctor`: diagnoses this machine's setup, and suggests fixes.

It also runs on a broken installation: everything beyond the standard library is
imported inside the check that needs it.
"""

import argparse
import collections
import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence

from synth_mtf.cli import data
from synth_mtf.errors import UserError
from synth_mtf.run import main, output, process

_DISTRIBUTIONS = (
  'tensorflow',
  'tensorflow-estimator',
  'tensorflow-text',
  'mesh-tensorflow',
  't5',
  'seqio-nightly',
  'tensorflow-datasets',
  'gin-config',
  'sentencepiece',
  'numpy',
  'protobuf',
)
_INSTALL = 'in the checkout: make env, or pip install -c constraints.txt .'


add_arguments = data.add_arguments


def run(args: argparse.Namespace) -> int:
  """Prints findings and a table of data files; returns 1 if any is a fault."""
  data.use(args)
  faults = 0
  for mark, *finding in _findings():
    print(f'{mark:5} ', '\n       -> '.join(finding), flush=True)
    if mark == 'FAULT':
      faults += 1
  number = '1 fault' if faults == 1 else f'{faults or "No"} faults'
  print(f'\n{number}.')
  return 1 if faults else 0


def _findings() -> Iterator[Sequence[str]]:
  """Yields 'ok', 'note' or 'FAULT', what was found, and how to fix it."""
  versions = {}
  for name in _DISTRIBUTIONS:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions[name] = importlib.metadata.version(name)
  series = '.'.join(versions.get('tensorflow', '').split('.')[:2])
  yield 'ok', f'Python {platform.python_version()} ({sys.executable})'
  if versions:
    yield 'ok', ', '.join(f'{name} {v}' for name, v in versions.items())
  if series not in ('', '2.12', '2.21'):
    yield (
      'FAULT',
      f'TensorFlow {series}: tested with 2.12 and 2.21 only',
      _INSTALL,
    )
  missing = [name for name in _DISTRIBUTIONS if name not in versions]
  if missing:
    yield 'FAULT', f'not installed: {", ".join(missing)}', _INSTALL
  try:
    process.load_quietly()
    with output.kept():
      main.prepare()
  except Exception as error:  # mismatched versions raise anything
    cause = error.__cause__ or error
    yield 'FAULT', f'import fails: {type(cause).__name__}: {cause}', _INSTALL
    return
  yield 'ok', 'synth_mtf, mesh_tensorflow, t5 and the tasks can be imported'
  for check in (_devices, _vocabulary, _data):
    try:
      yield from check()
    except UserError as error:
      yield 'FAULT', str(error)


def _devices() -> Iterator[Sequence[str]]:
  import tensorflow as tf

  devices = tf.config.list_physical_devices()
  kinds = collections.Counter(device.device_type for device in devices)
  counts = ', '.join(f'{kinds[kind]} {kind}' for kind in sorted(kinds))
  yield 'ok', f'TensorFlow sees: {counts}; {os.cpu_count()} cores'
  if 'GPU' not in kinds and shutil.which('nvidia-smi'):
    cuda = tf.sysconfig.get_build_info().get('cuda_version', 'no CUDA')
    yield (
      'note',
      'there is an NVIDIA driver, but TensorFlow sees no GPU',
      f'this TensorFlow was built for CUDA {cuda}; TensorFlow 2.12 needs CUDA '
      '11.8 and cuDNN 8.6 on the machine, and pip installs what 2.21 needs: '
      "pip install 'tensorflow[and-cuda]==2.21.0'",
    )


def _vocabulary() -> Iterator[Sequence[str]]:
  import t5.data

  from synth_mtf.tasks import VOCABULARY, settings

  name = settings().vocabulary
  if name:
    yield 'ok', f'vocabulary {name}: {VOCABULARY.vocab_size} pieces'
  else:
    yield (
      'note',
      f"no vocabulary is set: T5's own, {t5.data.DEFAULT_SPM_PATH}, needs a "
      'network',
      'without one, pass --vocabulary=FILE.model or --vocabulary=bytes (the '
      'demo needs neither)',
    )


def _data() -> Iterator[Sequence[str]]:
  """Reads every row of every task's files, and lists the missing files."""
  import seqio

  from synth_mtf.tasks import inspection, settings
  from synth_mtf.tasks.files.source import FIX
  from synth_mtf.tasks.task_file import register

  setting, own = settings(), register()
  if own:
    yield 'ok', f'task file {setting.task_file}: {", ".join(own)}'
  names = inspection.names(seqio.TaskRegistry)
  folders = {
    name: setting.data_dir_of(name) for name in names if name not in own
  }
  listed = ', '.join(
    folder for folder in dict.fromkeys(folders.values()) if folder
  )
  if not setting.data_dir:
    tasks = 'other tasks' if listed else 'tasks'
    yield (
      'note',
      f'no data folder is set: {tasks} read TensorFlow Datasets',
      'for official files, pass --data_dir=FOLDER or set SYNTH_MTF_DATA_DIR '
      '(the demo needs neither)',
    )
  names = [name for name in names if name in own or folders[name]]
  splits = data.print_rows(names, setting.data_dir or '')
  if data.print_odd(splits):
    yield 'FAULT', 'the malformed rows above', FIX
  if not listed:
    return
  present = {split.task for split in splits if split.files} - {*own}
  number = '1 task' if len(present) == 1 else f'{len(present)} tasks'
  finding = f'data folder {listed}: files of {number}'
  if not present:
    yield 'FAULT', finding, 'pass the folder with glue/CoLA/train.tsv, ...'
    return
  yield 'ok', finding
  missing = [f'{split.task} {split.split}' for split in splits if split.missing]
  if missing:
    yield (
      'note',
      f'missing: {", ".join(missing)}',
      'only runs that use one of these need it',
    )
