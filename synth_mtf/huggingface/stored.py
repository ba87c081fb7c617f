"""The weights in a folder, as transformers reads them."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.huggingface import extra
from synth_mtf.storage import filesystem

_WEIGHTS = 'model.safetensors'
_INDEX = f'{_WEIGHTS}.index.json'
_DTYPES = {
  'F64': np.float64,
  'F32': np.float32,
  'F16': np.float16,
  'BF16': tf.bfloat16.as_numpy_dtype,
}
Array = npt.NDArray[Any]


def read_json(path: str) -> Any:
  """Returns what a file holds; fails in many ways on a damaged one."""
  text = filesystem.text(path)
  if text is None:
    raise ValueError('it is not there')
  return json.loads(text)


class Weights:
  """The weights of a folder, whose values are read when they are needed.

  Attributes:
    shapes: of all weights, by name.
  """

  def __init__(self, folder: str) -> None:
    self.shapes: dict[str, tuple[int, ...]] = {}
    self._parts: dict[str, str] = {}  # the file of each weight
    for part, expected in _parts(folder):
      for name, shape in _header(part).items():
        if name in self._parts:
          raise UserError(f'{name} is in {part} and in {self._parts[name]}')
        self.shapes[name] = shape
        self._parts[name] = part
      for name in expected:
        if self._parts.get(name) != part:
          raise UserError(
            f'{part} lacks {name}, which {_INDEX} places in it: copy the '
            'folder again'
          )

  def read(self) -> dict[str, Array]:
    """Returns the values; NumPy's reader in safetensors lacks bfloat16."""
    values = {}
    for part in dict.fromkeys(self._parts.values()):
      with open(part, 'rb') as stream:
        tensors = extra.safetensors().deserialize(stream.read())
      for name, tensor in tensors:
        value = np.frombuffer(tensor['data'], _DTYPES[tensor['dtype']])
        values[name] = value.reshape(tensor['shape'])
    return values


def _parts(folder: str) -> Iterator[tuple[str, Sequence[str]]]:
  """Yields the files that transformers would read, and what is due in each."""
  whole = os.path.join(folder, _WEIGHTS)
  index = os.path.join(folder, _INDEX)
  if os.path.exists(whole):
    yield whole, ()
    return
  if not os.path.exists(index):
    raise UserError(
      f'{folder} has no {_WEIGHTS} and no {_INDEX}. Other files, such as '
      'pytorch_model.bin, run code when they are read: load them in '
      'transformers, and call save_pretrained'
    )
  names: dict[str, list[str]] = {}
  try:
    for name, part in read_json(index)['weight_map'].items():
      if os.path.basename(part) != part:
        raise ValueError(f'{name} is in {part!r:.80}, outside the folder')
      names.setdefault(part, []).append(name)
  except Exception as error:  # depends on what is there instead
    raise UserError(
      f'{index} is damaged ({error}); expected weight_map, with the file of '
      'each weight'
    ) from error
  for part in sorted(names):
    path = os.path.join(folder, part)
    if not os.path.exists(path):
      raise UserError(f'{path} is missing, which {_INDEX} names')
    yield path, names[part]


def _header(part: str) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of all weights in a file."""
  shapes = {}
  with filesystem.reading(part):  # refuses a pointer of Git LFS
    pass
  try:
    with extra.safetensors().safe_open(part, 'numpy') as stream:
      for name in stream.keys():  # noqa: SIM118  not a mapping
        weight = stream.get_slice(name)
        if weight.get_dtype() not in _DTYPES:
          raise ValueError(
            f'{name} is {weight.get_dtype()}, expected {", ".join(_DTYPES)}'
          )
        shapes[name] = tuple(weight.get_shape())
  except Exception as error:  # the library has its own
    raise UserError(f'{part} cannot be read: {error}') from error
  return shapes
