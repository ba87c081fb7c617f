"""Makes the page of `synth-mtf report` out of runs."""

import shlex
from collections.abc import Callable, Sequence
from typing import Optional

import tensorflow.compat.v1 as tf

from synth_mtf import __version__, atomic
from synth_mtf.attention import examples as attention_examples
from synth_mtf.attention import runs as attention
from synth_mtf.attention.file import Attention
from synth_mtf.attention.weights import Examples, sides
from synth_mtf.errors import UserError
from synth_mtf.report import contents, drawings, page, weights
from synth_mtf.results.runs import Run
from synth_mtf.results.tables import checkpoints, grid, layouts, table

# A page is to have 10 MB at most, nearly all of them weights.
_MOST_BYTES = 8_000_000
# What models are shown where nobody says what: some of T5's tasks, short enough
# for the demo, even in bytes.
EXAMPLES = {
  'inputs': (
    'cola sentence: The book that was read by the teacher are old.',
    'rte sentence1: Anna painted the red boat. sentence2: Anna painted a boat.',
    'sst2 sentence: A warm, funny and honest film.',
    'translate English to German: The house is small.',
  ),
  'targets': (
    'unacceptable',
    'entailment',
    'positive',
    'Das Haus ist klein.',
  ),
}


def check_replaceable(path: str) -> None:
  """Refuses to put a page in the place of something else.

  Raises:
    UserError: a file is there that is not a page of `synth-mtf report`.
  """
  if not tf.io.gfile.exists(path):
    return
  with tf.io.gfile.GFile(path, 'rb') as stream:
    beginning = stream.read(1000)
  if page.GENERATOR.encode() not in beginning:
    raise UserError(
      f'--out {path} is there, and not a page of `{page.GENERATOR}`; nothing '
      'was changed. Give another name, or move it away.'
    )


def models(runs: Sequence[Run]) -> list[Run]:
  """Returns a run of each model: of those that differ by their seeds, one."""
  by_name = {run.name: run for run in runs}
  made = table.make(runs, layouts.overview(runs), checkpoints.choice('last'))
  return [by_name[model.runs[0]] for model in made.models]


def look(
  runs: Sequence[Run],
  choose: Callable[[], Examples],
  vocabulary: Optional[str] = None,
) -> tuple[list[Attention], list[str]]:
  """Looks at the last checkpoint of each run.

  Args:
    runs: of which models.
    choose: makes the examples that they are shown, once gin holds the run.
    vocabulary: as in `--vocabulary`; None for that of each run.

  Returns:
    What they attend to, and which of them is missing, and why.
  """
  found, missing = [], []
  for run in runs:
    try:
      found += attention.look(run.name, [attention.LAST], choose, vocabulary)
    except UserError as error:
      missing.append(f'No attention of {run.label}, {run.name}: {error}')
  return found, missing


def own_examples() -> Examples:
  """Returns `EXAMPLES` for the model that gin holds."""
  wanted = sides()
  texts = {
    feature: EXAMPLES[feature]
    for side, feature in (('encoder', 'inputs'), ('decoder', 'targets'))
    if side in wanted
  }
  return attention_examples.of_texts(texts)


def write(
  path: str,
  runs: Sequence[Run],
  looked: Sequence[Attention],
  layouts_: Sequence[str],
  commands: Sequence[Sequence[str]],
  missing: Sequence[str],
) -> None:
  """Writes a page, whole or not at all.

  Args:
    path: local or in a bucket; a page that is there is replaced.
    runs: at least one.
    looked: what some of them attend to.
    layouts_: of tables beside the one of all that there is.
    commands: that make the page and its parts again.
    missing: what is not on it, and why.

  Raises:
    UserError: a run cannot be read, or has nothing of a layout; or the page
      cannot be written.
  """
  shapes = [
    layouts.overview(runs),
    *(layouts.LAYOUTS[name](runs) for name in layouts_),
  ]
  last = checkpoints.choice('last')
  figures, undrawn = drawings.draw(runs, looked)
  text = page.html(
    page.Page(
      title=_title(runs),
      subtitle=f'Made by synth_mtf {__version__}.',
      summary=contents.summary(runs),
      tables=[grid.grid(table.make(runs, shape, last)) for shape in shapes],
      figures=figures,
      weights=weights.pack(looked, _MOST_BYTES) if looked else None,
      notes=[*missing, *undrawn],
      configurations=contents.configurations(runs),
      differences=contents.differences(runs),
      commands=[shlex.join(command) for command in commands],
    )
  )
  try:
    atomic.write(path, text)
  except (OSError, tf.errors.OpError) as error:
    raise UserError(f'--out {path} cannot be written: {error}') from error


def _title(runs: Sequence[Run]) -> str:
  labels = list(dict.fromkeys(run.label for run in runs))
  return ', '.join(labels) if len(labels) < 5 else f'{len(labels)} models'
