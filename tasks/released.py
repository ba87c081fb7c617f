"""Row counts of the released files, to check that a copy is complete.

A row is an example as TensorFlow Datasets counts it, before T5's preprocessors:
an answer in MultiRC, a query in ReCoRD, a turn in a dialogue. Training rows of
WMT are the total of all its files, those of CNN/DailyMail exclude the 114
stories without an article, and T5 trains on the 259 of WSC's 554 rows whose
referent is correct. The counts in released.json are of TFDS's catalogue, for
the versions that T5 names; where a row is one example, they are also T5's
mixing weights (t5.data.glue_utils). The ConvAI2 counts come from ParlAI,
because TFDS does not have ConvAI2.
"""

from __future__ import annotations

import functools
import json
import pathlib

from synth_mtf.tasks.registering import PREFIX


@functools.cache
def counts() -> dict[str, dict[str, int]]:
  """Returns all row counts, by task name without the prefix and by split."""
  return json.loads(pathlib.Path(__file__).with_suffix('.json').read_text())


def rows(task_name: str, split: str) -> int | None:
  """Returns the number of rows in the released files, or None if unknown."""
  return counts().get(task_name.removeprefix(PREFIX), {}).get(split)


def compared(task_name: str, split: str, count: int | None) -> str:
  """Compares a row count with the released one; '' if one is unknown."""
  expected = rows(task_name, split)
  if count is None or expected is None:
    return ''
  if count == expected:
    return 'as released'
  difference = abs(expected - count)
  return f'{difference:,} {"missing" if count < expected else "more"}'
