"""Writes training steps as XLA programs that any machine with JAX can run.

    python -m benchmarks.accelerator.lower FOLDER --names SelfAttention random

writes, for each name, FOLDER/NAME.hlo.gz, the HloModule of a whole step (loss,
gradients, Adafactor) on one device, with bfloat16 activations and float32
weights; and FOLDER/NAME.json, which says what the program takes and returns and
from which distribution each variable is drawn. A name is one of
`benchmarks.speed`; spaces become underscores in the files.

This needs the environment of the project; `programs` needs only JAX.
"""

import argparse
import gzip
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from synth_mtf.host import patches

patches.prepare_host()

import gin
import mesh_tensorflow as mtf
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.dimensions import programs_for
from synth_mtf.pjrt.program import without_copies
from tests.tpu import replicas
from tests.tpu.program import BASE, TINY, Setting, Size, build

BASELINE = 'SelfAttention'
NAMES = (
  *(BASELINE, 'vanilla', 'random', 'factorized_random', 'dense'),
  *('random_vanilla', 'dense_vanilla', 'mtf random', 'mtf random_plus_alpha'),
)
SIZES = {
  'base': BASE,
  'small': Size(512, 2048, 8, 64, 32128, 32, 512, 114),
  'tiny': TINY,
}
# TensorFlow's operations behind the initializers: the names used here, and the
# constants beside them.
_DISTRIBUTIONS = {
  'RandomStandardNormal': ('normal', ('mean', 'stddev')),
  'TruncatedNormal': ('truncated_normal', ('mean', 'stddev')),
  'RandomUniform': ('uniform', ('min', 'max')),
}


@gin.configurable
def float32_loss(
  model: transformer.Unitransformer,
  context: transformer.Context,
  logits: mtf.Tensor,
  targets: mtf.Tensor,
  vocab: mtf.Dimension,
) -> mtf.Tensor:
  """Computes T5's loss with its mean over tokens in float32.

  T5 returns a mean in bfloat16, whose spacing is 0.03 from 4 to 8.
  """
  loss = mtf.layers.softmax_cross_entropy_with_logits(
    logits,
    mtf.one_hot(targets, vocab, dtype=logits.dtype),
    vocab,
    z_loss=model.z_loss,
  )
  is_token = mtf.cast(mtf.greater(targets, 0), tf.float32)
  total = mtf.reduce_sum(mtf.cast(loss, tf.float32) * is_token)
  return total / model.loss_denominator(targets, context.num_microbatches)


def setting(
  name: str,
  size: Size,
  layers: int,
  dropout: float,
  activations: str = 'bfloat16',
  loss: str | None = None,
) -> Setting:
  """Returns a training step of Adafactor on one device.

  Args:
    name: of the layer.
    size: of the model and the batch.
    layers: blocks of each stack.
    dropout: its rate.
    activations: the type of activations.
    loss: the loss function in gin; default: T5's.
  """
  variant = name.replace('mtf ', 'original_')
  return Setting(
    None if name == BASELINE else variant,
    mesh='batch:1,model:1',
    size=size,
    activations=activations,
    bindings=[
      f'num_layers = {layers}',
      f'dropout_rate = {dropout}',
      'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = '
      'None',
      f'Unitransformer.loss_fn = {loss}',
    ],
  )


def write(folder: pathlib.Path, name: str, step: Setting, layers: int) -> None:
  """Writes the program and its description."""
  built = build(step, cores=1, chips=(1, 1))
  initial, _ = replicas.initial_values(built)
  core = replicas.CoreProgram(built)
  _, captured, hlo = core.lower(initial, built.features)
  slices = [core.variables[handle][0] for handle in captured]
  masters = {
    laid_out.laid_out_tensor.tensor_list[0].handle.op.name: variable.name
    for variable, laid_out in built.lowering.variables.items()
  }
  features = [core.features[key] for key in sorted(core.features)]
  description = {
    'name': name,
    'size': {**step.size._asdict(), 'layers': layers},
    'settings': step.bindings,
    'features': [
      {'name': key, 'shape': built.features[key].shape} for key in features
    ],
    'state': [
      _variable(built.graph, masters.get(handle, handle), initial[handle])
      for handle in slices
    ],
    # The program returns the loss and the new values of these.
    'assigned': core.assigned(captured),
  }
  path = folder / name.replace(' ', '_')
  program = gzip.compress(without_copies(hlo), mtime=0)
  path.with_suffix('.hlo.gz').write_bytes(program)
  path.with_suffix('.json').write_text(json.dumps(description, indent=1))


def _variable(
  graph: tf.Graph, name: str, value: npt.NDArray[Any]
) -> dict[str, Any]:
  """Describes a variable and how to draw its initial value."""
  return {
    'name': name,
    'shape': value.shape,
    'dtype': value.dtype.name,
    'initial': _distribution(graph, f'{name}/Initializer/', value),
  }


def _distribution(
  graph: tf.Graph, scope: str, value: npt.NDArray[Any]
) -> dict[str, Any]:
  if (value == value.flat[0]).all():
    return {'kind': 'constant', 'value': value.flat[0].item()}
  (op,) = (
    op
    for op in graph.get_operations()
    if op.name.startswith(scope) and op.type in _DISTRIBUTIONS
  )
  kind, constants = _DISTRIBUTIONS[op.type]
  beside = op.name.rpartition('/')[0]
  return {'kind': kind} | {
    name: float(
      tf.get_static_value(graph.get_tensor_by_name(f'{beside}/{name}:0'))
    )
    for name in constants
  }


def main(argv: Sequence[str] | None = None) -> None:
  """Writes the programs on the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('folder', type=pathlib.Path)
  add('--names', nargs='+', default=NAMES)
  add('--size', choices=SIZES, default='base')
  add('--layers', type=int, default=3, help='blocks of each stack')
  add('--batch', type=int, default=32)
  add('--inputs', type=int, default=512, help='tokens of the encoder')
  add('--targets', type=int, default=114, help='tokens of the decoder')
  add('--vocabulary', type=int, help='entries (default: as T5 has)')
  add('--dropout', type=float, default=0.1)
  add('--float32_loss', action='store_true', help='see `float32_loss`')
  add('--platform', choices=['gpu', 'tpu'], default='gpu')
  args = parser.parse_args(argv)
  tf.logging.set_verbosity(tf.logging.ERROR)
  args.folder.mkdir(parents=True, exist_ok=True)
  size = SIZES[args.size]._replace(
    batch=args.batch, inputs=args.inputs, targets=args.targets
  )
  if args.vocabulary:
    size = size._replace(vocab=args.vocabulary)
  for name in args.names:
    loss = f'@{float32_loss.__name__}' if args.float32_loss else None
    step = setting(name, size, args.layers, args.dropout, loss=loss)
    with programs_for(args.platform):
      write(args.folder, name, step, args.layers)
    print(f'{args.folder / name}: lowered', flush=True)


if __name__ == '__main__':
  main()
