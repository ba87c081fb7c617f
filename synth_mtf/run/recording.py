"""Writes metrics.json and predictions.jsonl of every evaluation.

T5's own files stay as they are. docs/runs.md describes both formats.
"""

import importlib.metadata
import platform
from collections.abc import Callable, Mapping
from typing import Any

import gin
from mesh_tensorflow.transformer import utils

from synth_mtf.host import evaluation
from synth_mtf.results import records
from synth_mtf.results.records import Result
from synth_mtf.results.standard_error import standard_errors

_PACKAGES = (
  'synth-mtf',
  'tensorflow',
  'mesh-tensorflow',
  't5',
  'seqio-nightly',
  'gin-config',
)
# Measured on tokens, whose number the host reports.
_OF_TOKENS = ('neg_log_perplexity', 'token_accuracy')
_TOKENS = 'num_eval_tokens'

OnDecoded = Callable[[int, int], None]
OnResult = Callable[[Result], None]


class Recorder:
  """Records the results of the host's evaluations."""

  def __init__(self) -> None:
    self._on_decoded: OnDecoded = lambda step, examples: None
    self._on_result: OnResult = lambda result: None

  def tell(self, on_decoded: OnDecoded, on_result: OnResult) -> None:
    """Also reports progress and results to functions.

    Args:
      on_decoded: called with the checkpoint's step and the number of examples.
      on_result: called with each result.
    """
    self._on_decoded, self._on_result = on_decoded, on_result

  def decoded(self, step: int, examples: int) -> None:
    """Reports progress."""
    self._on_decoded(step, examples)

  def evaluated(self, found: evaluation.Evaluation) -> None:
    """Writes the metrics and the predictions of a task."""
    predictions = [example.read_as for example in found.examples]
    results = []
    for metric_fn, values in found.metrics:
      errors = standard_errors(metric_fn, found.targets, predictions)
      results += [
        Result(
          task=found.task,
          split=found.split,
          metric=name,
          value=value,
          n=len(found.targets),
          unit='example',
          standard_error=errors.get(name),
          step=found.step,
        )
        for name, value in values.items()
      ]
    self._record(found.folder, results)
    if gin.get_bindings(utils.run).get('output_eval_examples', True):
      records.add_predictions(
        found.folder,
        found.task,
        found.split,
        found.step,
        [
          {
            'input': example.features.get('inputs_pretokenized'),
            'target': example.features.get('targets_pretokenized'),
            'prediction': example.written,
            'read_as': example.read_as,
            'target_read_as': target,
          }
          for example, target in zip(found.examples, found.targets)
        ],
      )

  def measured(self, found: evaluation.Perplexity) -> None:
    """Writes what was measured on tokens."""
    tokens = round(found.measures[_TOKENS])
    self._record(
      found.folder,
      [
        Result(
          task=found.task,
          split=found.split,
          metric=name,
          value=found.measures[name],
          n=tokens,
          unit='token',
          standard_error=None,
          step=found.step,
        )
        for name in _OF_TOKENS
      ],
    )

  def _record(self, folder: str, results: list[Result]) -> None:
    made_with = {'versions': _versions(), 'gin': gin.operative_config_str()}
    records.add_results(folder, results, made_with)
    for result in results:
      self._on_result(result)


def _versions() -> Mapping[str, str]:
  found: dict[str, Any] = {'python': platform.python_version()}
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      continue  # used from a checkout
  return found
