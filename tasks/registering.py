"""Registers tasks: T5's definitions with our sources and vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import seqio
import t5.data.mixtures  # noqa: F401  registers T5's own tasks and mixtures

from synth_mtf.errors import UserError, nearest
from synth_mtf.tasks.files.formats import Reader
from synth_mtf.tasks.files.source import Split, TwoSources
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES

PREFIX = 'synth_'

# From text features to tokens: how every task of T5 ends.
TOKENIZE = (
  seqio.preprocessors.tokenize,
  seqio.CacheDatasetPlaceholder(),
  seqio.preprocessors.append_eos_after_trim,
)


def splits(
  roots: Sequence[str],
  paths: Mapping[str, str],
  reader: Callable[[bool], Reader],
) -> dict[str, Split]:
  """Returns splits of one file each; those for testing are optional.

  Args:
    roots: spellings of the folder that has the files.
    paths: the file of each split.
    reader: makes the reader of a file, given whether its rows have labels.
  """
  return {
    split: Split.of(
      [root + path for root in roots],
      reader(not split.startswith('test')),
      optional=split.startswith('test'),
    )
    for split, path in paths.items()
  }


def adopt(
  t5_name: str, splits: Mapping[str, Split], name: str | None = None
) -> str:
  """Registers `synth_<t5_name>`: T5's task, with official files as a source.

  Preprocessing, postprocessing, metrics and the TFDS dataset are T5's.

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
  tfds_name: str | None = None,
  **arguments: Any,
) -> str:
  """Registers `synth_<name>`, a task that t5 does not have.

  Args:
    name: what follows the prefix.
    splits: the official files of each split.
    tfds_name: dataset, config and version, if TFDS has the task's data.
    **arguments: those of seqio.Task.

  Returns:
    The name of the new task.
  """
  name = PREFIX + name
  tfds = seqio.TfdsDataSource(tfds_name) if tfds_name else None
  arguments = {'output_features': OUTPUT_FEATURES, **arguments}
  source = TwoSources(name, splits, tfds)
  seqio.TaskRegistry.add(name, source=source, **arguments)
  return name


def get(name: str) -> seqio.dataset_providers.DatasetProviderBase:
  """Returns the task or mixture `name`; a UserError offers similar names."""
  known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
  if name not in known:
    hint = nearest(PREFIX + name, known) or nearest(name, known)
    raise UserError(
      f'unknown task or mixture {name!r}'
      + (hint or f'; did you mean {PREFIX}en_mix?')
    )
  return seqio.get_mixture_or_task(name)
