"""`synth-mtf plot`: draws figures of runs as PNG and SVG."""

import argparse
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synth_mtf.cli import arguments, attention, loading
from synth_mtf.errors import UserError, nearest
from synth_mtf.run import process
from synth_mtf.storage import atomic

_OF_RUNS = ('curves', 'scores', 'alpha')
_OF_ATTENTION = ('histograms', 'heads', 'heat_maps')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  add = parser.add_argument
  arguments.add_runs(
    parser,
    'model folders, demo folders, files of `synth-mtf attention`',
    arguments.existing,
  )
  add(
    '--out',
    type=arguments.new_path,
    metavar='FOLDER',
    default='figures',
    help='where to write',
  )
  add(
    '--figures',
    type=figures,
    help=f'some of {",".join(_OF_RUNS + _OF_ATTENTION)}; default: all for '
    'which there is data (for attention: a text, or a file)',
  )
  add(
    '--tasks',
    type=arguments.TaskNames(),
    default=[],
    help='of curves, such as glue_cola_v002,squad_v010_allanswers (default: '
    'all; if these are more than twelve panels, averages of GLUE, SuperGLUE '
    'and log perplexity in place of their tasks)',
  )
  add(
    '--steps',
    type=lambda text: text.split(','),
    default=['last'],
    help="the steps whose attention is shown, such as 'initial,1000,last'",
  )
  add('--layers', type=numbers, help='default: 1,3,5; the first is 1')
  add('--heads', type=numbers, help='of heat maps; default: the first four')
  add(
    '--values',
    choices=('weights', 'logits'),
    default='weights',
    help='what heat maps show',
  )
  attention.add_text_arguments(parser)


def figures(text: str) -> list[str]:
  """Parses comma-separated names of figures."""
  known = (*_OF_RUNS, *_OF_ATTENTION)
  names = text.split(',')
  for name in names:
    if name not in known:
      raise UserError(f'there is no figure {name!r}{nearest(name, known)}')
  return names


def numbers(text: str) -> list[int]:
  """Parses comma-separated numbers."""
  return [int(number) for number in text.split(',')]


def run(args: argparse.Namespace) -> None:
  """Draws the figures, and prints the paths of their files."""
  from synth_mtf.attention import file
  from synth_mtf.figures import style

  attention.check_text(args)
  has_text = attention.names_text(args)
  if args.steps != ['last'] and not has_text:
    raise UserError('--steps needs a text: --text, --input FILE or --task NAME')
  loading.for_paths(args.out)
  atomic.check_writable(args.out, '--out')
  files = [name for name in args.runs if name.endswith('.npz')]
  read = loading.runs([name for name in args.runs if name not in files])
  loading.for_paths(*files)
  attentions: list[Any] = [file.read(name) for name in files]
  if not has_text:
    _check(args.figures, _sources(read, attentions))
  loading.describe(read, args.module_import)
  missing: list[str] = []
  if has_text:
    process.load(args.module_import)
    computed, missing = attention.look_at_each(args, read, args.steps)
    attentions += computed
  sources = _sources(read, attentions)
  _check(args.figures, sources, missing)
  names = args.figures or [name for name in sources if sources[name]]
  written = []
  for name in names:
    try:
      for path, figure in _draw(name, args, sources[name], missing):
        written += style.write(figure, os.path.join(args.out, path))
    except UserError as error:
      missing.append(f'No {name}: {error}')
  print(*written, *missing, sep='\n')
  if not written:
    raise UserError('nothing was drawn')


def _sources(
  runs: Sequence[Any], attentions: Sequence[Any]
) -> dict[str, Sequence[Any]]:
  """Returns what each figure is drawn from."""
  return {
    **dict.fromkeys(_OF_RUNS, runs),
    **dict.fromkeys(_OF_ATTENTION, attentions),
  }


def _check(
  names: Sequence[str] | None,
  sources: Mapping[str, Sequence[Any]],
  missing: Sequence[str] = (),
) -> None:
  """Raises a UserError for a figure that is asked for and has no data.

  `missing` says which attention is missing, and why.
  """
  for name in names or ():
    if not sources[name]:
      what = (
        f'--figures {name}: {", ".join(_OF_RUNS)} need a run; '
        f'{", ".join(_OF_ATTENTION)} need a file of `synth-mtf attention`, or '
        'a run and a text (--text and --target, --input FILE or --task NAME)'
      )
      raise UserError('\n'.join([what, *missing]))


def _draw(
  name: str,
  args: argparse.Namespace,
  source: Sequence[Any],
  missing: list[str],
) -> Iterator[tuple[str, Any]]:
  """Yields file names and their figures.

  Adds to `missing` which runs they lack, and why.
  """
  from synth_mtf.figures import of_attention, of_runs

  if name == 'curves':
    for number, figure in enumerate(of_runs.curves(source, args.tasks), 1):
      yield name if number == 1 else f'{name}_{number}', figure
    missing += of_runs.without_curves(source)
  elif name == 'scores':
    yield name, of_runs.scores(source)
    missing += of_runs.without_scores(source)
  elif name == 'alpha':
    yield from _draw_alpha(args, source, missing)
  elif name == 'histograms':
    yield name, of_attention.histograms(source, args.layers)
  elif name == 'heads':
    yield name, of_attention.heads(source)
  else:
    yield from _draw_heat_maps(args, source)


def _draw_alpha(
  args: argparse.Namespace, runs: Sequence[Any], missing: list[str]
) -> Iterator[tuple[str, Any]]:
  """Yields a figure for each run that mixes functions."""
  from synth_mtf.figures import of_runs
  from synth_mtf.results import alphas
  from synth_mtf.results.runs import common_folder

  mixed = []
  for run in runs:
    try:
      frame = alphas.frame(run)
    except UserError as error:
      missing.append(f'No alpha of {run.label}, {run.name}: {error}')
      continue
    if not frame.empty:
      mixed.append((run, frame))
  if not mixed:
    raise UserError('no run mixes functions: none has an alpha')
  labels = [run.label for run, _ in mixed]
  folder = common_folder([run.name for run, _ in mixed])
  for number, (run, frame) in enumerate(mixed, 1):
    file = 'alpha' if len(mixed) == 1 else f'alpha_{number}'
    name = run.label
    if labels.count(name) > 1:
      name += f', {run.name.removeprefix(folder)}'
    yield file, of_runs.alpha(name, frame, args.layers)


def _draw_heat_maps(
  args: argparse.Namespace, attentions: Sequence[Any]
) -> Iterator[tuple[str, Any]]:
  """Yields a figure for each stack and text of each model."""
  from synth_mtf.figures import of_attention

  names = of_attention.names(attentions)
  for number, (of_model, name) in enumerate(
    zip(attentions, names, strict=True), 1
  ):
    file = 'heat_maps' if len(attentions) == 1 else f'heat_maps_{number}'
    for stack, text in itertools.product(
      of_model.stacks, range(of_model.examples)
    ):
      if args.layers and min(args.layers) > of_model.stacks[stack].layers:
        continue  # another stack has more
      suffix = f'_text_{text + 1}' if of_model.examples > 1 else ''
      yield (
        f'{file}_{stack}{suffix}',
        of_attention.heat_maps(
          of_model, stack, text, args.values, args.layers, args.heads, name
        ),
      )
