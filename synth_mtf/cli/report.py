"""`synth-mtf report`: one page about any number of runs."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from synth_mtf.cli import attention
from synth_mtf.cli.table import LAYOUTS
from synth_mtf.errors import UserError
from synth_mtf.run import output, process

SUMMARY = 'one page about runs: tables, figures, attention, configuration'

PARSER_OPTIONS = {
  'epilog': 'Where no text is said, the models are shown four sentences.'
}

_OUT = 'report.html'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
    'runs',
    nargs='+',
    metavar='RUN',
    help='a model folder, of whatever command, or a folder of `synth-mtf demo`',
  )
  parser.add_argument(
    '--out',
    default=_OUT,
    metavar='FILE',
    help=f'the page; one that is there is replaced (default: {_OUT})',
  )
  parser.add_argument(
    '--layout',
    action='append',
    default=[],
    choices=LAYOUTS,
    help='a table of the paper, beside that of all that the runs have; may be '
    'given several times',
  )
  parser.add_argument(
    '--attention',
    action='append',
    default=[],
    metavar='FILE',
    help='an .npz of `synth-mtf attention`, instead of looking at the runs; '
    'may be given several times',
  )
  parser.add_argument(
    '--no_attention', action='store_true', help='leave the viewer out'
  )
  attention.add_text_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Writes the page."""
  attention.check_writable(args.out)
  process.load_quietly()
  with output.kept():
    import synth_mtf.tasks  # noqa: F401 (their metrics)
    from synth_mtf.report import report
    from synth_mtf.results import runs
  report.check_replaceable(args.out)
  found = runs.read_all(args.runs)
  looked, missing = _look(args, found)
  commands = _commands(args, looked)
  report.write(args.out, found, looked, args.layout, commands, missing)
  for line in missing:
    print(line, file=sys.stderr)
  print(f'{len(found)} run{"s" * (len(found) > 1)}: {args.out}')
  return 0


def _look(
  args: argparse.Namespace, found: Sequence[Any]
) -> tuple[Sequence[Any], Sequence[str]]:
  """Returns what models attend to, and of which this is missing."""
  from synth_mtf.attention import file as attention_file
  from synth_mtf.report import report

  if args.no_attention:
    return [], []
  if args.attention:
    return [attention_file.read(path) for path in args.attention], []
  given = attention.names_text(args)
  choose = attention.chooser(args) if given else report.own_examples
  looked, missing = report.look(report.models(found), choose, args.vocabulary)
  if given and not looked:
    raise UserError('\n'.join(missing))
  return looked, missing


def _commands(
  args: argparse.Namespace, looked: Sequence[Any]
) -> list[list[str]]:
  """Returns the commands that make the page, and each of its parts alone."""
  commands = [['report', *args.words[1:]], ['table', *args.runs]]
  commands += [['table', *args.runs, '--layout', name] for name in args.layout]
  if not looked:
    commands.append(['plot', *args.runs])
  elif args.attention:
    commands.append(['plot', *args.runs, *args.attention])
  else:
    given = attention.text_words(args)
    commands.append(['plot', *args.runs, *(given or _own_text(looked[0]))])
    commands += [
      [
        'attention',
        *(one.run, '--out', f'attention_{number}.npz'),
        *(given or _own_text(one)),
      ]
      for number, one in enumerate(looked, 1)
    ]
  return [['synth-mtf', *words] for words in commands]


def _own_text(shown: Any) -> list[str]:
  """Returns what a model was shown, as the flags that name it."""
  flags = {'encoder': '--text', 'decoder': '--target'}
  if len(shown.texts) == 1:
    flags = dict.fromkeys(flags, '--text')
  return [
    word
    for side, texts in shown.texts.items()
    for text in texts
    for word in (flags[side], str(text))
  ]
