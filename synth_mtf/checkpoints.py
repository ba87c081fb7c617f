"""Checkpoints: reading and writing them, and starting from one of T5.

A run that starts from a checkpoint names it in `utils.run.init_checkpoint`. The
host then loads what has the same name and only logs the rest: since a scope is
the name of the layer's Python class, no attention weight of a plain T5 would
arrive. `warm_start` finds them and refuses to go on without.
"""

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Optional

import gin
import numpy as np
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf import checkpoint_faults
from synth_mtf.errors import UserError

# Classes whose variables are a self-attention layer's.
ATTENTION_CLASSES = ('SyntheticAttention', 'SelfAttention', 'Synthesizer')
_ATTENTION = re.compile(rf'^(.*/)({"|".join(ATTENTION_CLASSES)})/(.+)$')
_NOT_A_WEIGHT = checkpoint_faults.NOT_A_WEIGHT
_CHUNK_BYTES = 2**30
_SHOWN = 5


class Checkpoint:
  """A checkpoint on disk, whose values are read when they are asked for.

  Attributes:
    path: without `.index`, as in `<folder>/model.ckpt-1000`.
    shapes: of all variables, by name.
  """

  def __init__(self, path: str):
    """Opens a checkpoint.

    Args:
      path: its path, or a folder whose latest checkpoint is meant.

    Raises:
      UserError: there is none, or it is damaged.
    """
    self.path = _resolve(path)
    try:
      self._reader = tf.train.load_checkpoint(self.path)
      self.shapes = dict(self._reader.get_variable_to_shape_map())
      self._dtypes = self._reader.get_variable_to_dtype_map()
    except checkpoint_faults.UNREADABLE as error:
      raise self._damaged() from error

  def __getitem__(self, name: str) -> np.ndarray:
    try:
      return self._reader.get_tensor(name)
    except checkpoint_faults.UNREADABLE as error:
      raise self._damaged() from error

  def verify(self) -> None:
    """Reads all values, whose checksums TensorFlow verifies.

    Raises:
      UserError: one cannot be read.
    """
    for name in self.shapes:
      self[name]  # noqa: B018 (reading it is the point)

  @property
  def weights(self) -> list[str]:
    """Names of all but optimizer slots and the step."""
    return sorted(n for n in self.shapes if not _NOT_A_WEIGHT.search(n))

  @property
  def slots(self) -> list[str]:
    """Names of the optimizer's slots."""
    return sorted(n for n in self.shapes if '_slot_' in n)

  @property
  def step(self) -> int:
    """How many steps led to it."""
    if 'global_step' in self.shapes:
      return int(self['global_step'])
    return utils.get_step_from_checkpoint_path(self.path)

  @property
  def vocab_size(self) -> int:
    """Number of embeddings."""
    for name, shape in self.shapes.items():
      if name.endswith('/embedding') and 'position' not in name:
        return shape[-2]
    raise UserError(f'{self.path} has no embedding: it is not of a T5 model')

  def dtype(self, name: str) -> tf.DType:
    """The type of a variable."""
    return self._dtypes[name]

  def _damaged(self):
    folder = os.path.dirname(self.path)
    return UserError(
      f'the checkpoint {self.path} cannot be read: '
      + (
        checkpoint_faults.damage(folder)
        or f'it is damaged (truncated or altered), or {folder} is not readable.'
      )
    )


def _resolve(path):
  if tf.io.gfile.isdir(path):
    latest = tf.train.latest_checkpoint(path)
    if latest:
      return latest
    written = checkpoint_faults.names(path)
    raise UserError(
      f'{path} has no file `checkpoint` that names its latest checkpoint'
      + (f'; it holds {", ".join(written)}: name one' if written else '')
    )
  path = re.sub(r'\.index$', '', path)
  if tf.train.checkpoint_exists(path):
    return path
  folder = os.path.dirname(path)
  written = checkpoint_faults.names(folder)
  raise UserError(
    f'there is no checkpoint {path}; expected a folder, or a path without the '
    '.index such as <folder>/model.ckpt-1000.'
    + (f' {folder} holds {", ".join(written)}.' if written else '')
  )


