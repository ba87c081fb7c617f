"""`synth-mtf plot`: draws figures of runs as PNG and SVG."""

import argparse
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from synth_mtf import atomic
from synth_mtf.cli import arguments, attention
from synth_mtf.errors import UserError, nearest

_OF_RUNS = ('curves', 'scores', 'alpha')
_OF_ATTENTION = ('histograms', 'heads', 'heat_maps')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  add = parser.add_argument
  arguments.add_runs(
    parser, 'model folders, demo folders, files of `synth-mtf attention`'
  )
  add('--out', metavar='FOLDER', default='figures', help='where to write')
  add(
    '--figures',
    type=lambda text: text.split(','),
    help=f'some of {",".join(_OF_RUNS + _OF_ATTENTION)}; default: those of '
    'which there are data (of attention: a text, or a file)',
  )
  add(
    '--steps',
    type=lambda text: text.split(','),
    default=['last'],
    help="whose attention is shown, as in 'initial,1000,last'",
  )
  add('--layers', type=numbers, help='as in 1,3,5 (default), the first is 1')
  add('--heads', type=numbers, help='of heat maps; default: the first four')
  add(
    '--values',
    choices=('weights', 'logits'),
    default='weights',
    help='what heat maps show',
  )
  attention.add_text_arguments(parser)


def numbers(text: str) -> list[int]:
  """Parses comma-separated numbers."""
  return [int(number) for number in text.split(',')]


def run(args: argparse.Namespace) -> None:
  """Draws the figures, and prints the paths of their files."""
  from synth_mtf.attention import file
  from synth_mtf.figures import style
  from synth_mtf.results import runs

  atomic.check_writable(args.out, '--out')
  files = [name for name in args.runs if name.endswith('.npz')]
  found = runs.read(*(name for name in args.runs if name not in files))
  attentions: list[Any] = list(map(file.read, files))
  missing: list[str] = []
  if attention.names_text(args):
    seen, missing = attention.look_at_each(args, found, args.steps)
    attentions += seen
  elif args.steps != ['last']:
    raise UserError('--steps needs a text: --text, --input FILE or --task NAME')
  sources: dict[str, Sequence[Any]] = {
    **dict.fromkeys(_OF_RUNS, found),
    **dict.fromkeys(_OF_ATTENTION, attentions),
  }
  wanted = args.figures or [name for name in sources if sources[name]]
  for name in wanted:
    if name not in sources:
      raise UserError(f'there is no figure {name!r}{nearest(name, sources)}')
    if not sources[name]:
      raise UserError(
        f'--figures {name}: {", ".join(_OF_RUNS)} need a run; '
        f'{", ".join(_OF_ATTENTION)} need a file of `synth-mtf attention`, or '
        'a run and a text (--text and --target, --input FILE or --task NAME)'
        + ''.join(f'\n{reason}' for reason in missing)
      )
  written = []
  for name in wanted:
    try:
      for path, figure in _draw(name, args, sources[name]):
        written += style.write(figure, os.path.join(args.out, path))
    except UserError as error:
      missing.append(f'No {name}: {error}')
  print(*written, *missing, sep='\n')
  if not written:
    raise UserError('nothing was drawn')


def _draw(
  name: str, args: argparse.Namespace, found: Sequence[Any]
) -> Iterator[tuple[str, Any]]:
  """Yields file names and their figures."""
  from synth_mtf.figures import of_attention, of_runs
  from synth_mtf.results import alphas

  of_all: dict[str, Callable[..., Any]] = {
    'curves': of_runs.curves,
    'scores': of_runs.scores,
    'histograms': functools.partial(
      of_attention.histograms, layers=args.layers
    ),
    'heads': of_attention.heads,
  }
  if name in of_all:
    yield name, of_all[name](found)
  elif name == 'alpha':
    frames = {run: alphas.frame(run) for run in found}
    mixed = [run for run in found if not frames[run].empty]
    if not mixed:
      raise UserError('no run mixes functions: none has an alpha')
    for number, run in enumerate(mixed, 1):
      file = name if len(mixed) == 1 else f'{name}_{number}'
      yield file, of_runs.alpha(run.label, frames[run], args.layers)
  else:
    for number, one in enumerate(found, 1):
      file = name if len(found) == 1 else f'{name}_{number}'
      for stack, text in itertools.product(one.stacks, range(one.examples)):
        if args.layers and min(args.layers) > one.stacks[stack].layers:
          continue  # the other stack has more
        of_text = f'_text_{text + 1}' if one.examples > 1 else ''
        figure = of_attention.heat_maps(
          one, stack, text, args.values, args.layers, args.heads
        )
        yield f'{file}_{stack}{of_text}', figure
