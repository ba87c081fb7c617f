r"""Writes examples of span corruption as arrays of token ids.

    python -m benchmarks.accelerator.text text.npz --data_dir data \
      --vocabulary vocabulary.model --epochs 3

The task is `synth_text_span_corruption`: T5's own preprocessing of the text in
the data folder's corpus/. Each epoch has other noise and another order. The
arrays are `train_inputs`, `train_targets`, `validation_inputs` and
`validation_targets`, [examples, length]; 0 is padding.

This needs the environment of the project; `train` needs only JAX.
"""

import argparse
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import seqio

_TASK = 'synth_text_span_corruption'
Example = Mapping[str, npt.NDArray[np.int32]]


def arrays(
  lengths: Mapping[str, int], epochs: int
) -> dict[str, npt.NDArray[np.int16]]:
  """Returns the arrays of both splits."""
  parts = {
    split: [
      one for seed in range(epochs) for one in _examples(lengths, split, seed)
    ]
    for split in ('train', 'validation')
  }
  return {
    f'{split}_{name}': _padded([one[name] for one in examples], length)
    for split, examples in parts.items()
    for name, length in lengths.items()
  }


def _examples(
  lengths: Mapping[str, int], split: str, seed: int
) -> Iterator[Example]:
  task: Any = seqio.get_mixture_or_task(_TASK)
  dataset = task.get_dataset(lengths, split, shuffle=True, seed=seed)
  yield from dataset.as_numpy_iterator()


def _padded(
  rows: Sequence[npt.NDArray[np.int32]], length: int
) -> npt.NDArray[np.int16]:
  ids = np.zeros([len(rows), length], np.int16)
  for padded, row in zip(ids, rows, strict=True):
    assert row.max() <= np.iinfo(np.int16).max
    padded[: len(row)] = row[:length]
  return ids


def main(argv: Sequence[str] | None = None) -> None:
  """Writes the file on the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('file', type=pathlib.Path)
  add('--data_dir', required=True)
  add('--vocabulary', required=True)
  add('--inputs', type=int, default=512)
  add('--targets', type=int, default=114)
  add('--epochs', type=int, default=1)
  args = parser.parse_args(argv)
  os.environ['SYNTH_MTF_DATA_DIR'] = args.data_dir
  os.environ['SYNTH_MTF_VOCABULARY'] = args.vocabulary
  import synth_mtf.tasks  # noqa: F401  registers the task

  lengths = {'inputs': args.inputs, 'targets': args.targets}
  found = arrays(lengths, args.epochs)
  args.file.parent.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(args.file, **found)
  for name, ids in found.items():
    print(f'{name}: {len(ids)} examples, {np.count_nonzero(ids)} tokens')


if __name__ == '__main__':
  main()