def write(
  folder: str, step: int, values: Iterable[tuple[str, np.ndarray]]
) -> str:
  """Writes a checkpoint and points the folder's `checkpoint` file at it.

  At most about a gigabyte is held at a time, however large the model is.

  Args:
    folder: where to; made if need be.
    step: its number.
    values: names and values, in any order.

  Returns:
    The path of the checkpoint.

  Raises:
    UserError: the folder already holds a checkpoint, or cannot be written.
  """
  path = os.path.join(folder, f'model.ckpt-{step}')
  if tf.io.gfile.exists(folder) and checkpoint_faults.names(folder):
    raise UserError(
      f'{folder} already holds {checkpoint_faults.names(folder)[-1]}; give a '
      'folder without checkpoints'
    )
  try:
    tf.io.gfile.makedirs(folder)
    parts = [
      _save(f'{path}_part-{number:05d}', chunk)
      for number, chunk in enumerate(_chunks(values))
    ]
    with tf.Graph().as_default(), tf.Session() as session:
      session.run(
        tf.raw_ops.MergeV2Checkpoints(
          checkpoint_prefixes=parts, destination_prefix=path
        )
      )
    # Relative to the folder, which can then be moved.
    with tf.io.gfile.GFile(os.path.join(folder, 'checkpoint'), 'w') as pointer:
      pointer.write(f'model_checkpoint_path: "{os.path.basename(path)}"\n')
  except tf.errors.OpError as error:
    raise UserError(f'{folder} cannot be written: {error.message}') from error
  return path


def _chunks(values) -> Iterator[dict[str, np.ndarray]]:
  chunk, size = {}, 0
  for name, value in values:
    chunk[name] = value
    size += value.nbytes
    if size >= _CHUNK_BYTES:
      yield chunk
      chunk, size = {}, 0
  if chunk:
    yield chunk


def _save(path, chunk):
  with tf.Graph().as_default(), tf.Session() as session:
    inputs = {
      name: tf.placeholder(tf.as_dtype(value.dtype), value.shape)
      for name, value in chunk.items()
    }
    save = tf.raw_ops.SaveV2(
      prefix=path,
      tensor_names=list(inputs),
      shape_and_slices=[''] * len(inputs),
      tensors=list(inputs.values()),
    )
    session.run(save, {inputs[name]: chunk[name] for name in inputs})
  return path


def attention_scope(name: str) -> Optional[tuple[str, str, str]]:
  """Takes the name of a self-attention variable apart.

  Returns:
    The scope of its layer, with the trailing '/'; the layer's class; the rest
    (`q`, `random/R`). None for any other variable.
  """
  match = _ATTENTION.match(name)
  return match.groups() if match else None


def candidates(name: str) -> list[str]:
  """The names under which a checkpoint may hold a variable, best first."""
  parts = attention_scope(name)
  if not parts:
    return [name]
  scope, _, rest = parts
  others = [f'{scope}{c}/{rest}' for c in ATTENTION_CLASSES]
  return [name, *(other for other in others if other != name)]


@dataclasses.dataclass(frozen=True)
class Report:
  """What comes from a checkpoint into a model.

  Attributes:
    loaded: variables of the model, and where each comes from.
    new: variables of the model that start anew.
    left_over: variables of the checkpoint that the model does not have.
  """

  loaded: Mapping[str, str]
  new: Collection[str]
  left_over: Collection[str]

  def __str__(self) -> str:
    return '\n'.join(
      f'{title} ({len(names)}):' + ''.join(f'\n  {n}' for n in sorted(names))
      for title, names in (
        ('loaded', [_arrow(*pair) for pair in self.loaded.items()]),
        ('new', self.new),
        ('left over', self.left_over),
      )
    )


def _arrow(name, source):
  return name if name == source else f'{name} <- {source}'


def match(names: Iterable[str], checkpoint: Checkpoint) -> Report:
  """Finds a model's weights in a checkpoint, by name and class.

  Args:
    names: the model's variables.
    checkpoint: where to look.

  Returns:
    What was found.

  Raises:
    UserError: as `report`.
  """
  names = [n for n in names if not _NOT_A_WEIGHT.search(n)]
  found = {
    name: [c for c in candidates(name) if c in checkpoint.shapes]
    for name in names
  }
  return report(names, {n: c[0] for n, c in found.items() if c}, checkpoint)


