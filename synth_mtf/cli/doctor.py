"""`synth-mtf doctor`: what this machine has, and how to mend what it lacks.

It runs on a broken installation too: everything beyond the standard library is
imported inside the check that needs it.
"""

import argparse
import dataclasses
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
from typing import Optional, Union

from synth_mtf.cli.data_report import DataReport
from synth_mtf.errors import UserError
from synth_mtf.run import process

SUMMARY = 'versions, devices, vocabulary and data, and the mend for each fault'

_PYTHONS = ((3, 9), (3, 11))
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
_INSTALL = 'in the checkout: make env, or pip install -c {constraints} .'
_SETS = {
  '2.12': 'the default set, on which the stock t5_mesh_transformer runs too',
  '2.15': 'the set for CUDA 12; t5_mesh_transformer needs TensorFlow 2.12',
}
_SECONDS = 5


@dataclasses.dataclass(frozen=True)
class Finding:
  """One line of the report.

  Attributes:
    what: what was looked at, and what was found.
    mend: what to do about it; '' if nothing needs to be done.
    fault: whether nothing, or not what was asked for, runs until it is mended.
  """

  what: str
  mend: str = ''
  fault: bool = False

  def __str__(self) -> str:
    mark = 'FAULT' if self.fault else 'note ' if self.mend else 'ok   '
    return f'{mark}  {self.what}' + (
      f'\n       -> {self.mend}' * bool(self.mend)
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that say what to look at instead of the defaults."""
  parser.add_argument(
    '--data_dir',
    metavar='FOLDER',
    help='folder of official files to look at (default: $SYNTH_MTF_DATA_DIR)',
  )
  parser.add_argument(
    '--vocabulary',
    metavar='MODEL',
    help="a SentencePiece .model, or 'bytes' (default: $SYNTH_MTF_VOCABULARY, "
    "else T5's)",
  )


def run(args: argparse.Namespace) -> int:
  """Prints the findings, with a table of the data files.

  Returns:
    1 if one of them is a fault, else 0.
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
  yield _tensorflow(tensorflow)
  constraints = _constraints(tensorflow)
  yield from _distributions(constraints)
  yield _torch(tensorflow)
  host = _host(constraints)
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
  version = platform.python_version()
  (low, high) = _PYTHONS
  return Finding(
    f'Python {version} ({sys.executable})',
    *(
      ()
      if low <= sys.version_info[:2] <= high
      else ('make an environment with Python 3.9, 3.10 or 3.11', True)
    ),
  )


def _version(distribution: str) -> Optional[str]:
  try:
    return importlib.metadata.version(distribution)
  except importlib.metadata.PackageNotFoundError:
    return None


def _constraints(tensorflow: Optional[str]) -> str:
  new = tensorflow and tensorflow.startswith('2.15.')
  return 'constraints-tf2.15.txt' if new else 'constraints.txt'


def _tensorflow(version: Optional[str]) -> Finding:
  if version is None:
    mend = _INSTALL.format(constraints='constraints.txt')
    return Finding('tensorflow is not installed', mend, fault=True)
  for series, meaning in _SETS.items():
    if version.startswith(f'{series}.'):
      return Finding(f'tensorflow {version}: {meaning}')
  return Finding(
    f'tensorflow {version}: tested are {" and ".join(_SETS)}',
    _INSTALL.format(constraints='constraints.txt'),
    fault=True,
  )


def _distributions(constraints: str) -> Iterator[Finding]:
  found = {name: _version(name) for name in _DISTRIBUTIONS}
  present = [f'{name} {version}' for name, version in found.items() if version]
  if present:
    yield Finding(', '.join(present))
  missing = [name for name, version in found.items() if not version]
  if missing:
    mend = _INSTALL.format(constraints=constraints)
    yield Finding(f'not installed: {", ".join(missing)}', mend, fault=True)


def _torch(tensorflow: Optional[str]) -> Finding:
  version = _version('torch')
  if version:
    return Finding(f'torch {version}')
  if tensorflow and tensorflow.startswith('2.15.'):
    return Finding('torch is not installed; nothing here uses it')
  return Finding(
    'torch is not installed; only the stock t5_mesh_transformer needs it',
    "for that command: pip install -c constraints.txt 'synth-mtf[t5-cli]'",
  )


def _host(constraints: str) -> Finding:
  """Imports what all commands import."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      process.load_plugin()
      importlib.import_module('t5.models.mesh_transformer_main')
      importlib.import_module('synth_mtf.tasks')
  except Exception as error:  # whatever a mismatch of versions raises
    cause = error.__cause__ or error
    return Finding(
      f'import fails: {type(cause).__name__}: {cause}',
      _INSTALL.format(constraints=constraints),
      fault=True,
    )
  return Finding('synth_mtf, mesh_tensorflow, t5 and the tasks can be imported')


def _devices() -> Iterator[Finding]:
  import tensorflow as tf

  devices = tf.config.list_physical_devices()
  kinds = sorted({device.device_type for device in devices})
  counts = [
    f'{sum(device.device_type == kind for device in devices)} {kind}'
    for kind in kinds
  ]
  yield Finding(f'TensorFlow sees: {", ".join(counts)}; {os.cpu_count()} cores')
  if 'GPU' not in kinds and shutil.which('nvidia-smi'):
    cuda = tf.sysconfig.get_build_info().get('cuda_version', 'no CUDA')
    yield Finding(
      'an NVIDIA driver is here, but TensorFlow sees no GPU',
      f'this TensorFlow was built for CUDA {cuda}; TensorFlow 2.12 wants CUDA '
      '11.8 and cuDNN 8.6, 2.15 wants CUDA 12.2 and cuDNN 8.9',
    )


def _vocabulary() -> Finding:
  from synth_mtf.tasks import VOCABULARY, settings

  name = settings().vocabulary
  if not name:
    return _t5_vocabulary()
  try:
    size = VOCABULARY.vocab_size
  except UserError as error:
    return Finding(str(error), 'give another --vocabulary', fault=True)
  return Finding(f'vocabulary {name}: {size} pieces')


def _t5_vocabulary() -> Finding:
  """Looks for it over HTTPS: TensorFlow's GCS client retries for minutes."""
  import t5.data

  path = t5.data.DEFAULT_SPM_PATH
  url = path.replace('gs://', 'https://storage.googleapis.com/')
  try:
    request = urllib.request.Request(url, method='HEAD')
    urllib.request.urlopen(request, timeout=_SECONDS).close()
  except (OSError, urllib.error.URLError) as error:
    return Finding(
      f"T5's vocabulary {path} cannot be reached: {error}",
      'connect to the network, or use a local SentencePiece model or bytes: '
      '--vocabulary=FILE.model, --vocabulary=bytes (the demo needs neither)',
    )
  return Finding(f"T5's vocabulary {path} can be reached")


def _data() -> Iterator[Union[Finding, str]]:
  from synth_mtf.tasks import settings

  data_dir = settings().data_dir
  if not data_dir:
    yield Finding(
      'no data folder is set: tasks read TensorFlow Datasets',
      'for official files: --data_dir=FOLDER or SYNTH_MTF_DATA_DIR (the demo '
      'needs neither)',
    )
  elif not os.path.isdir(data_dir) and '://' not in data_dir:
    yield Finding(
      f'data folder {data_dir} does not exist',
      'give the folder that has glue/CoLA/train.tsv, superglue/..., squad/...',
      fault=True,
    )
  else:
    yield from _official_files(data_dir)


def _official_files(data_dir: str) -> Iterator[Union[Finding, str]]:
  """Reads every row of every task's files, and says which are not there."""
  from synth_mtf.tasks.files.source import MEND

  report = DataReport(data_dir)
  yield from report.lines()
  yield from (f'odd    {note}' for note in report.notes)
  for path, faults in report.faults.items():
    indented = ''.join(
      f'\n       {line}' for fault in faults for line in fault.splitlines()
    )
    yield Finding(f'malformed: {path}{indented}', MEND, fault=True)
  yield Finding(
    f'data folder {data_dir}: files of {len(report.found)} tasks',
    '' if report.found else 'give the folder that has glue/CoLA/train.tsv, ...',
    fault=not report.found,
  )
  if report.found and report.missing:
    yield Finding(
      f'not there: {", ".join(report.missing)}',
      'only a run that uses one of these needs it, and says which file',
    )
