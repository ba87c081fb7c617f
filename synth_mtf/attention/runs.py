"""Looks at the attention of a run's checkpoint, as `synth-mtf attention`."""

import importlib
import os
from collections.abc import Sequence
from typing import Callable, Optional, Union

from synth_mtf.attention import examples as attention_examples
from synth_mtf.attention import weights as attention
from synth_mtf.attention.file import Attention
from synth_mtf.checkpoints import folder as folders
from synth_mtf.checkpoints import vocabulary as vocabularies
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.results import labels, runs

INITIAL = 'initial'
LAST = 'last'
Step = Union[int, str]


def look(
  folder: str,
  steps: Sequence[Step],
  choose: Callable[[], attention.Examples],
  vocabulary: Optional[str] = None,
  seed: int = 0,
) -> list[Attention]:
  """Looks at some examples with checkpoints of one run.

  Args:
    folder: a model folder, or a demo's that holds one run.
    steps: of the checkpoints; `LAST`, or `INITIAL` for weights as they are
      drawn before training.
    choose: makes the examples, once gin holds the run.
    vocabulary: as in `--vocabulary`; None for that of the run.
    seed: that initial weights are drawn with.

  Returns:
    What the model attends to at each step.

  Raises:
    UserError: the folder holds no run or several, or a checkpoint or text does
      not fit.
  """
  run = _one_run(folder)
  paths = [_path(run.folder, step) for step in steps]
  _configure(run)
  attention_examples.choose_vocabulary(vocabulary, run.folder)
  known = attention_examples.vocabulary()
  for path in filter(None, paths):
    vocabularies.check((known['inputs'], known['targets']), path)
  examples = choose()
  sizes = {name: found.vocab_size for name, found in known.items()}
  label = labels.label()
  return [
    attention.look(
      run.name, label, examples, sizes, Checkpoint(path) if path else None, seed
    )
    for path in paths
  ]


def _one_run(folder: str) -> runs.Run:
  found = runs.read(folder)
  if len(found) > 1:
    raise UserError(
      f'{folder} holds {len(found)} runs; give one of them: '
      + ' '.join(run.name for run in found)
    )
  return found[0]


def _configure(run: runs.Run) -> None:
  """Has gin hold what the run had."""
  for module in ('t5.data.mixtures', 'synth_mtf.tasks'):
    importlib.import_module(module)
  if not run.gin:
    raise UserError(
      f'{run.name} does not say what its model is: it has no '
      'operative_config.gin'
    )
  gin_files.parse_foreign_text(run.gin, run.name)


def _path(folder: str, step: Step) -> Optional[str]:
  if step == INITIAL:
    return None
  if step == LAST:
    latest = folders.latest(folder)
    if latest is None:
      raise UserError(
        f'{folder} has no checkpoint yet; --step {INITIAL} shows weights as '
        'they are drawn before training'
      )
    return latest
  path = os.path.join(folder, f'model.ckpt-{step}')
  if not folders.exists(path):
    raise UserError(
      f'there is no checkpoint of step {step}.{folders.holding(folder)}'
    )
  return path
