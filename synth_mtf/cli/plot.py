"""`synth-mtf plot`: figures of runs, as PNG and SVG."""

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import Any

from synth_mtf.cli import attention as attention_command
from synth_mtf.errors import UserError
from synth_mtf.run import process

SUMMARY = 'figures of runs: curves, scores, alpha, attention (PNG and SVG)'

_OF_RUNS = ('curves', 'scores', 'alpha')
_OF_ATTENTION = ('histograms', 'heads', 'heat_maps')

Words = Sequence[str]
# Name and figure; matplotlib is imported only where something is drawn.
Drawn = Iterator[tuple[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    'runs',
    nargs='+',
    metavar='RUN',
    help='model folders, demo folders, files of `synth-mtf attention`',
  )
  parser.add_argument(
    '--out', metavar='FOLDER', default='figures', help='where to write'
  )
  parser.add_argument(
    '--figures',
    type=_figures,
    help=f'some of {",".join((*_OF_RUNS, *_OF_ATTENTION))}; default: what the '
    'runs have, and with a text what it is looked at with',
  )
  parser.add_argument(
    '--steps',
    type=lambda text: [attention_command.step(one) for one in text.split(',')],
    default=['last'],
    help="whose attention is shown, as in 'initial,1000,last'",
  )
  parser.add_argument(
    '--layers', type=_numbers, help='as in 1,3,5 (default), the first is 1'
  )
  parser.add_argument(
    '--heads', type=_numbers, help='of heat maps; default: the first four'
  )
  parser.add_argument(
    '--values',
    choices=('weights', 'logits'),
    default='weights',
    help='that heat maps show',
  )
  attention_command.add_text_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Draws what can be drawn, and prints what was written."""
  files = [name for name in args.runs if name.endswith('.npz')]
  folders = [name for name in args.runs if name not in files]
  has_text = attention_command.names_text(args)
  wanted = args.figures or (
    *(_OF_RUNS if folders else ()),
    *(_OF_ATTENTION if files or has_text else ()),
  )
  _check(wanted, files, folders, has_text)
  attention_command.check_writable(os.path.join(args.out, 'x'), make=True)
  process.load_quietly()
  from synth_mtf.results.figures import style

  written = 0
  for name in wanted:
    try:
      for file, figure in _DRAWN[name](args, files, folders):
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


def _check(
  wanted: Sequence[str],
  files: Sequence[str],
  folders: Sequence[str],
  has_text: bool,
) -> None:
  for name in wanted:
    if name in _OF_RUNS and not folders:
      raise UserError(f'--figures {name} is drawn of runs; give a folder')
    if name in _OF_ATTENTION and not files and not has_text:
      raise UserError(
        f'--figures {name} shows attention: say in which text (--text and '
        '--target, --input FILE or --task NAME)'
      )


def _curves(args: argparse.Namespace, files: Words, folders: Words) -> Drawn:
  from synth_mtf.results import runs
  from synth_mtf.results.figures import curves

  yield 'curves', curves.draw(runs.read_all(folders))


def _scores(args: argparse.Namespace, files: Words, folders: Words) -> Drawn:
  from synth_mtf.results import runs
  from synth_mtf.results.figures import scores

  yield 'scores', scores.draw(runs.read_all(folders))


def _alpha(args: argparse.Namespace, files: Words, folders: Words) -> Drawn:
  from synth_mtf.results import alphas, runs
  from synth_mtf.results.figures import alpha

  found = [(one, alphas.paths(one)) for one in runs.read_all(folders)]
  mixed = [(one, paths) for one, paths in found if paths]
  if not mixed:
    raise UserError('no run mixes functions: none has an alpha')
  for number, (one, paths) in enumerate(mixed, 1):
    name = 'alpha' if len(mixed) == 1 else f'alpha_{number}'
    yield name, alpha.draw(one.label, paths, args.layers)


def _histograms(
  args: argparse.Namespace, files: Words, folders: Words
) -> Drawn:
  from synth_mtf.attention import figures

  found = _attentions(args, files, folders)
  yield 'histograms', figures.histograms(found, args.layers)


def _heads(args: argparse.Namespace, files: Words, folders: Words) -> Drawn:
  from synth_mtf.attention import figures

  yield 'heads', figures.heads(_attentions(args, files, folders))


def _heat_maps(args: argparse.Namespace, files: Words, folders: Words) -> Drawn:
  from synth_mtf.attention import figures

  found = _attentions(args, files, folders)
  for number, one in enumerate(found, 1):
    of_several = f'_{number}' if len(found) > 1 else ''
    for stack in one.stacks:
      for example in range(one.examples):
        of_examples = f'_text_{example + 1}' if one.examples > 1 else ''
        yield (
          f'heat_maps{of_several}_{stack}{of_examples}',
          figures.heat_maps(
            one, stack, example, args.values, args.layers, args.heads
          ),
        )


def _attentions(
  args: argparse.Namespace, files: Words, folders: Words
) -> list[Any]:
  """What is in the files, and what the runs look at; computed once."""
  from synth_mtf.attention import file as attention_file
  from synth_mtf.results import runs

  if not hasattr(args, 'attentions'):
    args.attentions = [attention_file.read(path) for path in files]
    named = attention_command.names_text(args)
    for one in runs.read_all(folders) if folders and named else ():
      args.attentions += attention_command.look(args, one.name, args.steps)
  return args.attentions


_DRAWN = {
  'curves': _curves,
  'scores': _scores,
  'alpha': _alpha,
  'histograms': _histograms,
  'heads': _heads,
  'heat_maps': _heat_maps,
}


def _figures(text: str) -> list[str]:
  found = text.split(',')
  wrong = [name for name in found if name not in _DRAWN]
  if wrong:
    raise argparse.ArgumentTypeError(
      f'{wrong[0]!r}: expected some of {", ".join(_DRAWN)}'
    )
  return found


def _numbers(text: str) -> list[int]:
  try:
    return [int(one) for one in text.split(',')]
  except ValueError:
    raise argparse.ArgumentTypeError(
      f'{text!r}: expected numbers, as in 1,3,5'
    ) from None
