"""Checkpoints of a run that may have been killed."""

import math
import pathlib

import tensorflow.compat.v1 as tf

from synth_mtf.demo.run_folder import write

_SLOT = '_slot_'


def mend(model_dir: pathlib.Path) -> None:
  """Makes a killed run resume from the last checkpoint that is whole.

  The host writes a checkpoint's data, then its `.index`, then its name into the
  file `checkpoint`. Killed before that file was first written, it would start
  again at step 0 over what is there.
  """
  if tf.train.get_checkpoint_state(str(model_dir)) is not None:
    return
  written = [path.with_suffix('') for path in model_dir.glob('*.ckpt-*.index')]
  if written:
    last = max(written, key=lambda path: int(path.name.rsplit('-', 1)[1]))
    # As the host writes it: a path relative to the folder, which may move.
    write(model_dir / 'checkpoint', f'model_checkpoint_path: "{last.name}"\n')


def trained_parameters(model_dir: pathlib.Path) -> int:
  """Returns how many numbers the last checkpoint's optimizer trains.

  Exactly the variables that are trained have the optimizer's slots beside them.
  """
  shapes = dict(tf.train.list_variables(str(model_dir)))
  trained = {name.split(_SLOT)[0] for name in shapes if _SLOT in name}
  return sum(math.prod(shapes[name]) for name in trained)
