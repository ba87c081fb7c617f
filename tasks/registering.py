"""Registers tasks: T5's definitions with our sources and vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import seqio
import t5.data.mixtures  # noqa: F401  registers T5's own tasks and mixtures

from synth_mtf.errors import UserError, nearest
from synth_mtf.tasks.files.source import Split, TwoSources
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES

PREFIX = 'synth_'


def adopt(
  t5_name: str, splits: Mapping[str, Split], name: str | None = None
) -> str:
  """Registers `synth_<t5_name>`: T5's task, with official files as a source.

  Preprocessing, postprocessing and metrics are those of the task that t5
  registers under `t5_name`; so is the TFDS dataset and its version.

  Args:
    t5_name: a task of t5.data.tasks.
    splits: the official files of each split.
    name: what follows the prefix, if not T5's name.

  Returns:
    The name of the new task.
  """
  original = seqio.TaskRegistry.get(t5_name)
  name = PREFIX + (name or t5_name)
  task = original.replace(
    name=name,
    source=TwoSources(name, splits, original.source),
    output_features=OUTPUT_FEATURES,
  )
  seqio.TaskRegistry.add_provider(name, task)
  return name


def define(
  name: str,
  splits: Mapping[str, Split],
  preprocessors: Sequence[Callable[..., Any]],
  tfds_name: str | None = None,
  output_features: Mapping[str, seqio.Feature] = OUTPUT_FEATURES,
  postprocess_fn: Callable[..., Any] | None = None,
  metric_fns: Sequence[Callable[..., Any]] = (),
) -> str:
  """Registers `synth_<name>`, a task that t5 does not have.

  Args:
    name: what follows the prefix.
    splits: the official files of each split.
    preprocessors: from raw rows to the output features.
    tfds_name: dataset, config and version, if TFDS has the task's data.
    output_features: as in seqio.Task.
    postprocess_fn: as in seqio.Task.
    metric_fns: as in seqio.Task.

  Returns:
    The name of the new task.
  """
  name = PREFIX + name
  tfds = seqio.TfdsDataSource(tfds_name) if tfds_name else None
  seqio.TaskRegistry.add(
    name,
    source=TwoSources(name, splits, tfds),
    preprocessors=list(preprocessors),
    output_features=output_features,
    postprocess_fn=postprocess_fn,
    metric_fns=list(metric_fns),
  )
  return name


def get(name: str) -> seqio.dataset_providers.DatasetProviderBase:
  """Returns the task or mixture `name`.

  Raises:
    UserError: there is none of that name; the nearest names are offered.
  """
  known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
  if name not in known:
    hint = nearest(PREFIX + name, known) or nearest(name, known)
    raise UserError(
      f'unknown task or mixture {name!r}'
      + (hint or f'; did you mean {PREFIX}en_mix?')
    )
  return seqio.get_mixture_or_task(name)


# From text features to tokens: how every task of T5 ends.
TOKENIZE = (
  seqio.preprocessors.tokenize,
  seqio.CacheDatasetPlaceholder(),
  seqio.preprocessors.append_eos_after_trim,
)
