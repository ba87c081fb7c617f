"""Whole models from gin files, in a tiny size: their checkpoints and logits."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.checkpoints import files as checkpoint_files
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.paths import gin_path
from tests import harness

VOCAB = 128
TINY = (
  'd_model = 24',
  'd_ff = 20',
  'num_layers = 2',
  'num_heads = 3',
  'd_kv = 8',
  'Unitransformer.max_length = 14',
)
LENGTHS = {'inputs': 13, 'targets': 9}
VARIANTS = sorted(p.stem for p in pathlib.Path(gin_path()).glob('variants/*'))


def files(variant: str | None = None) -> list[str]:
  """The gin files of a tiny model; None is T5 itself, `a+b` two variants."""
  variants = variant.split('+') if variant else []
  return ['sizes/tiny.gin', *(f'variants/{name}.gin' for name in variants)]


def with_public_names(
  checkpoint: Checkpoint, folder: 'os.PathLike[str]', are_named: bool
) -> str:
  """Writes a T5 with the names of the public T5 1.0.

  Args:
    checkpoint: that of a T5.
    folder: where to write.
    are_named: whether layers are named after their kind, not numbered.
  """
  kinds = ('SelfAttention', 'EncDecAttention', 'DenseReluDense')
  places = {}
  for name in checkpoint.variables:
    for kind in kinds:
      place, found, _ = name.partition(f'/{kind}/')
      if found:
        places[place] = f'{os.path.dirname(place)}/{kind.lower()}'
  values = {}
  for name in checkpoint.variables:
    place = next((p for p in places if name.startswith(f'{p}/')), '')
    norm = 'layer_norm' if place else 'final_layer_norm'
    public = name.replace('rms_norm', norm)
    if place and are_named:
      public = places[place] + public.removeprefix(place)
    values[public] = checkpoint[name]
  return checkpoint_files.write(str(folder), checkpoint.step, values)


def write(
  folder: 'os.PathLike[str]',
  variant: str | None = None,
  bindings: Sequence[str] = (),
  step: int = 7,
  change: Callable[[str, npt.NDArray[Any]], Any] = lambda name, value: value,
) -> str:
  """Writes a checkpoint of random weights with TensorFlow's own Saver."""
  gin_files.parse(files(variant), [*TINY, *bindings])
  model = host_model.build(VOCAB)
  rng = np.random.RandomState(5)
  with model.graph.as_default(), tf.Session() as session:
    values = {tf.train.get_or_create_global_step(): np.asarray(step)}
    for name, variable in sorted(model.variables.items()):
      value = rng.standard_normal(variable.shape.as_list())
      value *= 1.0 if name.endswith(('alpha', 'bias')) else 0.3
      if name.endswith('scale'):
        value += 1.0
      values[variable] = np.asarray(change(name, value))
    session.run(
      [variable.initializer for variable in values],
      {v.initializer.inputs[1]: value for v, value in values.items()},
    )
    return tf.train.Saver(tf.global_variables()).save(
      session, os.path.join(str(folder), 'model.ckpt'), step
    )


def call(
  made: transformer.Bitransformer,
  inputs: mtf.Tensor,
  targets: mtf.Tensor,
  mode: str = 'train',
  dtype: tf.DType = tf.float32,
) -> tuple[mtf.Tensor, mtf.Tensor]:
  """The logits and the loss of rows of one sequence each; 0 is padding."""
  return made.call_simple(
    inputs,
    targets,
    compute_loss=True,
    mode=mode,
    variable_dtype=mtf.VariableDType(dtype, dtype, dtype),
    encoder_sequence_id=mtf.cast(mtf.not_equal(inputs, 0), tf.int32),
    decoder_sequence_id=mtf.cast(mtf.not_equal(targets, 0), tf.int32),
  )


def logits(
  path: str,
  variant: str | None = None,
  bindings: Sequence[str] = (),
  lengths: Mapping[str, int] = LENGTHS,
  activations: tf.DType = tf.float32,
) -> npt.NDArray[Any]:
  """The logits of a model whose weights are all in a checkpoint."""
  checkpoint = Checkpoint(path)
  gin_files.parse(files(variant), [*TINY, *bindings])

  def build(mesh: mtf.Mesh) -> mtf.Tensor:
    model = host_model.make_transformer(VOCAB)
    rng = np.random.RandomState(3)
    ids, tokens = {}, {}
    for name, length in lengths.items():
      values = rng.randint(2, VOCAB, [3, length])
      values[1, length // 2 :] = 0
      ids[name] = harness.constant(mesh, values, 'batch length')
      tokens[name] = mtf.cast(mtf.not_equal(ids[name], 0), tf.int32)
    segments = {
      'encoder_sequence_id': tokens['inputs'],
      'decoder_sequence_id': tokens['targets'],
    }
    if isinstance(model, transformer.Unitransformer):  # a language model
      ids['targets'] = ids['inputs']
      segments = {'sequence_id': tokens['inputs']}
    return model.call_simple(
      **ids,
      **segments,
      compute_loss=False,
      mode='eval',
      variable_dtype=mtf.VariableDType(tf.float32, tf.float32, activations),
    )[0]

  return harness.evaluate(build, weights=lambda name, shape: checkpoint[name])
