"""Steps that tests build, and batches for them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf

from benchmarks.accelerator.lower import SIZES, Size
from synth_mtf.host import gin_files
from synth_mtf.pjrt import lowering

_DECODE = 'Bitransformer.decode'


# For programs that are executed, and for those that are only built.
TINY = SIZES['tiny']
BASE = SIZES['base']


@dataclasses.dataclass(frozen=True)
class Setting:
  """A step of a model with one block in each stack."""

  variant: str | None  # None: T5 itself
  mode: str = tf.estimator.ModeKeys.TRAIN
  mesh: str = 'batch:4,model:2'
  packed: bool = False  # whether rows hold several sequences
  bindings: Sequence[str] = ()
  size: Size = TINY

  def parse(self) -> None:
    """Describes the step to gin."""
    variant = [f'variants/{self.variant}.gin'] if self.variant else []
    gin_files.parse(
      ['sizes/tiny.gin', *variant],
      [
        *(f'{name} = {getattr(self.size, name)}' for name in Size._fields[:4]),
        'num_layers = 1',
        f'Unitransformer.max_length = {self.size.inputs}',
        f'{_DECODE}.max_decode_length = {self.size.targets}',
        f'utils.run.mesh_shape = {self.mesh!r}',
        f'mesh_train_dataset_fn.pack = {self.packed}',
        *self.bindings,
      ],
    )

  def model_fn(self) -> lowering.ModelFn:
    """Returns T5's model function of the step; gin must describe it."""
    return lowering.model_fn_of_run(
      self.size.batch, self.size.lengths, self.size.vocab
    )

  def shapes(self) -> dict[str, list[int]]:
    """Returns the shapes of the features; gin must describe the step."""
    return lowering.feature_shapes(
      self.size.batch, self.size.lengths, self.mode, self.packed
    )

  def step(self) -> lowering.Step:
    """Builds the step for the cores of a TPU; gin must describe it."""
    return lowering.step_of_run(
      self.size.batch,
      self.size.lengths,
      self.size.vocab,
      self.mode,
      self.packed,
    )

  def features(self) -> dict[str, npt.NDArray[Any]]:
    """Returns token ids, and segments where rows are packed."""
    rng = np.random.RandomState(0)
    features: dict[str, npt.NDArray[Any]] = {}
    for name, (batch, length) in self.shapes().items():
      at = np.arange(length, dtype=np.int32)
      if name.endswith('_segmentation'):
        ids = features[name.partition('_')[0]]
        found = (1 + (at >= length // 2)) * (ids != 0)
      elif name.endswith('_position'):
        found = np.broadcast_to(at % (length // 2), [batch, length])
      else:
        found = rng.randint(2, self.size.vocab, [batch, length])
        found[:, -2:] = 0
      features[name] = found.astype(np.int32)
    return features


# The kinds of programs that a run computes, by what they do.
KINDS = {
  'training': Setting('random_vanilla'),
  'packed training': Setting('random_vanilla', packed=True),
  'perplexity': Setting('random_vanilla', tf.estimator.ModeKeys.EVAL),
  **{
    name: Setting(
      'random_vanilla', tf.estimator.ModeKeys.PREDICT, bindings=bindings
    )
    for name, bindings in {
      'greedy decoding': [f'{_DECODE}.beam_size = 1'],
      'beam search': [f'{_DECODE}.beam_size = 4', f'{_DECODE}.alpha = 0.6'],
      'sampling': [f'{_DECODE}.beam_size = 1', f'{_DECODE}.temperature = 1.0'],
    }.items()
  },
}
