"""`synth-mtf evaluate`: scores a run on its task, or on another."""

import argparse

from synth_mtf.cli import arguments, data, early, stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  add = parser.add_argument
  add(
    'folder', metavar='RUN', help='the folder of a run, or a checkpoint in it'
  )
  add(
    '--task',
    type=arguments.TaskName(),
    help="a task or a mixture (default: the run's)",
  )
  add('--split', default='validation', help='of the task')
  add(
    '--all',
    action='store_true',
    help='evaluates every checkpoint, not only the last',
  )
  add(
    '--perplexity',
    action='store_true',
    help="measures the log perplexity, not the task's metrics; of a pretrained "
    'model, that is the default',
  )
  data.add_files(parser)
  stages.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Evaluates."""
  from synth_mtf.commands import run_folder, stages as commands

  stages.look(args.folder)
  given = stages.given(args)
  trained, step = run_folder.get(args.folder)
  task_file = given.settings.get('task_file') or trained.settings.get(
    'task_file'
  )
  if task_file:
    early.check_split(task_file, args.task or trained.task, args.split)
  elif args.task:
    data.check_names([args.task], args.module_import)
  return stages.run(
    commands.evaluate(
      trained,
      'all' if args.all else step,
      args.task,
      args.split,
      args.perplexity,
      given,
    ),
    args,
  )
