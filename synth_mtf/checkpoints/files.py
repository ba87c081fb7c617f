"""Reads and writes checkpoints."""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from synth_mtf.checkpoints import index_file, names, values
from synth_mtf.checkpoints.folder import Folder, exists, step_of
from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem

# What is in the folders of T5X: a checkpoint, or an array of one.
_T5X = re.compile(r'checkpoint_\d+$|(target|state)\.')


class VariableSpec(NamedTuple):
  """Type and shape of a variable, formatted as `float32[24, 24]`."""

  dtype: str
  shape: tuple[int, ...]

  def __str__(self) -> str:
    return f'{self.dtype}{list(self.shape)}'


class Checkpoint:
  """A checkpoint on disk, whose values are read lazily.

  Attributes:
    path: without `.index`, as in `<folder>/model.ckpt-1000`.
    variables: type and shape of all variables, by name.
    weights: names of all variables except optimizer slots and the step.
    slots: names of the optimizer slots.
  """

  def __init__(self, path: str) -> None:
    """Opens a checkpoint, or the latest one in a folder."""
    self.path = _existing(path)
    with self._explained():
      self._reader = values.Reader(self.path)
    self.variables = {
      name: VariableSpec(index_file.dtype_name(entry), index_file.shape(entry))
      for name, entry in self._reader.entries.items()
    }
    self.weights = [name for name in self.variables if names.is_weight(name)]
    self.slots = [name for name in self.variables if names.slot_owner(name)]

  def __contains__(self, name: str) -> bool:
    return name in self.variables

  def __getitem__(self, name: str) -> npt.NDArray[Any]:
    with self._explained():
      return self._reader.read(name)

  def verify(self) -> None:
    """Reads all values, to verify their checksums."""
    for name in self.variables:
      _ = self[name]

  @property
  def parameters(self) -> int:
    shapes = [self.variables[name].shape for name in self.weights]
    return sum(int(np.prod(shape)) for shape in shapes)

  @property
  def step(self) -> int:
    """Raises a UserError if `global_step` is not a whole number."""
    if 'global_step' in self:
      step = np.asarray(self['global_step'])
      if step.shape or step.dtype.kind not in 'iu' or step < 0:
        raise UserError(
          f'global_step of {self.path} is {step!r:.60}; expected a whole number'
        )
      return int(step)
    return step_of(self.path) if 'model.ckpt-' in self.path else 0

  @property
  def embeddings(self) -> dict[str, int]:
    """The number of rows in each vocabulary embedding, by variable name.

    Raises a UserError if one has no rows.
    """
    rows = {}
    for name, variable in self.variables.items():
      if name.endswith('/embedding') and 'position' not in name:
        if len(variable.shape) < 2:
          raise UserError(
            f'{name} of {self.path} is {variable}; expected two dimensions, '
            'vocabulary and d_model'
          )
        rows[name] = variable.shape[-2]
    return rows

  @property
  def vocab_size(self) -> int:
    if not self.embeddings:
      raise UserError(
        f'{self.path} has no embedding: it is not the checkpoint of a T5 model'
      )
    return next(iter(self.embeddings.values()))

  @contextlib.contextmanager
  def _explained(self) -> Iterator[None]:
    """Says what is wrong with the files that are read."""
    try:
      yield
    except (index_file.Broken, filesystem.Unreadable) as error:
      folder = Folder(os.path.dirname(self.path))
      if not exists(self.path):
        raise UserError(
          f'{self.path} was removed while it was read, as a run does with its '
          f'old checkpoints.{folder.summary()} Try again, or give another.'
        ) from error
      if isinstance(error, filesystem.Unreadable):
        raise
      reason = folder.damage() or (
        f'it is damaged (truncated or altered), or {folder.path} is not '
        'readable.'
      )
      raise UserError(
        f'the checkpoint {self.path} cannot be read: {error}; {reason}'
      ) from error


def _existing(path: str) -> str:
  """Returns the path of a checkpoint, or of the latest one in a folder."""
  checkpoint = path.removesuffix('.index')
  if filesystem.is_folder(path):
    checkpoint = Folder(path).latest() or path
  else:
    folder, name = os.path.split(checkpoint)
    filesystem.check_entries(folder or '.', f'{name}.')
  if not exists(checkpoint):
    raise UserError(
      f'there is no checkpoint {checkpoint}; expected a folder that holds one,'
      ' or a path without .index such as <folder>/model.ckpt-1000.'
      + instead(checkpoint)
    )
  return checkpoint


def instead(path: str) -> str:
  """Returns a sentence about what is there in the place of a checkpoint.

  Args:
    path: of a checkpoint, or of a folder without any; neither need exist.
  """
  folder = path if filesystem.is_folder(path) else os.path.dirname(path) or '.'
  if not filesystem.is_folder(folder):
    return ''
  of_t5x = [name for name in filesystem.names(folder) if _T5X.match(name)]
  if of_t5x:
    return (
      f' {folder} holds {of_t5x[0]}, which T5X has written for JAX. Convert it '
      "to a model of Hugging Face's transformers, and read that with "
      '`synth-mtf checkpoint import --from=hf`.'
    )
  summary = Folder(folder).summary()
  return summary or f' {filesystem.contents(folder)}.'


def write(
  folder: str, step: int, values: Mapping[str, npt.NDArray[Any]]
) -> str:
  """Writes a checkpoint to a folder without any, and returns its path."""
  target = Folder(folder)
  if target.checkpoints:
    raise UserError(
      f'{folder} already holds {target.checkpoints[-1]}; choose a folder '
      'without checkpoints'
    )
  import tensorflow as tf

  path = os.path.join(folder, f'model.ckpt-{step}')
  try:
    filesystem.make_folder(folder)
    if filesystem.is_bucket(folder):
      _save(path, values)
    else:
      _save_whole(pathlib.Path(path), values)
    target.point_at(os.path.basename(path))
  except (tf.errors.OpError, OSError) as error:
    from synth_mtf.host import explanations

    raise UserError(
      f'{folder} cannot be written: {explanations.cause(error)}'
    ) from error
  return path


def _save_whole(
  path: pathlib.Path, values: Mapping[str, npt.NDArray[Any]]
) -> None:
  """Saves elsewhere first, so that a killed process leaves no half."""
  with atomic.folder_beside(path) as partial:
    _save(str(partial / path.name), values)
    index = f'{path.name}.index'
    files = sorted(partial.iterdir(), key=lambda file: file.name == index)
    for file in files:  # without its index, a checkpoint does not exist
      os.replace(file, path.with_name(file.name))


def _save(path: str, values: Mapping[str, npt.NDArray[Any]]) -> None:
  import tensorflow.compat.v1 as tf

  with tf.Graph().as_default(), tf.Session() as session:
    tensors = [tf.placeholder(value.dtype) for value in values.values()]
    save = tf.raw_ops.SaveV2(
      prefix=path,
      tensor_names=list(values),
      shape_and_slices=[''] * len(values),
      tensors=tensors,
    )
    session.run(save, dict(zip(tensors, values.values(), strict=True)))
