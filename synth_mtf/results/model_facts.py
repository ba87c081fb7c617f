"""What the configuration of a run says about its model."""

import dataclasses

from synth_mtf import cost
from synth_mtf.errors import UserError
from synth_mtf.host.described import described
from synth_mtf.host.run_config import are_lengths, lengths_of
from synth_mtf.results import labels


@dataclasses.dataclass(frozen=True)
class ModelFacts:
  """What a configuration says, or why it says nothing.

  Attributes:
    kind: decides which published rows match; None if it is unknown.
    fault: why it is unknown, or ''.
  """

  kind: labels.ModelKind | None
  fault: str = ''


def read(text: str | None, file: str) -> ModelFacts:
  """Describes the model of a configuration, given its text and its path."""
  try:
    with described(text, file) as model:
      return ModelFacts(labels.kind(model.transformer()))
  except UserError as error:
    return ModelFacts(None, str(error))


def products(
  text: str | None, file: str, vocab_size: int, sequence_length: object
) -> int | None:
  """Counts the multiplications in a forward pass over a pair of sequences.

  Returns None if the configuration does not describe a model, or if the
  lengths are none.
  """
  lengths = lengths_of(sequence_length)
  if not are_lengths(lengths):
    return None
  try:
    with described(text, file) as model:
      built = model.build(vocab_size, lengths=lengths, countable=True)
      return cost.products(built.mtf_graph)
  except UserError:
    return None
