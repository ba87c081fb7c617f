"""TensorFlow's TPU runtime and the TPU chips of this machine.

TensorFlow's Estimator reaches a TPU through the *stream executor*, a set of C
functions that TensorFlow looks up in `libtpu.so`. Only a TensorFlow that was
built for TPUs does so (the package tensorflow-tpu, or Google's images
tpu-vm-tf-...), and releases of libtpu from 0.0.33 on lack some of these
functions: `import tensorflow` then aborts the process, which no program can
catch. What is here is therefore found without importing TensorFlow.
"""

import fcntl
import importlib.metadata
import importlib.util
import mmap
import os
import pathlib
import re
import struct
import sys
from typing import NamedTuple

from synth_mtf.errors import UserError

# Installs TensorFlow for TPUs, and a libtpu that it can be imported with.
INSTALL = 'make env TPU=1'
_LIBTPU = 'pip install libtpu==0.0.21'
LOCK = '/tmp/libtpu_lockfile'  # noqa: S108 (libtpu's own)

# TensorFlow looks up some 200 functions. Of those, libtpu 0.0.33 renamed the
# first, and 0.0.43 dropped the second with most others.
_STREAM_EXECUTOR = (
  'TpuExecutable_FreeMaybeOwningDeviceMemoryArray',
  'ConfigureDistributedTpuOp_DoWork',
)
# The largest of the 16 files that differ between the two packages.
_LIBRARY = 'tensorflow/libtensorflow_cc.so.2'
_GOOGLE = '0x1ae0'  # a vendor on the PCI bus
# As in jax/_src/hardware_utils.py.
_DEVICE_IDS = {
  '0x0027': 'v2 or v3',
  '0x005e': 'v4',
  '0x0062': 'v5p',
  '0x0063': 'v5e',
  '0x006f': 'v6e',
  '0x0076': 'TPU7x',
}
# The start of an accelerator type such as v5litepod-8.
_ACCELERATOR_TYPES = {
  'v2': 'v2 or v3',
  'v3': 'v2 or v3',
  'v4': 'v4',
  'v5litepod': 'v5e',
  'v5p': 'v5p',
  'v6e': 'v6e',
  'tpu7x': 'TPU7x',
}
_WITH_STREAM_EXECUTOR = ('v2 or v3', 'v4')


class Chips(NamedTuple):
  """The TPU chips of this machine.

  Attributes:
    generation: such as v4.
    number: how many there are on the PCI bus; 0 if the environment variable
      TPU_ACCELERATOR_TYPE alone names them.
    devices: the device files through which programs reach them.
  """

  generation: str
  number: int
  devices: list[str]

  @property
  def has_stream_executor(self) -> bool:
    """Whether TensorFlow's Estimator reaches them."""
    return self.generation in _WITH_STREAM_EXECUTOR


def prepare_import() -> None:
  """Prepares `import tensorflow` where TensorFlow was built for TPUs.

  Without a TPU, libtpu would ask the metadata server of Google's cloud for it,
  for minutes: the import then does not.

  Raises:
    UserError: libtpu lacks a function, so that the import would abort the
      process.
  """
  if 'tensorflow' in sys.modules or os.environ.get('TPU_LOAD_LIBRARY') == '0':
    return
  library = libtpu()
  if library is None or package() != 'tensorflow-tpu':
    return
  lacks = missing_functions(library)
  if lacks:
    raise UserError(
      f'{described_libtpu(library)} lacks {lacks[0]}, which TensorFlow '
      f'{_version("tensorflow-tpu")} (package tensorflow-tpu) calls: `import '
      f'tensorflow` would abort. Install one that has it: {_LIBTPU}. To work '
      'without the TPU, set the environment variable TPU_LOAD_LIBRARY=0.'
    )
  if not _device_files('/'):
    os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')


def package() -> str | None:
  """Returns the package whose TensorFlow is installed; None without any.

  tensorflow and tensorflow-tpu install into the same folder. If both are
  installed, it holds the files of whichever was installed last.
  """
  tpu = _distribution('tensorflow-tpu')
  plain = _distribution('tensorflow')
  if tpu is None:
    return 'tensorflow' if plain else None
  if plain is None:
    return 'tensorflow-tpu'
  path = pathlib.Path(str(plain.locate_file(_LIBRARY)))
  size = path.stat().st_size if path.exists() else None
  return 'tensorflow-tpu' if size == _recorded_size(tpu) else 'tensorflow'


