"""Installed packages as far as `host.tpu_runtime` reads them."""

import pathlib

SIZES = {'tensorflow': 30, 'tensorflow-tpu': 20}  # of the library of each
FUNCTIONS = (
  b'TpuExecutable_FreeMaybeOwningDeviceMemoryArray',
  b'ConfigureDistributedTpuOp_DoWork',
)
_LIBRARY = 'tensorflow/libtensorflow_cc.so.2'


def install(folder: pathlib.Path, name: str, version: str = '2.20.0') -> None:
  """Installs tensorflow or tensorflow-tpu, which nobody can import.

  As pip does, it overwrites the files of the other one.
  """
  describe(folder, name, version, f'{_LIBRARY},sha256=0123abc,{SIZES[name]}\n')
  library = folder / _LIBRARY
  library.parent.mkdir(exist_ok=True)
  library.write_bytes(bytes(SIZES[name]))
  (library.parent / '__init__.py').write_text('import os\nos.abort()\n')


def install_libtpu(
  folder: pathlib.Path, version: str, functions: tuple[bytes, ...]
) -> pathlib.Path:
  """Installs a libtpu with functions, and returns its library."""
  describe(folder, 'libtpu', version)
  library = folder / 'libtpu' / 'libtpu.so'
  library.parent.mkdir(exist_ok=True)
  (library.parent / '__init__.py').touch()
  library.write_bytes(b'\x7fELF\0%b\0' % b'\0'.join(functions))
  return library


def describe(
  folder: pathlib.Path, name: str, version: str, record: str = ''
) -> None:
  """Writes what `importlib.metadata` reads about a package."""
  info = folder / f'{name.replace("-", "_")}-{version}.dist-info'
  info.mkdir(parents=True, exist_ok=True)
  (info / 'METADATA').write_text(f'Name: {name}\nVersion: {version}\n')
  (info / 'RECORD').write_text(record)
