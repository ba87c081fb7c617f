"""What the configuration of a run says about its model.

To find out, TensorFlow has to build the model, which takes seconds. Later
commands remember it.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from synth_mtf.errors import UserError
from synth_mtf.results.kinds import Mixture, ModelKind
from synth_mtf.storage import remembered


@dataclasses.dataclass(frozen=True)
class ModelFacts:
  """What a configuration says, or why it says nothing.

  Attributes:
    kind: decides which published rows match; None if it is unknown.
    mixtures: our layers.
    fault: why both are unknown, or ''.
  """

  kind: ModelKind | None
  mixtures: Sequence[Mixture] = ()
  fault: str = ''


def known(text: str | None, file: str) -> ModelFacts | None:
  """Returns what TensorFlow is not needed for, or None."""
  if not text:
    folder, name = os.path.split(file)
    fault = f'{folder} has no {name}, which describes its model'
    return ModelFacts(None, fault=fault)
  facts = remembered.get(_question(text))
  if facts is None:
    return None
  mixtures = [Mixture(*mixture) for mixture in facts['mixtures']]
  return ModelFacts(ModelKind(**facts['kind']), mixtures)


def read(text: str | None, file: str) -> ModelFacts:
  """Describes the model of a configuration, given its text and its path."""
  return known(text, file) or _built(text, file)


def _built(text: str | None, file: str) -> ModelFacts:
  from synth_mtf.host.described import described
  from synth_mtf.results import labels

  try:
    with described(text, file) as model:
      transformer = model.transformer()
      facts = ModelFacts(labels.kind(transformer), labels.mixtures(transformer))
  except UserError as error:
    return ModelFacts(None, fault=str(error))
  assert facts.kind
  remembered.put(
    _question(text),
    {'kind': facts.kind._asdict(), 'mixtures': facts.mixtures},
  )
  return facts


def _question(text: str | None) -> Any:
  return ['model', text]


def products(
  text: str | None, file: str, vocab_size: int, sequence_length: object
) -> int | None:
  """Counts the multiplications in a forward pass over a pair of sequences.

  Returns None if the configuration does not describe a model, or has no valid
  lengths.
  """
  from synth_mtf import cost
  from synth_mtf.host.described import described
  from synth_mtf.host.run_config import are_lengths, lengths_of

  lengths = lengths_of(sequence_length)
  if not are_lengths(lengths):
    return None
  try:
    with described(text, file) as model:
      built = model.build(vocab_size, lengths=lengths, countable=True)
      return cost.products(built.mtf_graph)
  except UserError:
    return None
