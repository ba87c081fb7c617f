"""Reads and writes the `.npz` of `synth-mtf attention`.

docs/figures.md lists its arrays, which match the fields of `Attention`. Queries
are the encoder's tokens in `encoder`, and the tokens that the decoder reads in
`decoder` and `cross`.
"""

import dataclasses
import io
import math
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem

Array = npt.NDArray[Any]

# Maps each stack to the sides that provide its queries and its memory.
SIDES_OF_STACK = {
  'encoder': ('encoder', 'encoder'),
  'decoder': ('decoder', 'decoder'),
  'cross': ('decoder', 'encoder'),
}
SIDES = ('encoder', 'decoder')
# The kind of type, and the number of axes, of each array.
_KINDS = {
  'format': ('i', 0),
  'run': ('U', 0),
  'label': ('U', 0),
  'step': ('i', 0),
  **{f'{side}_tokens': ('U', 2) for side in SIDES},
  **{f'{side}_text': ('U', 1) for side in SIDES},
  **{f'{stack}_weights': ('f', 5) for stack in SIDES_OF_STACK},
  **{f'{stack}_logits': ('f', 5) for stack in SIDES_OF_STACK},
  **{f'{stack}_functions': ('U', 1) for stack in SIDES_OF_STACK},
  **{f'{stack}_alpha': ('f', 3) for stack in SIDES_OF_STACK},
}
# Arrays are read into memory. Weights compress a few times; a small file that
# unpacks to gigabytes is not one of ours.
_MOST_BYTES = 4 << 30
_MOST_COMPRESSED = 100
_ALWAYS_READ_BYTES = 64 << 20
_FORMAT = 1
MARK = 'format.npy'  # the first array identifies our files


@dataclasses.dataclass(frozen=True)
class Stack:
  """The attention of all layers in a stack.

  Attributes:
    weights: [layers, examples, heads, queries, memory].
    logits: B, with the same axes; 1 example if all share them.
    functions: letters of the functions; empty if layers differ.
    alpha: [layers, heads, functions]; None if no weights are learned, or if
      layers differ.
  """

  weights: Array
  logits: Array
  functions: Sequence[str] = ()
  alpha: Array | None = None

  @property
  def layers(self) -> int:
    return self.weights.shape[0]

  @property
  def heads(self) -> int:
    return self.weights.shape[2]


@dataclasses.dataclass(frozen=True)
class Attention:
  """A model's attention on some examples.

  Attributes:
    run: the model's folder.
    label: the model's name in tables.
    step: step of the checkpoint.
    stacks: by stack name, a key of `SIDES_OF_STACK`.
    tokens: by side, [examples, length]; '' is padding.
    texts: by side, [examples].
  """

  run: str
  label: str
  step: int
  stacks: Mapping[str, Stack]
  tokens: Mapping[str, Array]
  texts: Mapping[str, Array]

  @property
  def examples(self) -> int:
    return len(next(iter(self.tokens.values())))

  def tokens_of(self, side: str, example: int) -> list[str]:
    """The tokens of an example, without padding."""
    return [token for token in self.tokens[side][example] if token]

  def axes(self, stack: str, example: int) -> tuple[list[str], list[str]]:
    """The tokens of an example's queries and of its memory."""
    queries, memory = SIDES_OF_STACK[stack]
    return self.tokens_of(queries, example), self.tokens_of(memory, example)

  def weights(self, stack: str, example: int, values: str = 'weights') -> Array:
    """An example's weights, unpadded: [layers, heads, queries, memory].

    With `values='logits'`, its logits.
    """
    array = getattr(self.stacks[stack], values)
    queries, memory = self.axes(stack, example)
    row = 0 if array.shape[1] == 1 else example
    return array[:, row, :, : len(queries), : len(memory)]


def write(path: str, attention: Attention) -> None:
  """Writes a file atomically; `path` may be in a bucket."""
  arrays: dict[str, Any] = {
    'format': _FORMAT,
    'run': attention.run,
    'label': attention.label,
    'step': attention.step,
  }
  for name, stack in attention.stacks.items():
    arrays[f'{name}_weights'] = np.asarray(stack.weights, np.float32)
    arrays[f'{name}_logits'] = np.asarray(stack.logits, np.float32)
    if len(stack.functions):
      arrays[f'{name}_functions'] = np.asarray(stack.functions, np.str_)
    if stack.alpha is not None:
      arrays[f'{name}_alpha'] = np.asarray(stack.alpha, np.float32)
  for side, tokens in attention.tokens.items():
    arrays[f'{side}_tokens'] = np.asarray(tokens, np.str_)
    arrays[f'{side}_text'] = np.asarray(attention.texts[side], np.str_)
  total = sum(np.asarray(array).nbytes for array in arrays.values())
  if total > _MOST_BYTES:
    raise UserError(
      f'the attention on {attention.examples} examples has {total:,} bytes, '
      f'and a file can have {_MOST_BYTES:,}: give fewer or shorter texts'
    )
  content = io.BytesIO()
  np.savez_compressed(content, **arrays)
  if total > _most_bytes(content.tell()):
    content = io.BytesIO()  # uniform weights compress more than is read
    np.savez(content, **arrays)
  try:
    with atomic.writing(path, 'wb') as stream:
      stream.write(content.getvalue())
  except OSError as error:
    raise UserError(f'{path} cannot be written: {error}') from error


