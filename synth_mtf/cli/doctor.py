"""`synth-mtf doctor`: diagnoses this machine's setup, and suggests fixes.

It also runs on a broken installation: everything beyond the standard library is
imported inside the check that needs it.
"""

import argparse
import collections
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator

from synth_mtf.cli import accelerators, data
from synth_mtf.cli.findings import Finding, counted
from synth_mtf.errors import UserError
from synth_mtf.host import tpu_runtime, user_modules, xla_flags
from synth_mtf.run import main, output, process

_DISTRIBUTIONS = (  # in addition to TensorFlow
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  data.add_arguments(parser)
  data.add_text(parser)


def run(args: argparse.Namespace) -> int:
  """Prints findings and a table of data files; returns 1 if any is a fault."""
  faults = 0
  for finding in _findings(args):
    print(f'{finding.mark:5}  {finding.text}', flush=True)
    if finding.fix:
      print(f'       -> {finding.fix}', flush=True)
    if finding.mark == 'FAULT':
      faults += 1
  print(f'\n{counted(faults or "No", "fault")}.')
  return 1 if faults else 0


def _findings(args: argparse.Namespace) -> Iterator[Finding]:
  yield Finding('ok', f'Python {platform.python_version()} ({sys.executable})')
  yield from _packages()
  yield from accelerators.packages()
  yield from accelerators.chips()
  yield from accelerators.jax_devices()
  try:
    xla_flags.check(xla_flags.OF_TENSORFLOW)
    tpu_runtime.prepare_import()
  except UserError as error:
    yield Finding('FAULT', str(error))
    return
  try:
    process.load()
    with output.kept():
      main.prepare()
  except Exception as error:  # mismatched versions raise anything
    cause = error.__cause__ or error
    text = f'import fails: {type(cause).__name__}: {cause}'
    yield Finding('FAULT', text, _INSTALL)
    return
  yield Finding(
    'ok', 'synth_mtf, mesh_tensorflow, t5 and the tasks can be imported'
  )
  from synth_mtf.host import explanations

  try:
    user_modules.import_all(args.module_import)
  except UserError as error:
    yield Finding('FAULT', str(error))
  for check in (
    _devices,
    accelerators.tensorflow_runtime,
    accelerators.worker,
    _vocabulary,
    _data,
  ):
    try:
      with explanations.explained():
        yield from check()
    except UserError as error:
      yield Finding('FAULT', str(error))


def _packages() -> Iterator[Finding]:
  versions = {}
  missing = []
  tensorflow = tpu_runtime.package() or 'tensorflow'
  for name in (tensorflow, *_DISTRIBUTIONS):
    try:
      versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      missing.append(name)
  if versions:
    text = ', '.join(f'{name} {v}' for name, v in versions.items())
    yield Finding('ok', text)
  series = '.'.join(versions.get(tensorflow, '').split('.')[:2])
  if series not in ('', '2.12', '2.20'):
    text = f'TensorFlow {series}: tested with 2.12 and 2.20 only'
    yield Finding('FAULT', text, _INSTALL)
  if missing:
    yield Finding('FAULT', f'not installed: {", ".join(missing)}', _INSTALL)


def _devices() -> Iterator[Finding]:
  import tensorflow as tf

  devices = tf.config.list_physical_devices()
  numbers = collections.Counter(device.device_type for device in devices)
  counts = ', '.join(f'{numbers[kind]} {kind}' for kind in sorted(numbers))
  yield Finding('ok', f'TensorFlow sees: {counts}; {os.cpu_count()} cores')
  if 'GPU' not in numbers and shutil.which('nvidia-smi'):
    cuda = tf.sysconfig.get_build_info().get('cuda_version', 'no CUDA')
    yield Finding(
      'note',
      'there is an NVIDIA driver, but TensorFlow sees no GPU',
      'use --device=gpu, which does not need it. For utils.run.mesh_devices: '
      f'this TensorFlow was built for CUDA {cuda}; TensorFlow 2.12 needs CUDA '
      '11.8 and cuDNN 8.6 on the machine, and pip installs what 2.20 needs: '
      "pip install 'tensorflow[and-cuda]==2.20.0'",
    )


def _vocabulary() -> Iterator[Finding]:
  import t5.data

  from synth_mtf.tasks import VOCABULARY, settings

  name = settings().vocabulary
  if name:
    yield Finding('ok', f'vocabulary {name}: {VOCABULARY.vocab_size} pieces')
  else:
    yield Finding(
      'note',
      f"no vocabulary is set, and T5's own, {t5.data.DEFAULT_SPM_PATH}, is in "
      'a bucket that has been closed since February 2026',
      'pass --vocabulary=FILE.model, such as the spiece.model of a T5 of '
      'Hugging Face, or --vocabulary=bytes (the demo needs neither)',
    )


def _data() -> Iterator[Finding]:
  """Reads every row of every task's files, and lists the missing files."""
  import seqio

  from synth_mtf.tasks import inspection, settings
  from synth_mtf.tasks.files.source import FIX
  from synth_mtf.tasks.task_file import register

  setting = settings()
  own = register()
  if own:
    yield Finding('ok', f'task file {setting.task_file}: {", ".join(own)}')
  names = inspection.names(seqio.TaskRegistry)
  data_dirs = {n: setting.data_dir_of(n) for n in names if n not in own}
  distinct = dict.fromkeys(data_dirs.values())
  folders = ', '.join(path for path in distinct if path)
  if not setting.data_dir:
    tasks = 'other tasks' if folders or setting.text else 'tasks'
    yield Finding(
      'note',
      f'no data folder is set: {tasks} read TensorFlow Datasets',
      'for official files, pass --data_dir=FOLDER or set SYNTH_MTF_DATA_DIR '
      '(the demo needs neither)',
    )
  if setting.text:
    yield Finding('ok', f'text {setting.text}, in place of corpus/')
  sources = {name: seqio.TaskRegistry.get(name).source for name in names}
  readable = [x for x in names if getattr(sources[x], 'official', None)]
  splits = data.print_rows(readable, setting.data_dir or '')
  if data.print_odd(splits):
    yield Finding('FAULT', 'the malformed rows above', FIX)
  if not folders:
    return
  with_files = {split.task for split in splits if split.files} - set(own)
  text = f'data folder {folders}: files of {counted(len(with_files), "task")}'
  if not with_files:
    fix = 'pass the folder with glue/CoLA/train.tsv, ...'
    yield Finding('FAULT', text, fix)
    return
  yield Finding('ok', text)
  missing = [f'{split.task} {split.split}' for split in splits if split.missing]
  if missing:
    yield Finding(
      'note',
      f'missing: {", ".join(missing)}',
      'only runs that use one of these need it',
    )
