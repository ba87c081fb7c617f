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
from typing import Any, NamedTuple

from synth_mtf.host import patches

patches.prepare_host()

import numpy.typing as npt
import tensorflow.compat.v1 as tf

from synth_mtf.host import gin_files
from synth_mtf.pjrt import lowering

BASELINE = 'SelfAttention'
NAMES = (
  *(BASELINE, 'vanilla', 'random', 'factorized_random', 'dense'),
  *('random_vanilla', 'dense_vanilla', 'mtf random', 'mtf random_plus_alpha'),
)


class Size(NamedTuple):
  """Sizes of a model and of its batch."""

  d_model: int
  d_ff: int
  num_heads: int
  d_kv: int
  vocab: int
  batch: int
  inputs: int
  targets: int

  @property
  def lengths(self) -> dict[str, int]:
    return {'inputs': self.inputs, 'targets': self.targets}


SIZES = {
  'base': Size(768, 3072, 12, 64, 32128, 32, 512, 114),
  'small': Size(512, 2048, 8, 64, 32128, 32, 512, 114),
  'tiny': Size(16, 32, 4, 4, 64, 8, 16, 8),
}
# TensorFlow's operations behind the initializers: the names used here, and the
# constants beside them.
_DISTRIBUTIONS = {
  'RandomStandardNormal': ('normal', ('mean', 'stddev')),
  'TruncatedNormal': ('truncated_normal', ('mean', 'stddev')),
  'RandomUniform': ('uniform', ('min', 'max')),
}


def describe(
  name: str,
  size: Size,
  layers: int,
  dropout: float,
  activations: str = 'bfloat16',
) -> list[str]:
  """Describes a training step of Adafactor on one device to gin.

  Args:
    name: of the layer.
    size: of the model and the batch.
    layers: blocks of each stack.
    dropout: its rate.
    activations: the type of activations.

  Returns:
    The bindings that do not follow from the name and the size.
  """
  variant = name.replace('mtf ', 'original_')
  files = [] if name == BASELINE else [f'variants/{variant}.gin']
  settings = [
    f'num_layers = {layers}',
    f'dropout_rate = {dropout}',
    'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = None',
  ]
  gin_files.parse(
    ['sizes/tiny.gin', *files],
    [
      *(f'{field} = {getattr(size, field)}' for field in Size._fields[:4]),
      f'Unitransformer.max_length = {size.inputs}',
      "utils.run.mesh_shape = 'batch:1'",
      'mesh_train_dataset_fn.pack = False',
      f"utils.get_variable_dtype.activation_dtype = '{activations}'",
      *settings,
    ],
  )
  return settings


def write(
  folder: pathlib.Path,
  name: str,
  size: Size,
  layers: int,
  settings: Sequence[str],
  platform: str = 'gpu',
) -> None:
  """Writes the step that gin describes, and its description."""
  step = lowering.step_of_run(
    size.batch, size.lengths, size.vocab, platform=platform
  )
  lowered = step.lower()
  shapes = {
    op.name: op.outputs[0].shape.as_list()
    for op in step.graph.get_operations()
    if op.type == 'Placeholder'
  }
  masters = {
    laid_out.laid_out_tensor.tensor_list[0].handle.op.name: variable.name
    for variable, laid_out in lowering.host_lowering(
      step.spec
    ).variables.items()
  }
  state = [masters.get(handle, handle) for handle in lowered.variables]
  initial = _initial_values(step.graph)
  description = {
    'name': name,
    'size': {**size._asdict(), 'layers': layers},
    'settings': settings,
    # Token ids, and the seed of dropout.
    'features': [
      {'name': key.removeprefix('feature_'), 'shape': shapes[key]}
      for key in lowered.inputs
    ],
    'state': [
      _variable(step.graph, master, initial[master]) for master in state
    ],
    # The program returns the loss and the new values of these.
    'assigned': [lowered.variables.index(each) for each in lowered.assigned],
  }
  path = folder / name.replace(' ', '_')
  path.with_suffix('.hlo.gz').write_bytes(gzip.compress(lowered.hlo, mtime=0))
  path.with_suffix('.json').write_text(json.dumps(description, indent=1))


def _initial_values(graph: tf.Graph) -> dict[str, npt.NDArray[Any]]:
  """Returns the initial values of the variables of checkpoints, by name."""
  # The session has no kernels for the program.
  options = tf.GraphOptions(place_pruned_graph=True)
  config = tf.ConfigProto(graph_options=options)
  with graph.as_default(), tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    return session.run({v.op.name: v for v in tf.global_variables()})


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
    settings = describe(name, size, args.layers, args.dropout)
    write(args.folder, name, size, args.layers, settings, args.platform)
    print(f'{args.folder / name}: lowered', flush=True)


if __name__ == '__main__':
  main()
