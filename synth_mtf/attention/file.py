"""Reads and writes the `.npz` of `synth-mtf attention`.

docs/figures.md lists its arrays, which match the fields of `Attention`. Queries
are the encoder's tokens in `encoder`, and the tokens that the decoder reads in
`decoder` and `cross`.
"""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf

from synth_mtf import atomic
from synth_mtf.errors import UserError

Array = npt.NDArray[Any]

# Maps each stack to the sides that provide its queries and its memory.
SIDES = {
  'encoder': ('encoder', 'encoder'),
  'decoder': ('decoder', 'decoder'),
  'cross': ('decoder', 'encoder'),
}
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
    stacks: by stack name, a key of `SIDES`.
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
    queries, memory = SIDES[stack]
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
  content = io.BytesIO()
  np.savez_compressed(content, **arrays)
  try:
    with atomic.writing(path, 'wb') as stream:
      stream.write(content.getvalue())
  except (OSError, tf.errors.OpError) as error:
    raise UserError(f'{path} cannot be written: {error}') from error


def read(path: str) -> Attention:
  """Reads a file that `write` wrote; raises a UserError for any other."""
  try:
    with tf.io.gfile.GFile(path, 'rb') as stream:
      content = io.BytesIO(stream.read())
    with np.load(content) as archive:
      arrays = dict(archive)
    if arrays['format'] != _FORMAT:
      raise ValueError(f'format {arrays["format"]}, expected {_FORMAT}')
    sides = [x for x in ('encoder', 'decoder') if f'{x}_text' in arrays]
    stacks = [name for name in SIDES if f'{name}_weights' in arrays]
    return Attention(
      run=str(arrays['run']),
      label=str(arrays['label']),
      step=int(arrays['step']),
      stacks={name: _read_stack(arrays, name) for name in stacks},
      tokens={side: arrays[f'{side}_tokens'] for side in sides},
      texts={side: arrays[f'{side}_text'] for side in sides},
    )
  except Exception as error:  # NumPy raises anything for another file
    raise UserError(
      f'{path} is not a file of `synth-mtf attention` of this version '
      f'({type(error).__name__}: {error}); `synth-mtf attention RUN --out '
      f'{path}` writes one.'
    ) from error


def _read_stack(arrays: Mapping[str, Array], name: str) -> Stack:
  return Stack(
    weights=arrays[f'{name}_weights'],
    logits=arrays[f'{name}_logits'],
    functions=tuple(map(str, arrays.get(f'{name}_functions', ()))),
    alpha=arrays.get(f'{name}_alpha'),
  )
