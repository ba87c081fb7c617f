"""What a configuration describes, asked without changing gin's own.

`described` is the only way to ask it:

  with described(text, file) as model:
    layers = models.layers(model.transformer())
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import foreign, model as models, patches
from synth_mtf.host.run_config import RunConfig

_one_at_a_time = threading.RLock()  # gin's configuration is the process's


class DescribedModel:
  """The model and the run that a configuration describes.

  Use it while gin has the configuration: inside `described`, and afterwards
  inside `configured`. Building is bounded in time.

  Attributes:
    skipped: the statements that were not executed.
  """

  def __init__(self, text: str, file: str) -> None:
    self._separate_gin = patches.separate_gin()
    with self.configured(), foreign.bounded():
      self.skipped = foreign.parse(text, file)

  @contextlib.contextmanager
  def configured(self) -> Iterator[None]:
    """Gives gin the configuration, and its previous one back.

    Meanwhile, TensorFlow logs only errors: Mesh-TensorFlow warns of its own
    initial values.
    """
    with _one_at_a_time, self._separate_gin():
      verbosity = tf.logging.get_verbosity()
      tf.logging.set_verbosity(tf.logging.ERROR)
      try:
        yield
      finally:
        tf.logging.set_verbosity(verbosity)

  @property
  def run(self) -> RunConfig:
    """The settings of the run."""
    return RunConfig()

  def transformer(self, *vocab_sizes: int) -> models.Transformer:
    """Makes the model; without sizes, for a small vocabulary."""
    with foreign.bounded():
      return models.make_transformer(*vocab_sizes)

  def build(self, vocab_size: int, **options: Any) -> models.ConfiguredModel:
    """Builds the model; the arguments are those of `models.build`."""
    with foreign.bounded():
      return models.build(vocab_size, **options)


@contextlib.contextmanager
def described(text: str | None, file: str) -> Iterator[DescribedModel]:
  """Gives gin the configuration of somebody else's run, parsed as data.

  Args:
    text: the configuration; None if there is none.
    file: its path, for messages.

  Raises:
    UserError: there is none, or it needs code that is not ours or the host's.
  """
  if not text:
    folder, name = os.path.split(file)
    raise UserError(f'{folder} has no {name}, which describes its model')
  model = DescribedModel(text, file)
  with model.configured():
    yield model