def are_mixed() -> bool:
  """Whether both packages are installed, one over the other."""
  return all(map(_distribution, ('tensorflow', 'tensorflow-tpu')))


def libtpu() -> pathlib.Path | None:
  """Returns the library that TensorFlow and JAX load; None without any."""
  given = os.environ.get('TPU_LIBRARY_PATH')
  path = pathlib.Path(given) if given else _installed_libtpu()
  return path if path.is_file() else None


def _installed_libtpu() -> pathlib.Path:
  """Returns where the library of the package libtpu is, or would be."""
  spec = importlib.util.find_spec('libtpu')
  folders = spec.submodule_search_locations if spec else None
  # Google's images of TensorFlow have it elsewhere.
  return pathlib.Path(folders[0] if folders else '/lib', 'libtpu.so')


def described_libtpu(library: pathlib.Path) -> str:
  """Returns the version of a libtpu if it is the installed package's."""
  version = _version('libtpu')
  if version and library == _installed_libtpu():
    return f'libtpu {version}'
  return str(library)


def missing_functions(library: pathlib.Path) -> list[str]:
  """Returns those of the functions TensorFlow calls that a libtpu lacks."""
  with (
    open(library, 'rb') as file,
    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
  ):
    return [
      name
      for name in _STREAM_EXECUTOR
      if content.find(b'\0' + name.encode() + b'\0') < 0
    ]


def has_runtime() -> bool:
  """Whether TensorFlow was built for TPUs; imports it."""
  from tensorflow.python.framework import kernels

  return bool(kernels.get_registered_kernels_for_op('TPUExecute').kernel)


def chips(root: str = '/') -> Chips | None:
  """Returns the TPU chips of this machine; None if there is none.

  Args:
    root: where /sys and /dev are.
  """
  devices = _device_files(root)
  generations = []
  for device in pathlib.Path(root).glob('sys/bus/pci/devices/*'):
    if _read(device / 'vendor') == _GOOGLE:
      generation = _DEVICE_IDS.get(_read(device / 'device'))
      if generation:
        generations.append(generation)
  if generations:
    return Chips(generations[0], len(generations), devices)
  given = os.environ.get('TPU_ACCELERATOR_TYPE', '')
  generation = _ACCELERATOR_TYPES.get(given.partition('-')[0].lower())
  return Chips(generation, 0, devices) if generation else None


def _device_files(root: str) -> list[str]:
  """Returns the files through which programs reach the chips."""
  files = [
    *pathlib.Path(root).glob('dev/accel[0-9]*'),
    *pathlib.Path(root).glob('dev/vfio/[0-9]*'),
  ]
  return sorted(f'/{path.relative_to(root)}' for path in files)


def lock_holder(path: str = LOCK) -> int | None:
  """Returns the process that holds libtpu's lock; None if it is free.

  libtpu locks the file while a process uses the chips; a second process gets
  none.
  """
  try:
    with open(path, 'rb') as file:
      # struct flock: type, whence, start, length and process.
      asked = struct.pack('hhqqi', fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
      answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
  except OSError:
    return None
  kind, *_, process = struct.unpack('hhqqi', answer)
  return None if kind == fcntl.F_UNLCK else process


def lock_owner(path: str = LOCK) -> str | None:
  """Returns the owner of a lock that this user cannot open, else None.

  libtpu fails on such a file, even if nobody holds the lock any more.
  """
  file = pathlib.Path(path)
  if not file.exists() or os.access(path, os.R_OK | os.W_OK):
    return None
  return file.owner()


def _distribution(name: str) -> importlib.metadata.Distribution | None:
  try:
    return importlib.metadata.distribution(name)
  except importlib.metadata.PackageNotFoundError:
    return None


def _version(name: str) -> str | None:
  distribution = _distribution(name)
  return distribution.version if distribution else None


def _recorded_size(distribution: importlib.metadata.Distribution) -> int | None:
  """Returns the size of TensorFlow's library that a package installed."""
  record = distribution.read_text('RECORD') or ''
  match = re.search(rf'^{re.escape(_LIBRARY)},[^,]*,(\d+)$', record, re.M)
  return int(match[1]) if match else None


def _read(path: pathlib.Path) -> str:
  return path.read_text().strip() if path.is_file() else ''
