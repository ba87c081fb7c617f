"""JAX's support of GPUs and TPUs: the packages that bring it, what it lacks.

What is here is found without importing JAX.
"""

import importlib.metadata
import re
from typing import NamedTuple

from synth_mtf.host import tpu_runtime

# The first JAX whose libtpu is on the package index; earlier ones look here.
_LIBTPU_ON_INDEX = (0, 5, 1)
_LIBTPU_RELEASES = (
  'https://storage.googleapis.com/jax-releases/libtpu_releases.html'
)
# The extra of JAX's package that brings its support of a device.
_EXTRAS = {'gpu': 'cuda12', 'tpu': 'tpu'}
# JAX's names of the devices of a kind. Its own name for both kinds of GPUs,
# 'gpu', asks for both, and fails unless both are there.
_PLATFORMS = {'cpu': ('cpu',), 'gpu': ('cuda', 'rocm'), 'tpu': ('tpu',)}
_PLUGIN = re.compile(r'jax[-_](cuda|rocm)\d*[-_]plugin')


class Plugin(NamedTuple):
  """An installed package with JAX's support of GPUs.

  Attributes:
    platform: 'cuda' or 'rocm'.
    name: the package's name.
    version: the package's version.
  """

  platform: str
  name: str
  version: str


def install(kind: str) -> str:
  """Returns the command that installs JAX's support of TPUs or GPUs."""
  extra = _EXTRAS[kind]
  version = _version('jax')
  if version is None:
    return f'pip install "jax[{extra}]"'
  command = f'pip install "jax[{extra}]=={version}"'
  numbers = tuple(map(int, _numbers(version)))
  if kind == 'tpu' and numbers < _LIBTPU_ON_INDEX:
    return f'{command} -f {_LIBTPU_RELEASES}'
  return command


def platforms(kind: str) -> list[str]:
  """Returns JAX's names of the devices of a kind, the likeliest first."""
  installed = {plugin.platform for plugin in _gpu_plugins()}
  return sorted(_PLATFORMS[kind], key=lambda name: name not in installed)


def advice(kind: str) -> str:
  """Returns what to do if JAX finds no GPU or TPU: a sentence or two."""
  return _gpu_advice() if kind == 'gpu' else _tpu_advice()


def _gpu_advice() -> str:
  plugins = _gpu_plugins()
  if not plugins:
    return f"JAX's support of GPUs is not installed: {install('gpu')}"
  plugin = plugins[0]
  text = f'{plugin.name} {plugin.version}'
  if plugin.platform == 'rocm':
    return f'{text} is installed. Check that `rocm-smi` lists the GPU.'
  jaxlib = _version('jaxlib') or ''
  if _numbers(plugin.version) != _numbers(jaxlib):
    return f'JAX does not use {text} with jaxlib {jaxlib}: {install("gpu")}'
  return (
    f'{text} is installed. Check that `nvidia-smi` lists the GPU and that '
    'CUDA_VISIBLE_DEVICES does not hide it; a container also needs `docker run '
    '--gpus all`.'
  )


def _tpu_advice() -> str:
  library = tpu_runtime.libtpu()
  if library is None:
    return f"JAX's support of TPUs is not installed: {install('tpu')}"
  text = f'{tpu_runtime.described_libtpu(library)} is installed'
  owner = tpu_runtime.lock_owner()
  if owner:
    return (
      f'{text}, but {tpu_runtime.LOCK} belongs to {owner}. If {owner} does not '
      f'use the TPU: sudo rm {tpu_runtime.LOCK}'
    )
  if tpu_runtime.chips() is None:
    return f'{text}, but this machine has no TPU chip.'
  return f'{text}. `synth-mtf doctor` lists the chips and what prevents use.'


def _gpu_plugins() -> list[Plugin]:
  """Returns the installed packages with JAX's support of GPUs."""
  plugins = []
  for distribution in importlib.metadata.distributions():
    name = distribution.metadata['Name'] or ''
    match = _PLUGIN.fullmatch(name)
    if match:
      plugins.append(Plugin(match[1], name, distribution.version))
  return sorted(plugins)


def _version(name: str) -> str | None:
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return None


def _numbers(version: str) -> list[str]:
  """Returns the numbers of a version, without what may follow them."""
  match = re.match(r'\d+(\.\d+)*', version)
  return match[0].split('.') if match else []