def report(
  names: Collection[str], loaded: Mapping[str, str], checkpoint: Checkpoint
) -> Report:
  """Says what comes from a checkpoint, and insists on what has to.

  Args:
    names: the model's weights.
    loaded: those that come from the checkpoint, and their names there.
    checkpoint: where from.

  Returns:
    The report.

  Raises:
    UserError: weights that are no part of a synthesizing function are missing,
      or layers are left over.
  """
  new = [n for n in names if n not in loaded]
  left_over = set(checkpoint.weights) - set(loaded.values())
  missing = [n for n in new if not _may_be_new(n, checkpoint)]
  layers = {_layer(n) for n in names}
  unused = [n for n in left_over if _layer(n) not in layers]
  faults = [
    f'{len(variables)} {what} ({_some(variables)})'
    for what, variables in (
      ('variables of the model are not in it', missing),
      ('of its variables belong to layers that the model lacks', unused),
    )
    if variables
  ]
  if faults or not loaded:
    raise UserError(
      f'the checkpoint {checkpoint.path} does not fit this model: '
      + ('; '.join(faults) or 'it has none of its variables')
      + '. Use the size it was trained with (its operative_config.gin), or '
      '`synth-mtf checkpoint inspect` to see what it holds.'
    )
  return Report(loaded, new, left_over)


def _may_be_new(name, checkpoint):
  """Whether a variable may be missing, its layer being there."""
  parts = attention_scope(name)
  if not parts:
    return False
  scope, _, rest = parts
  # A layer of any class has its output projection.
  has_layer = any(
    f'{scope}{c}/o' in checkpoint.shapes for c in ATTENTION_CLASSES
  )
  return has_layer and (
    '/' in rest or rest in ('alpha', 'relative_attention_bias', 'q', 'k')
  )


def _layer(name):
  parts = attention_scope(name)
  return parts[0] if parts else checkpoint_faults.scope(name)


def _some(names):
  shown = ', '.join(sorted(names)[:_SHOWN])
  return shown + (', ...' if len(names) > _SHOWN else '')


@gin.configurable(module='synth_mtf')
def warm_start(name: str) -> str:
  """Maps a variable of the graph to the one that it starts from.

  For `utils.init_checkpoint_variable_mapping.mapping_fn`; see
  `gin/common/warm_start.gin`. The host calls it for each variable while the
  training graph is built.

  Args:
    name: of a variable of the graph.

  Returns:
    Its name in `utils.run.init_checkpoint`.

  Raises:
    UserError: before training, when weights that should come from the
      checkpoint do not, or have another shape or type there.
  """
  graph = tf.get_default_graph()
  if not graph.get_collection(_REPORT):
    graph.add_to_collection(_REPORT, _checked_report())
  (report,) = graph.get_collection(_REPORT)
  return report.loaded.get(name, name)


_REPORT = 'synth_mtf_warm_start'


def _checked_report():
  path = gin.get_bindings(utils.run).get('init_checkpoint')
  if not path:
    return Report({}, (), ())
  checkpoint = Checkpoint(path)
  variables = {v.op.name: v for v in tf.global_variables()}
  report = match(variables, checkpoint)
  slots = {
    f'{name}{slot[len(source) :]}': slot
    for name, source in report.loaded.items()
    for slot in checkpoint.slots
    if slot.startswith(source + '_slot_')
  }
  faults = []
  wanted = gin.get_bindings(utils.tpu_estimator_model_fn).get(
    'init_variable_filter', ''
  )
  if not any(re.search(wanted, source) for source in report.loaded.values()):
    raise UserError(
      f'tpu_estimator_model_fn.init_variable_filter = {wanted!r} matches no '
      f'variable of {checkpoint.path} that this model has: nothing would be '
      'loaded.'
    )
  for name, source in report.loaded.items():
    here, there = variables[name], checkpoint.shapes[source]
    if here.shape.as_list() != list(there):
      faults.append(
        f'{name} is {here.shape.as_list()} in the model, {there} in it'
      )
    elif here.dtype.base_dtype != checkpoint.dtype(source):
      faults.append(
        f'{name} is {here.dtype.base_dtype.name} in the model, '
        f'{checkpoint.dtype(source).name} in it'
      )
  if faults:
    raise UserError(
      f'the checkpoint {checkpoint.path} has other shapes or types: '
      + '; '.join(sorted(faults)[:_SHOWN])
      + (f'; and {len(faults) - _SHOWN} more' if len(faults) > _SHOWN else '')
      + '. `synth-mtf checkpoint convert` makes one that fits (--resize for '
      'another max_length); types follow from '
      'utils.get_variable_dtype.master_dtype.'
    )
  tf.logging.info('From %s:\n%s', checkpoint.path, report)
  return dataclasses.replace(report, loaded={**report.loaded, **slots})
