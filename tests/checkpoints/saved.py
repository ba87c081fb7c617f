"""Small checkpoints in tests, as TensorFlow saves them."""

import pathlib

import tensorflow.compat.v1 as tf


def save(folder: pathlib.Path, *steps: int, sharded: bool = False) -> None:
  """Saves a checkpoint at each step; the last one becomes the latest."""
  folder.mkdir(exist_ok=True)
  for step in steps:
    with tf.Graph().as_default(), tf.Session() as session:
      tf.get_variable('q', [3, 7])
      session.run(tf.global_variables_initializer())
      saver = tf.train.Saver(sharded=sharded)
      saver.save(session, str(folder / 'model.ckpt'), step)


def damage(folder: pathlib.Path, *steps: int) -> None:
  """Cuts off the data of checkpoints."""
  for step in steps:
    (data,) = folder.glob(f'model.ckpt-{step}.data*')
    data.write_bytes(data.read_bytes()[:3])
