"""Registers tasks: T5's definitions, over our sources and vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

import seqio
import t5.data.mixtures  # noqa: F401  registers T5's own tasks and mixtures

from synth_mtf.tasks._sources import Split, TwoSources
from synth_mtf.tasks._vocabulary import OUTPUT_FEATURES

PREFIX = 'synth_'


def adopt(
  t5_name: str, files: Mapping[str, Split], name: str | None = None
) -> str:
  """Registers `synth_<t5_name>`: T5's task, with official files as a source.

  Preprocessing, postprocessing and metrics are those of the task that t5
  registers under `t5_name`; so is the TFDS dataset and its version.

  Args:
    t5_name: a task of t5.data.tasks.
    files: the official files of each split.
    name: what follows the prefix, if not T5's name.

  Returns:
    The name of the new task.
  """
  original = seqio.TaskRegistry.get(t5_name)
  name = PREFIX + (name or t5_name)
  task = original.replace(
    name=name,
    source=TwoSources(name, files, original.source),
    output_features=OUTPUT_FEATURES,
  )
  seqio.TaskRegistry.add_provider(name, task)
  return name
