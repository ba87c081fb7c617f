"""A trained model in Python: decodes, scores and shows what it attends to.

model = synth_mtf.load('my_runs/rv_en_mix')
model.predict(['cola sentence: The book was read by.'])
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mesh_tensorflow as mtf

from synth_mtf.attention import computation, examples as examples_of, file
from synth_mtf.attention.loaded import Build, Loaded, call
from synth_mtf.errors import UserError
from synth_mtf.host import model as models, patches

_BATCH = 16  # examples at a time; logits of a large vocabulary fill the memory
_ALPHA = 0.6  # T5's length bonus in beam search
_EOS = 1

_one_at_a_time = threading.RLock()  # gin's configuration is the process's


class TrainedModel(contextlib.AbstractContextManager['TrainedModel']):
  """A model with the weights of a checkpoint, in a session that stays open.

  It computes in float32. Later changes of its folder have no effect. While a
  method runs, gin has the model's configuration; afterwards, it has its
  previous one again.

  Attributes:
    label: the paper's name of the model.
    step: of the checkpoint.
  """

  def __init__(
    self, folder: str, step: int | None, vocabulary: str | None
  ) -> None:
    """Loads a model; the arguments are those of `synth_mtf.load`."""
    self._separate_gin = patches.separate_gin()
    with self._configured():
      self._run, (checkpoint,), known = computation.opened(
        folder, [computation.LAST if step is None else step], vocabulary
      )
      self._sides, self._type = examples_of.sides(), examples_of.model_type()
      sizes = [one.vocab_size for one in known.values()]
      self._loaded = Loaded(sizes, checkpoint)
      self.label = self._run.label
      self.step = checkpoint.step if checkpoint else 0
      # Reads the weights now, since a run that trains removes checkpoints.
      self._loaded.run(_log_likelihoods, dict.fromkeys(self._sides, [[1]]))

  def __exit__(self, *_: object) -> None:
    self.close()

  def close(self) -> None:
    """Frees the memory; the model cannot be used any more."""
    self._loaded.close()

  def predict(
    self,
    inputs: Sequence[str],
    beams: int = 4,
    max_length: int | None = None,
  ) -> list[str]:
    """Returns the target that beam search finds for each input.

    Args:
      inputs: texts such as 'cola sentence: The book was read by.'
      beams: of T5's beam search; 1 decodes greedily.
      max_length: the most tokens in a target; default: that of training.

    Raises:
      UserError: a text is empty or too long, the model has no decoder, or a
        number is below 1.
    """
    if len(self._sides) == 1:
      raise UserError(
        f'predict needs an encoder and a decoder, and {self._run.name} is a '
        f'model of type {self._type!r}; score and attention accept it'
      )
    if beams < 1 or (max_length or 1) < 1:
      raise UserError(f'{beams = }, {max_length = }: expected at least 1')
    with self._configured():
      length = max_length or examples_of.most_of('decoder') or 512
      known = examples_of.vocabulary()['decoder']
      ids = self._examples(inputs=inputs).ids if inputs else {'encoder': ()}
      decoded = self._values(ids, _decoded, beams, length)
      rows = [[*row.tolist(), _EOS] for row in decoded]
      return [known.decode(row[: row.index(_EOS)]) for row in rows]

  def score(
    self, inputs: Sequence[str] | None, targets: Sequence[str]
  ) -> list[float]:
    """Returns the log likelihood of each target, EOS included, given its input.

    For a language model, `inputs` is None.

    Raises:
      UserError: a text is empty or too long, or the model has no decoder.
    """
    with self._configured():
      ids = self._examples(inputs=inputs or (), targets=targets).ids
      if 'decoder' not in ids:
        raise UserError('score needs a decoder, and a target for each input')
      values = self._values(ids, _log_likelihoods)
      lengths = map(len, ids['decoder'])
      return [
        float(row[:length].sum(dtype=float))
        for row, length in zip(values, lengths, strict=True)
      ]

  def attention(
    self, inputs: Sequence[str], targets: Sequence[str] | None = None
  ) -> file.Attention:
    """Returns logits and weights by layer and head, as `synth-mtf attention`.

    Without targets, only the encoder is shown. A language model has one side.

    Raises:
      UserError: a text is empty or too long, or no layer has weights.
    """
    with self._configured():
      examples = self._examples(inputs=inputs, targets=targets or ())
      return computation.attention(self._run, self._loaded, examples)

  @contextlib.contextmanager
  def _configured(self) -> Iterator[None]:
    with _one_at_a_time, self._separate_gin():
      yield

  def _examples(self, **texts: Sequence[str]) -> examples_of.Examples:
    for name, found in texts.items():
      if isinstance(found, str) or not all(isinstance(x, str) for x in found):
        raise UserError(f'{name} are {found!r:.80}: expected a list of texts')
    return examples_of.from_texts({n: [*found] for n, found in texts.items()})

  def _values(
    self, ids: Mapping[str, examples_of.Ids], build: Build, *options: Any
  ) -> list[file.Array]:
    """Runs a few examples at a time, of similar length; one row for each."""
    lengths = list(zip(*(map(len, rows) for rows in ids.values()), strict=True))
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    found: dict[int, file.Array] = {}
    for begin in range(0, len(order), _BATCH):
      numbers = order[begin : begin + _BATCH]
      rows = {side: [ids[side][n] for n in numbers] for side in ids}
      found.update(
        zip(numbers, self._loaded.run(build, rows, *options)[1], strict=True)
      )
    return [found[n] for n in range(len(order))]


def _log_likelihoods(
  model: models.Transformer, rows: Mapping[str, mtf.Tensor], dtype: Any
) -> tuple[None, mtf.Tensor]:
  """Returns the log likelihood of each target token, [batch, length]."""
  logits = mtf.cast(call(model, rows, dtype), 'float32')
  targets = rows['decoder' if 'decoder' in rows else 'encoder']
  vocabulary = logits.shape.dims[-1]
  return None, -mtf.layers.softmax_cross_entropy_with_logits(
    logits, targets, vocabulary
  )


def _decoded(
  model: models.Transformer,
  rows: Mapping[str, mtf.Tensor],
  dtype: Any,
  beams: int,
  length: int,
) -> tuple[None, mtf.Tensor]:
  """Returns decoded ids, [batch, length]; the batch does not matter to them."""
  return None, model.decode(
    rows['encoder'],
    variable_dtype=dtype,
    beam_size=beams,
    alpha=_ALPHA,
    temperature=0.0,
    sampling_keep_top_k=-1,
    decode_length_multiplier=0.0,
    decode_length_constant=length,
    max_decode_length=length,
  )