def read(path: str) -> Attention:
  """Reads a file that `write` wrote; raises a UserError for any other."""
  if not filesystem.exists(path):
    raise UserError(
      f'{path} does not exist; `synth-mtf attention RUN --out {path}` writes '
      'one'
    )
  data = filesystem.read(path, _MOST_BYTES)
  try:
    content = io.BytesIO(data)
    with zipfile.ZipFile(content) as archive:
      headers = _headers(archive)
    _check_kinds(headers)
    _check_size(headers, len(data))
    content.seek(0)
    with np.load(content) as arrays:  # reads each array when it is asked for
      if arrays['format'] != _FORMAT:
        raise ValueError(f'format {arrays["format"]}, expected {_FORMAT}')
      _check_shapes(headers)
      for name in headers:
        if _KINDS[name][0] == 'U':  # any 32 bits may be a letter there
          ''.join(arrays[name].ravel().tolist()).encode()
      return _read(arrays, headers)
  except Exception as error:  # NumPy raises anything for another file
    raise UserError(
      f'{path} is not a file of `synth-mtf attention` of this version '
      f'({type(error).__name__}: {error}); `synth-mtf attention RUN --out '
      f'{path}` writes one.'
    ) from error


class _Header(NamedTuple):
  """What an array is, without its values."""

  shape: tuple[int, ...]
  dtype: np.dtype[Any]


def _headers(archive: zipfile.ZipFile) -> dict[str, _Header]:
  """Returns the header of each array that has a name of ours."""
  formats: Any = np.lib.format  # has no types
  members = {*archive.namelist()}
  headers = {}
  for name in _KINDS:
    if f'{name}.npy' not in members:
      continue
    with archive.open(f'{name}.npy') as stream:
      version = formats.read_magic(stream)
      read = {
        (1, 0): formats.read_array_header_1_0,
        (2, 0): formats.read_array_header_2_0,
      }[version]
      shape, _, dtype = read(stream)
    headers[name] = _Header(shape, dtype)
  return headers


def _check_kinds(headers: Mapping[str, _Header]) -> None:
  """Raises a ValueError if types or axes are not those of `write`."""
  for name, (shape, dtype) in headers.items():
    kind, axes = _KINDS[name]
    if dtype.kind != kind or len(shape) != axes:
      raise ValueError(
        f'{name} is {dtype} with {len(shape)} axes, expected kind {kind!r} '
        f'with {axes}'
      )


def _check_size(headers: Mapping[str, _Header], file_bytes: int) -> None:
  """Raises a ValueError if the arrays take more memory than ours could."""
  total = 0
  for shape, dtype in headers.values():
    total += math.prod(shape) * dtype.itemsize
  most = _most_bytes(file_bytes)
  if total > most:
    raise ValueError(
      f'its {file_bytes:,} bytes unpack to {total:,}, expected at most {most:,}'
    )


def _most_bytes(file_bytes: int) -> int:
  """Returns how many bytes the arrays in a file of this size may have."""
  return min(
    _MOST_BYTES, max(_ALWAYS_READ_BYTES, _MOST_COMPRESSED * file_bytes)
  )


def _check_shapes(headers: Mapping[str, _Header]) -> None:
  """Raises a ValueError if the shapes do not fit each other."""
  missing = {'format', 'run', 'label', 'step'} - headers.keys()
  if missing:
    raise KeyError(*sorted(missing))
  stacks = [stack for stack in SIDES_OF_STACK if f'{stack}_weights' in headers]
  if not stacks:
    raise ValueError('it has no weights')
  counts = {
    headers[f'{side}_text'].shape[0]
    for side in SIDES
    if f'{side}_text' in headers
  }
  if len(counts) != 1:
    raise ValueError(f'its sides have {sorted(counts)} examples')
  for stack in stacks:
    _check_stack(headers, stack, *counts)


def _check_stack(
  headers: Mapping[str, _Header], name: str, examples: int
) -> None:
  """Raises a ValueError if the shapes of a stack do not fit each other."""
  lengths = []
  for side in SIDES_OF_STACK[name]:
    rows, length = headers[f'{side}_tokens'].shape
    if rows != examples or f'{side}_text' not in headers:
      raise ValueError(
        f'{side}_tokens has {rows} examples, expected {examples}'
      )
    lengths.append(length)
  layers, _, heads, *_ = headers[f'{name}_weights'].shape
  expected = (layers, examples, heads, *lengths)
  for array in (f'{name}_weights', f'{name}_logits'):
    shape = headers[array].shape
    # If all examples share them, they are there once.
    if shape not in (expected, (layers, 1, heads, *lengths)):
      raise ValueError(f'{array} is {shape}, expected {expected}')
  if f'{name}_alpha' in headers:
    functions = headers[f'{name}_functions'].shape
    alpha = headers[f'{name}_alpha'].shape
    if alpha != (layers, heads, *functions):
      raise ValueError(
        f'{name}_alpha is {alpha}, expected {(layers, heads, *functions)}'
      )


def _read(
  arrays: Mapping[str, Array], headers: Mapping[str, _Header]
) -> Attention:
  sides = [side for side in SIDES if f'{side}_text' in headers]
  stacks = [name for name in SIDES_OF_STACK if f'{name}_weights' in headers]
  return Attention(
    run=str(arrays['run']),
    label=str(arrays['label']),
    step=int(arrays['step']),
    stacks={name: _read_stack(arrays, headers, name) for name in stacks},
    tokens={side: arrays[f'{side}_tokens'] for side in sides},
    texts={side: arrays[f'{side}_text'] for side in sides},
  )


def _read_stack(
  arrays: Mapping[str, Array], headers: Mapping[str, _Header], name: str
) -> Stack:
  functions: Any = ()
  if f'{name}_functions' in headers:
    functions = arrays[f'{name}_functions']
  has_alpha = f'{name}_alpha' in headers
  return Stack(
    weights=arrays[f'{name}_weights'],
    logits=arrays[f'{name}_logits'],
    functions=tuple(map(str, functions)),
    alpha=arrays[f'{name}_alpha'] if has_alpha else None,
  )
