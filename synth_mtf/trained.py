"""A trained model in Python: decodes, scores and shows what it attends to.

model = synth_mtf.load('my_runs/rv_en_mix')
model.predict(['cola sentence: The book was read by.'])
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import gin
import mesh_tensorflow as mtf
import numpy as np
from mesh_tensorflow.transformer import utils

from synth_mtf.attention import examples as examples_of
from synth_mtf.attention import runs
from synth_mtf.attention.examples import Examples, Ids
from synth_mtf.attention.file import Array, Attention
from synth_mtf.errors import UserError
from synth_mtf.host import patches
from synth_mtf.host.model import Transformer

_BATCH = 16  # examples at a time; logits of a large vocabulary fill the memory
_ALPHA = 0.6  # T5's length bonus in beam search
_EOS = 1

_one_at_a_time = threading.RLock()  # gin's configuration is the process's


class TrainedModel:
  """A model with the weights of a checkpoint, in a session that stays open.

  It computes in float32. Later changes of its folder have no effect. While a
  method runs, gin has the model's configuration, and then again what it had.

  Attributes:
    label: the paper's name of the model.
    step: of the checkpoint.
  """

  def __init__(
    self, folder: str, step: Optional[int], vocabulary: Optional[str]
  ) -> None:
    """Loads a model; the arguments are those of `synth_mtf.load`."""
    self._separate_gin = patches.separate_gin()
    steps = [runs.LAST if step is None else step]
    with self._configured():
      self._run, (checkpoint,), known = runs.opened(folder, steps, vocabulary)
      self._sides, lengths = examples_of.sides(), examples_of.lengths()
      settings = gin.get_bindings(utils.run, resolve_references=False)
      self._type = settings.get('model_type', 'bitransformer')
      features = examples_of.FEATURES.items()
      self._most = {side: lengths.get(name) for side, name in features}
      if self._type == 'delimited_lm' and lengths:
        self._most['decoder'] = sum(lengths.values())
      sizes = [one.vocab_size for one in known.values()]
      self._loaded: Optional[runs.Loaded] = runs.Loaded(sizes, checkpoint)
      self.label = self._run.label
      self.step = checkpoint.step if checkpoint else 0
      # Reads the weights now, since a run that trains removes checkpoints.
      row = np.ones([1, 1], np.int32)
      self._open.run(_log_likelihoods, dict.fromkeys(self._sides, row))

  def __enter__(self) -> 'TrainedModel':
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def close(self) -> None:
    """Frees the memory; the model cannot be used any more."""
    if self._loaded:
      self._loaded.close()
    self._loaded = None

  def predict(
    self,
    inputs: Sequence[str],
    beams: int = 4,
    max_length: Optional[int] = None,
  ) -> list[str]:
    """Returns the most likely target of each input.

    Args:
      inputs: texts such as 'cola sentence: The book was read by.'
      beams: of T5's beam search; 1 decodes greedily.
      max_length: the most tokens of a target; by default, as in training.

    Raises:
      UserError: a text is empty or too long, or the model has no decoder.
    """
    if len(self._sides) == 1:
      raise UserError(
        f'predict needs an encoder and a decoder, and {self._run.name} is a '
        f'model of type {self._type!r}; score and attention accept it'
      )
    length = max_length or self._most['decoder'] or 0
    if min(beams, length) < 1:
      raise UserError(
        f'beams = {beams}, max_length = {length}: expected at least 1 of each'
      )
    found: dict[int, str] = {}
    with self._configured():
      known = examples_of.vocabulary()['decoder']
      ids = self._examples(inputs=inputs).ids if inputs else {'encoder': ()}
      for numbers, rows in self._batches(ids):
        _, decoded = self._open.run(_decoded, rows, beams, length)
        for number, row in zip(numbers, decoded.tolist()):
          end = row.index(_EOS) if _EOS in row else len(row)
          found[number] = known.decode(row[:end])
    return [found[number] for number in sorted(found)]

  def score(
    self, inputs: Optional[Sequence[str]], targets: Sequence[str]
  ) -> list[float]:
    """Returns the log likelihood of each target, EOS included, given its input.

    For a language model, inputs are what comes before the targets, or None.

    Raises:
      UserError: a text is empty or too long.
    """
    found: dict[int, float] = {}
    with self._configured():
      if len(self._sides) > 1:
        ids = dict(self._examples(inputs=inputs or (), targets=targets).ids)
      else:
        ids = dict(self._examples(targets=targets).ids)
      if 'decoder' not in ids:
        raise UserError('score needs a decoder, and a target for each input')
      scored = [len(row) for row in ids['decoder']]
      if len(self._sides) == 1 and inputs is not None:
        ids['decoder'] = self._continued(inputs, ids['decoder'])
      for numbers, rows in self._batches(ids):
        _, values = self._open.run(_log_likelihoods, rows)
        for number, row in zip(numbers, values.astype(float)):
          end = len(ids['decoder'][number])
          found[number] = float(row[end - scored[number] : end].sum())
    return [found[number] for number in sorted(found)]

  def attention(
    self, inputs: Sequence[str], targets: Optional[Sequence[str]] = None
  ) -> Attention:
    """Returns logits and weights by layer and head, as `synth-mtf attention`.

    Without targets, only the encoder is shown. A language model has one side.

    Raises:
      UserError: a text is empty or too long, or no layer has weights.
    """
    with self._configured():
      examples = self._examples(inputs=inputs, targets=targets or ())
      return runs.attention(self._run, self._open, examples, self._padded)

  @property
  def _open(self) -> runs.Loaded:
    if self._loaded is None:
      raise UserError(f'the model of {self._run.name} is closed: load it again')
    return self._loaded

  @contextlib.contextmanager
  def _configured(self) -> Iterator[None]:
    with _one_at_a_time, self._separate_gin():
      yield

  def _examples(self, **texts: Sequence[str]) -> Examples:
    for name, found in texts.items():
      if isinstance(found, str) or not all(isinstance(x, str) for x in found):
        raise UserError(f'{name} are {found!r:.80}: expected a list of texts')
    return examples_of.from_texts({n: [*found] for n, found in texts.items()})

  def _continued(self, inputs: Sequence[str], targets: Ids) -> Ids:
    """Puts the inputs of a language model before its targets."""
    before = self._examples(inputs=inputs).ids['decoder']
    if len(before) != len(targets):
      raise UserError(
        f'{len(before)} inputs and {len(targets)} targets: expected one target '
        'per input'
      )
    if self._type == 'lm':  # where a delimited one has EOS
      before = [row[:-1] for row in before]
    rows = [[*first, *then] for first, then in zip(before, targets)]
    examples_of.require_short('decoder', rows, self._most['decoder'])
    return rows

  def _batches(
    self, ids: Mapping[str, Ids]
  ) -> Iterator[tuple[list[int], dict[str, Array]]]:
    """Yields numbers and rows of a few examples of similar length."""
    lengths = list(zip(*([len(row) for row in ids[side]] for side in ids)))
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for begin in range(0, len(order), _BATCH):
      numbers = order[begin : begin + _BATCH]
      yield (
        numbers,
        {
          side: self._padded(side, [rows[number] for number in numbers])
          for side, rows in ids.items()
        },
      )

  def _padded(self, side: str, rows: Ids) -> Array:
    """Pads rows to few shapes, each of which has its own part of the graph."""
    found = runs.padded(rows)
    most = self._most[side]
    length = (
      min(_power_of_two(found.shape[1]), most) if most else found.shape[1]
    )
    more = _power_of_two(len(found)) - len(found)
    found = np.pad(found, [(0, more), (0, length - found.shape[1])])
    found[len(rows) :] = found[0]  # rows of padding would decode to the end
    return found


def _power_of_two(least: int) -> int:
  return 1 << (least - 1).bit_length()


def _log_likelihoods(
  model: Transformer, rows: Mapping[str, mtf.Tensor], dtype: Any
) -> tuple[None, mtf.Tensor]:
  """Returns the log likelihood of each target token, [batch, length]."""
  logits = mtf.cast(runs.call(model, rows, dtype), 'float32')
  targets = rows['decoder' if 'decoder' in rows else 'encoder']
  vocabulary = logits.shape.dims[-1]
  return None, -mtf.layers.softmax_cross_entropy_with_logits(
    logits, targets, vocabulary
  )


def _decoded(
  model: Transformer,
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
