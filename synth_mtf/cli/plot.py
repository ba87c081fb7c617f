"""`synth-mtf plot`: draws figures of runs as PNG and SVG."""

import argparse
import itertools
import os
from collections.abc import Iterator
from typing import Any

from synth_mtf import atomic
from synth_mtf.cli import arguments
from synth_mtf.cli import attention as attention_command
from synth_mtf.errors import UserError
from synth_mtf.run import process

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
    help=f'some of {",".join(_OF_RUNS + _OF_ATTENTION)}; default: what the '
    'runs have, and with a text what it is looked at with',
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
    help='that heat maps show',
  )
  attention_command.add_text_arguments(parser)


def numbers(text: str) -> list[int]:
  """Parses comma-separated numbers."""
  return [int(number) for number in text.split(',')]


def run(args: argparse.Namespace) -> int:
  """Draws the figures, and prints the paths of their files."""
  files = [name for name in args.runs if name.endswith('.npz')]
  folders = [name for name in args.runs if name not in files]
  has_text = attention_command.names_text(args)
  of_runs = _OF_RUNS if folders else ()
  of_attention = _OF_ATTENTION if files or has_text else ()
  possible = (*of_runs, *of_attention)
  wanted = args.figures or possible
  for name in wanted:
    if name not in possible:
      raise UserError(
        f'--figures {name}: {", ".join(_OF_RUNS)} need a run; '
        f'{", ".join(_OF_ATTENTION)} need a file of `synth-mtf attention`, or '
        'a run and a text (--text and --target, --input FILE or --task NAME)'
      )
  process.load_quietly()
  from synth_mtf.attention import file as attention_file
  from synth_mtf.results import runs, style

  atomic.check_writable(args.out, '--out')
  found = runs.read(*folders)
  attentions: list[Any] = []
  if set(wanted) & set(_OF_ATTENTION):
    attentions += map(attention_file.read, files)
    for one in found if has_text else ():
      try:
        attentions += attention_command.look(args, one.name, args.steps)
      except UserError as error:
        if args.figures:
          raise
        print(f'no attention of {one.name}: {error}')
  if not attentions:
    wanted = [name for name in wanted if name in _OF_RUNS]
  written = 0
  for name in wanted:
    try:
      for file, figure in _draw(name, args, found, attentions):
        for path in style.write(figure, os.path.join(args.out, file)):
          written += 1
          print(path)
    except UserError as error:
      if args.figures:
        raise
      print(f'no {name}: {error}')
  if not written:
    raise UserError('nothing was drawn')
  return 0


def _draw(
  name: str, args: argparse.Namespace, runs: Any, attentions: Any
) -> Iterator[tuple[str, Any]]:
  """Yields file names and their figures."""
  from synth_mtf.attention import figures as attention_figures
  from synth_mtf.results import alphas, figures

  if name == 'curves':
    yield name, figures.curves(runs)
  elif name == 'scores':
    yield name, figures.scores(runs)
  elif name == 'alpha':
    found = [(run, alphas.frame(run)) for run in runs]
    mixed = [(run, frame) for run, frame in found if not frame.empty]
    if not mixed:
      raise UserError('no run mixes functions: none has an alpha')
    for number, (run, frame) in enumerate(mixed, 1):
      file = name if len(mixed) == 1 else f'{name}_{number}'
      yield file, figures.alpha(run.label, frame, args.layers)
  elif name == 'histograms':
    yield name, attention_figures.histograms(attentions, args.layers)
  elif name == 'heads':
    yield name, attention_figures.heads(attentions)
  else:
    for number, one in enumerate(attentions, 1):
      file = name if len(attentions) == 1 else f'{name}_{number}'
      for stack, text in itertools.product(one.stacks, range(one.examples)):
        of_text = f'_text_{text + 1}' if one.examples > 1 else ''
        figure = attention_figures.heat_maps(
          one, stack, text, args.values, args.layers, args.heads
        )
        yield f'{file}_{stack}{of_text}', figure
