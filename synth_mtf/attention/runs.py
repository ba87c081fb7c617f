"""What the checkpoints of runs attend to."""

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Optional, Union

from synth_mtf.attention import examples as examples_of
from synth_mtf.attention import weights
from synth_mtf.attention.examples import Examples
from synth_mtf.attention.file import Attention
from synth_mtf.checkpoints import folder as folders
from synth_mtf.checkpoints import vocabulary as vocabularies
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import errors, gin_files
from synth_mtf.results import labels, runs

INITIAL = 'initial'
LAST = 'last'
Step = Union[int, str]


def look(
  folder: str,
  steps: Sequence[Step],
  choose: Callable[[], Examples],
  vocabulary: Optional[str] = None,
  seed: int = 0,
) -> list[Attention]:
  """Computes the attention of one run's checkpoints.

  Args:
    folder: a model folder, or a demo's that holds one run.
    steps: of the checkpoints; `LAST`, or `INITIAL` for initial weights.
    choose: returns the examples; called while gin holds the run.
    vocabulary: as in `--vocabulary`; None for that of the run.
    seed: of initial weights.

  Returns:
    The attention at each step.

  Raises:
    UserError: the folder holds no run or several, or a checkpoint or text does
      not fit.
  """
  run, *others = runs.read(folder)
  if others:
    raise UserError(
      f'{folder} holds {1 + len(others)} runs; give one of them: '
      + ' '.join(one.name for one in (run, *others))
    )
  paths = [_path(run.folder, step) for step in steps]
  for module in ('t5.data.mixtures', 'synth_mtf.tasks'):
    importlib.import_module(module)
  if not run.gin:
    raise UserError(
      f'{run.name} has no operative_config.gin, which describes its model'
    )
  gin_files.parse_foreign(run.gin, run.name)
  examples_of.choose_vocabulary(vocabulary, run.folder)
  with errors.explained():  # T5's own vocabulary takes a network
    known = examples_of.vocabulary()
    for path in filter(None, paths):
      vocabularies.check((known['inputs'], known['targets']), path)
    examples = choose()
    sizes = {name: found.vocab_size for name, found in known.items()}
  label = labels.label()
  return [
    weights.compute(
      run.name, label, examples, sizes, Checkpoint(path) if path else None, seed
    )
    for path in paths
  ]


def look_at_each(
  found: Sequence[runs.Run],
  choose: Callable[[], Examples],
  vocabulary: Optional[str] = None,
) -> tuple[list[Attention], list[str]]:
  """Computes the attention of each run's last checkpoint; arguments as `look`.

  Returns:
    What could be computed, and why the rest is missing.
  """
  attentions, missing = [], []
  for run in found:
    try:
      attentions += look(run.name, [LAST], choose, vocabulary)
    except UserError as error:
      missing.append(f'No attention of {run.label}, {run.name}: {error}')
  return attentions, missing


def _path(folder: str, step: Step) -> Optional[str]:
  if step == INITIAL:
    return None
  if step == LAST:
    latest = folders.latest(folder)
    if latest is None:
      raise UserError(
        f'{folder} has no checkpoint yet; --step {INITIAL} shows the weights '
        'before training'
      )
    return latest
  path = os.path.join(folder, f'model.ckpt-{step}')
  if not folders.exists(path):
    raise UserError(
      f'there is no checkpoint of step {step}.{folders.holding(folder)}'
    )
  return path
