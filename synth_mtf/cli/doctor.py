"""`synth-mtf doctor`: what this machine has, and how to fix what it lacks.

It also runs where the installation is broken: everything beyond the standard
library is imported inside the check that needs it.
"""

import argparse
import collections
import importlib
import importlib.metadata
import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from typing import NamedTuple, Optional, Union

from synth_mtf.cli.data_report import DataReport
from synth_mtf.errors import UserError
from synth_mtf.run import process

SUMMARY = 'versions, devices, vocabulary and data, and how to fix each fault'

_DISTRIBUTIONS = (
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
_CONSTRAINTS = {'2.12': 'constraints.txt', '2.15': 'constraints-tf2.15.txt'}
_INSTALL = 'in the checkout: make env, or pip install -c {} .'
_SECONDS = 5


class Finding(NamedTuple):
  """One line of the report.

  Attributes:
    what: what was checked, and what was found.
    fix: what to do about it; '' if nothing needs to be done.
    fault: whether runs fail until it is fixed.
  """

  what: str
  fix: str = ''
  fault: bool = False

  def __str__(self) -> str:
    mark = 'FAULT' if self.fault else 'note ' if self.fix else 'ok   '
    return f'{mark}  {self.what}' + (f'\n       -> {self.fix}' * bool(self.fix))


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags for what to check instead of the defaults."""
  parser.add_argument(
    '--data_dir',
    metavar='FOLDER',
    help='folder of official files to check (default: $SYNTH_MTF_DATA_DIR)',
  )
  parser.add_argument(
    '--vocabulary',
    metavar='MODEL',
    help="a SentencePiece .model, or 'bytes' (default: $SYNTH_MTF_VOCABULARY, "
    "else T5's)",
  )


def run(args: argparse.Namespace) -> int:
  """Prints the findings and a table of the data files.

  Returns:
    1 if there is a fault, else 0.
  """
  faults = 0
  for finding in _findings(args):
    print(finding, flush=True)
    faults += isinstance(finding, Finding) and finding.fault
  print(f'\n{faults or "No"} fault{"s" * (faults != 1)}.')
  return int(bool(faults))


def _findings(args: argparse.Namespace) -> Iterator[Union[Finding, str]]:
  yield _python()
  tensorflow = _version('tensorflow')
  series = '.'.join((tensorflow or '').split('.')[:2])
  install = _INSTALL.format(_CONSTRAINTS.get(series, 'constraints.txt'))
  yield _tensorflow(tensorflow, series, install)
  yield from _distributions(install)
  yield _torch(series)
  host = _host(install)
  yield host
  if host.fault:
    return
  yield from _devices()
  for name in ('data_dir', 'vocabulary'):
    if getattr(args, name):
      os.environ[f'SYNTH_MTF_{name.upper()}'] = getattr(args, name)
  yield _vocabulary()
  yield from _data()


def _python() -> Finding:
  found = f'Python {platform.python_version()} ({sys.executable})'
  if (3, 9) <= sys.version_info[:2] <= (3, 11):
    return Finding(found)
  return Finding(
    found, 'create an environment with Python 3.9, 3.10 or 3.11', fault=True
  )


def _version(distribution: str) -> Optional[str]:
  try:
    return importlib.metadata.version(distribution)
  except importlib.metadata.PackageNotFoundError:
    return None


def _tensorflow(version: Optional[str], series: str, install: str) -> Finding:
  if version is None:
    return Finding('tensorflow is not installed', install, fault=True)
  if series not in _CONSTRAINTS:
    tested = ' and '.join(_CONSTRAINTS)
    return Finding(
      f'tensorflow {version}: tested with {tested} only', install, fault=True
    )
  purpose = {
    '2.12': 'the default; the stock t5_mesh_transformer runs on it, too',
    '2.15': 'for CUDA 12; t5_mesh_transformer needs TensorFlow 2.12',
  }
  return Finding(f'tensorflow {version}: {purpose[series]}')


def _distributions(install: str) -> Iterator[Finding]:
  found = {name: _version(name) for name in _DISTRIBUTIONS}
  present = [f'{name} {version}' for name, version in found.items() if version]
  if present:
    yield Finding(', '.join(present))
  missing = [name for name, version in found.items() if not version]
  if missing:
    yield Finding(f'not installed: {", ".join(missing)}', install, fault=True)


def _torch(series: str) -> Finding:
  version = _version('torch')
  if version:
    return Finding(f'torch {version}')
  if series == '2.15':
    return Finding('torch is not installed, and nothing here uses it')
  return Finding(
    'torch is not installed; only the stock t5_mesh_transformer needs it',
    "for that command: pip install -c constraints.txt 'synth-mtf[t5-cli]'",
  )


def _host(install: str) -> Finding:
  """Imports what every command imports."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      process.load_plugin()
      importlib.import_module('t5.models.mesh_transformer_main')
      importlib.import_module('synth_mtf.tasks')
  except Exception as error:  # mismatched versions raise anything
    cause = error.__cause__ or error
    found = f'import fails: {type(cause).__name__}: {cause}'
    return Finding(found, install, fault=True)
  return Finding('synth_mtf, mesh_tensorflow, t5 and the tasks can be imported')


def _devices() -> Iterator[Finding]:
  import tensorflow as tf

  devices = tf.config.list_physical_devices()
  kinds = collections.Counter(device.device_type for device in devices)
  counts = ', '.join(f'{kinds[kind]} {kind}' for kind in sorted(kinds))
  yield Finding(f'TensorFlow sees: {counts}; {os.cpu_count()} cores')
  if 'GPU' not in kinds and shutil.which('nvidia-smi'):
    cuda = tf.sysconfig.get_build_info().get('cuda_version', 'no CUDA')
    yield Finding(
      'there is an NVIDIA driver, but TensorFlow sees no GPU',
      f'this TensorFlow was built for CUDA {cuda}; TensorFlow 2.12 needs CUDA '
      '11.8 and cuDNN 8.6, 2.15 needs CUDA 12.2 and cuDNN 8.9',
    )


def _vocabulary() -> Finding:
  from synth_mtf.tasks import VOCABULARY, settings

  name = settings().vocabulary
  if not name:
    return _t5_vocabulary()
  try:
    size = VOCABULARY.vocab_size
  except UserError as error:
    return Finding(str(error), 'pass another --vocabulary', fault=True)
  return Finding(f'vocabulary {name}: {size} pieces')


def _t5_vocabulary() -> Finding:
  """Checks over HTTPS, because TensorFlow's GCS client retries for minutes."""
  import t5.data

  path = t5.data.DEFAULT_SPM_PATH
  url = path.replace('gs://', 'https://storage.googleapis.com/')
  try:
    request = urllib.request.Request(url, method='HEAD')
    urllib.request.urlopen(request, timeout=_SECONDS).close()
  except (OSError, urllib.error.URLError) as error:
    return Finding(
      f"T5's vocabulary {path} cannot be reached: {error}",
      'connect to the network, or pass --vocabulary=FILE.model or '
      '--vocabulary=bytes (the demo needs neither)',
    )
  return Finding(f"T5's vocabulary {path} can be reached")


def _data() -> Iterator[Union[Finding, str]]:
  from synth_mtf.tasks import settings

  data_dir = settings().data_dir
  if not data_dir:
    yield Finding(
      'no data folder is set: tasks read TensorFlow Datasets',
      'for official files, pass --data_dir=FOLDER or set SYNTH_MTF_DATA_DIR '
      '(the demo needs neither)',
    )
  elif not os.path.isdir(data_dir) and '://' not in data_dir:
    yield Finding(
      f'data folder {data_dir} does not exist',
      'pass the folder with glue/CoLA/train.tsv, superglue/..., squad/...',
      fault=True,
    )
  else:
    yield from _official_files(data_dir)


def _official_files(data_dir: str) -> Iterator[Union[Finding, str]]:
  """Reads every row of every task's files, and lists the missing files."""
  from synth_mtf.tasks.files.source import FIX

  report = DataReport(data_dir)
  yield from report.lines()
  yield from (f'odd    {note}' for note in report.notes)
  for path, faults in report.faults.items():
    indented = ''.join(f'\n       {line}' for line in faults.splitlines())
    yield Finding(f'malformed: {path}{indented}', FIX, fault=True)
  yield Finding(
    f'data folder {data_dir}: files of {len(report.found)} tasks',
    '' if report.found else 'pass the folder with glue/CoLA/train.tsv, ...',
    fault=not report.found,
  )
  if report.found and report.missing:
    yield Finding(
      f'missing: {", ".join(report.missing)}',
      'only runs that use one of these need it',
    )
