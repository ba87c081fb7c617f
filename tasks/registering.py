"""Registers tasks: T5's definitions with our sources and vocabulary."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import seqio
import t5.data
import t5.data.mixtures  # noqa: F401  registers T5's own tasks and mixtures
import tensorflow.compat.v2 as tf
from t5.data import preprocessors as t5_steps

from synth_mtf.paths import PREFIX
from synth_mtf.rows.formats import Reader
from synth_mtf.tasks.files.source import Split, TwoSources
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES

Step = Callable[..., tf.data.Dataset]

# T5's and seqio's steps in which no `if`, `for` or `while` depends on a tensor.
_WITHOUT_CONTROL_FLOW: tuple[Step, ...] = (
  seqio.preprocessors.append_eos_after_trim,
  seqio.preprocessors.rekey,
  seqio.preprocessors.tokenize,
  t5_steps.definite_pronoun_resolution_simple,
  t5_steps.glue,
  t5_steps.record,
  t5_steps.span_corruption,
  t5_steps.squad,
  t5_steps.stsb,
  t5_steps.summarize,
  t5_steps.translate,
)


def traced(steps: Iterable[Step]) -> tuple[Step, ...]:
  """Has TensorFlow run the steps as they are, where that does the same.

  By default AutoGraph first rewrites the source of each, which takes longer
  than all else that building a pipeline does. Only steps with control flow that
  depends on a tensor need it, such as `wsc_simple`.
  """
  return tuple(map(_traced, steps))


def _traced(step: Step) -> Step:
  if isinstance(step, functools.partial):
    return functools.partial(_traced(step.func), *step.args, **step.keywords)
  if step in _WITHOUT_CONTROL_FLOW:
    return tf.autograph.experimental.do_not_convert(step)
  return step


# Converts text features to tokens; every T5 task ends with these steps.
TOKENIZE = traced(
  [
    seqio.preprocessors.tokenize,
    seqio.CacheDatasetPlaceholder(),
    seqio.preprocessors.append_eos_after_trim,
  ]
)


class _AsFiles:
  """A task to T5's rates, which count a cached task's examples otherwise."""

  cache_dir = None

  def __init__(self, task: seqio.Task) -> None:
    self._task = task

  def __getattr__(self, name: str) -> Any:
    return getattr(self._task, name)


def rate_by_rows(task: seqio.Task) -> float:
  """T5's `rate_num_examples` of a task's rows, whether or not it is cached."""
  return t5.data.rate_num_examples(_AsFiles(task))


def splits(
  roots: Sequence[str],
  paths: Mapping[str, str],
  reader: Callable[[bool], Reader],
) -> dict[str, Split]:
  """Returns splits of one file each; test splits are optional.

  `roots` are possible names of the folder with the files. `reader` makes the
  reader of a split, given whether its rows have labels.
  """
  result = {}
  for split, path in paths.items():
    is_test = split.startswith('test')
    patterns = [root + path for root in roots]
    result[split] = Split.of(patterns, reader(not is_test), optional=is_test)
  return result


def adopt(
  t5_name: str, splits: Mapping[str, Split], name: str | None = None
) -> str:
  """Registers T5's task under our name, with official files as a source.

  Preprocessing, postprocessing, metrics and the TFDS dataset remain T5's.
  Returns our name: `synth_` followed by `name` or, by default, by `t5_name`.
  """
  original = seqio.TaskRegistry.get(t5_name)
  name = PREFIX + (name or t5_name)
  seqio.TaskRegistry.add_provider(
    name,
    original.replace(
      name=name,
      source=TwoSources(name, splits, original.source),
      preprocessors=traced(original.preprocessors),
      output_features=OUTPUT_FEATURES,
    ),
  )
  return name


def define(
  name: str,
  splits: Mapping[str, Split],
  tfds_name: str | None = None,
  tfds_splits: Mapping[str, str] | None = None,
  *,
  preprocessors: Sequence[Step],
  output_features: Mapping[str, seqio.Feature] = OUTPUT_FEATURES,
  make_source: Callable[..., TwoSources] = TwoSources,
  **arguments: Any,
) -> None:
  """Registers `synth_<name>`, a task that t5 does not have.

  `tfds_name` is the TFDS dataset, config and version, if TFDS has the data;
  `tfds_splits` maps the task's splits to TFDS's where their names differ.
  Steps of ours among the `preprocessors` say themselves that AutoGraph is not
  needed.
  `make_source` makes its source. Other arguments go to seqio.Task.
  """
  name = PREFIX + name
  tfds = None
  if tfds_name:
    tfds = seqio.TfdsDataSource(tfds_name, splits=tfds_splits)
  seqio.TaskRegistry.add(
    name,
    source=make_source(name, splits, tfds),
    preprocessors=traced(preprocessors),
    output_features=output_features,
    **arguments,
  )
