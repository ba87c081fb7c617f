"""Over how many rows a run takes log perplexity."""

from collections.abc import Mapping
from typing import Optional


def notice(rows: Mapping[str, Optional[int]], most: int) -> str:
  """What is to be said of an evaluation of log perplexity.

  Args:
    rows: how many each task has in its files; None where that is not known.
    most: how many of a task are taken: the batch times the steps.
  """
  known = ', '.join(
    f'{task} {count:,}' for task, count in rows.items() if count is not None
  )
  return (
    f'Log perplexity is taken over at most {most:,} rows of each task, the '
    'first ones (batch_size x perplexity_eval_steps); num_eval_tokens says how '
    'many tokens that were.'
    + (f' There are, in the official files: {known}.' if known else '')
  )
