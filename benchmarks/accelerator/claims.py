r"""Writes parts of benchmarks/claims.py for `turns`, which needs only JAX.

    python -m benchmarks.accelerator.claims FOLDER h i j --data_dir data \
      --vocabulary vocabulary.model

writes FOLDER/PART/MODEL.hlo.gz and .json, the training step of each model in
float32; FOLDER/PART/TASK.npz, the token ids of its examples; and
FOLDER/plan.json, what is to be trained. Models, tasks, lengths and steps are
those of the part; the learning rate is T5's in its first 10,000 steps.

This needs the environment of the project.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import seqio
import tensorflow.compat.v1 as tf
from mesh_tensorflow import optimize
from mesh_tensorflow.transformer import utils

from benchmarks import claims_parts
from benchmarks.accelerator import lower
from benchmarks.claims_parts import PARTS, Model, Part
from synth_mtf.host import gin_files
from tests.tpu.program import Setting, Size

Ids = npt.NDArray[np.int32]
_ROWS = 1024  # of the validation split, at most


@dataclasses.dataclass(frozen=True)
class ClaimSetting(Setting):
  """A training step of a model of a part."""

  part: Part = PARTS['a']
  model: Model = claims_parts.SYSTEMS[0]

  @property
  def feature_names(self) -> Sequence[str]:
    return {
      'bitransformer': ['inputs', 'targets'],
      'lm': ['targets'],
      'aligned': ['inputs', 'targets', 'targets_segmentation'],
    }[self.part.model_type]

  def parse(self) -> None:
    gin_files.parse(
      [
        'sizes/tiny.gin',
        *(f'variants/{variant}.gin' for variant in self.model.variants),
      ],
      [
        'Unitransformer.max_length = 128',
        'mesh_train_dataset_fn.pack = False',
        f"utils.get_variable_dtype.activation_dtype = '{self.activations}'",
        *self.part.params,
        *self.model.params,
        *self.bindings,
      ],
    )

  def model_fn(self) -> Callable[..., tf.estimator.EstimatorSpec]:
    vocab = self.size.vocab
    mesh_shape = mtf.convert_to_shape(self.mesh)
    layout = mtf.convert_to_layout_rules(self.layout)
    kind = self.part.model_type
    return utils.tpu_estimator_model_fn(
      kind,
      utils.build_model(kind, vocab, vocab, layout, mesh_shape),
      types.SimpleNamespace(vocab_size=vocab),
      tempfile.gettempdir(),
      use_tpu='here in name only',
      mesh_shape=mesh_shape,
      layout_rules=layout,
      batch_size=self.size.batch,
      sequence_length=self.lengths,
      autostack=True,
      keep_checkpoint_max=1,
      save_checkpoints_steps=10**9,
      learning_rate_schedule=0.01,
      optimizer=optimize.AdafactorOptimizer,
      mesh_devices=[''],
    )

  def features(self) -> dict[str, Ids]:
    """Rows of the right shapes."""
    return {
      name: np.ones(
        [self.size.batch, self.lengths[name.split('_')[0]]], np.int32
      )
      for name in self.feature_names
    }


def setting(part: Part, model: Model, vocabulary: int, batch: int) -> Setting:
  """Returns the training step of a model on one device."""
  inputs, targets = model.lengths or part.lengths
  size = Size(
    *(claims_parts.WIDTH, 2 * claims_parts.WIDTH, 4, 16),
    *(vocabulary, batch, inputs, targets),
  )
  return ClaimSetting(
    None,
    mesh='batch:1,model:1',
    size=size,
    activations='float32',
    part=part,
    model=model,
    bindings=[
      # The loss is a sum: `turns` divides it by the tokens of the targets.
      'Unitransformer.loss_denominator = 1.0',
      'dropout_rate = 0.0',
      'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = '
      'None',
    ],
  )


def arrays(
  task: str, lengths: Mapping[str, int], split: str, rows: int
) -> dict[str, npt.NDArray[np.int16]]:
  """Returns the ids of the examples of a split, [rows, length]."""
  source = seqio.get_mixture_or_task(task)
  epochs = range(100) if split == 'train' else range(1)
  examples = itertools.chain.from_iterable(
    _examples(source, lengths, split, seed) for seed in epochs
  )
  chosen = [*itertools.islice(examples, rows)]
  return {
    name: _padded(
      [example[name] for example in chosen], lengths[name.split('_')[0]]
    )
    for name in source.output_features
  }


def _examples(
  source: Any, lengths: Mapping[str, int], split: str, seed: int
) -> Iterator[Mapping[str, Ids]]:
  dataset = source.get_dataset(lengths, split, shuffle=True, seed=seed)
  yield from dataset.as_numpy_iterator()


def _padded(rows: Sequence[Ids], length: int) -> npt.NDArray[np.int16]:
  ids = np.zeros([len(rows), length], np.int16)
  for padded, row in zip(ids, rows, strict=True):
    cut = row[:length]
    padded[: len(cut)] = cut
  return ids


def _write(
  folder: pathlib.Path, letter: str, args: argparse.Namespace
) -> dict[str, Any]:
  """Writes the programs and the data of a part; returns its plan."""
  part = PARTS[letter]
  if args.steps:
    part = dataclasses.replace(part, steps=args.steps)
  if args.models:
    chosen = [model for model in part.models if model.name in args.models]
    part = dataclasses.replace(part, models=chosen)
  below = folder / letter
  below.mkdir(parents=True, exist_ok=True)
  vocabulary = 384  # of the synthetic tasks: bytes
  for task in part.tasks:
    lengths = dict(zip(('inputs', 'targets'), part.lengths, strict=True))
    rows = min(args.rows, part.steps * args.batch)
    splits = {'train': ('train', rows), part.held_out: ('validation', _ROWS)}
    found = {
      f'{name}_{feature}': ids
      for split, (name, count) in splits.items()
      for feature, ids in arrays(task, lengths, split, count).items()
    }
    features = seqio.get_mixture_or_task(task).output_features
    largest = max(f.vocabulary.vocab_size for f in features.values())
    vocabulary = max(vocabulary, -(-largest // 128) * 128)
    np.savez_compressed(below / f'{task}.npz', **found)
    for name, ids in found.items():
      print(f'{letter} {task} {name}: {ids.shape}, {np.count_nonzero(ids)}')
  for model in part.models:
    if (below / f'{model.folder}.json').exists():
      continue
    step = setting(part, model, vocabulary, args.batch)
    lower.write(below, model.folder, step, 2)
    print(f'{letter} {model.name}: lowered', flush=True)
  return {
    'claim': part.claim,
    'models': {model.name: model.folder for model in part.models},
    'tasks': list(part.tasks),
    'steps': part.steps,
    'lengths': part.lengths,
    'window': part.window,
  }


def main(argv: Sequence[str] | None = None) -> None:
  """Writes the parts on the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('folder', type=pathlib.Path)
  add('parts', nargs='+', choices=sorted(PARTS), metavar='PART')
  add('--data_dir', help='for parts that train on text')
  add('--vocabulary', default='bytes', help='of that data')
  add('--batch', type=int, default=32)
  add('--models', nargs='+', help='these rows alone')
  add('--steps', type=int, help='instead of those of the part')
  add('--rows', type=int, default=64_000, help='of training, at most')
  args = parser.parse_args(argv)
  os.environ['SYNTH_MTF_VOCABULARY'] = args.vocabulary
  if args.data_dir:
    os.environ['SYNTH_MTF_DATA_DIR'] = args.data_dir
  import benchmarks.claims_tasks  # noqa: F401  registers the tasks
  import synth_mtf.tasks  # noqa: F401

  tf.logging.set_verbosity(tf.logging.ERROR)
  path = args.folder / 'plan.json'
  plan = json.loads(path.read_text()) if path.exists() else {}
  for letter in args.parts:
    plan[letter] = _write(args.folder, letter, args)
    path.write_text(json.dumps(plan, indent=1) + '\n')


if __name__ == '__main__':
  main()
