"""`synth-mtf finetune`: trains a trained model further, on a task."""

import argparse
import os
from typing import TYPE_CHECKING

from synth_mtf.cli import arguments, data, stages
from synth_mtf.commands.command import Command
from synth_mtf.errors import UserError

if TYPE_CHECKING:
  from synth_mtf.commands.run_folder import RunFolder
  from synth_mtf.commands.stages import Given


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  add = parser.add_argument
  add(
    'folder',
    type=arguments.new_path,
    metavar='RUN',
    help='the folder of the new run; if there is one in it, it is continued',
  )
  add(
    '--from',
    dest='source',
    metavar='RUN',
    help='the folder of the model to start from, or a checkpoint in it',
  )
  add(
    '--task',
    type=arguments.TaskName(),
    help='a task or a mixture (default: that of --task_file)',
  )
  add(
    '--steps',
    type=arguments.at_least(1),
    help='of finetuning, those before a continuation included (default: '
    f'{stages.STEPS})',
  )
  stages.add_training(parser)
  data.add_files(parser)
  stages.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Finetunes."""
  from synth_mtf.commands import run_folder, stages as commands

  stages.look(args.folder, args.source or '')
  given = stages.given(args)
  existing = run_folder.find(args.folder)
  if existing is None:
    return stages.run(_new(args, given), args)
  _check_same(existing, args)
  return stages.run(commands.resume(existing, args.steps, given), args)


def _new(args: argparse.Namespace, given: 'Given') -> list[Command]:
  """Returns the command that finetunes into a new folder."""
  from synth_mtf.commands import run_folder, stages as commands

  if not args.source:
    raise UserError(
      f'{args.folder} holds no run yet: give the model to start from, '
      '--from=RUN, which `synth-mtf pretrain` made'
    )
  source, step = run_folder.get(args.source)
  task = _task(args)
  data.check_names([task], args.module_import)
  steps = args.steps or stages.STEPS
  return commands.finetune(args.folder, source, step, task, steps, given)


def _task(args: argparse.Namespace) -> str:
  """Returns the task to finetune on."""
  if args.task:
    return args.task
  files = args.task_file or os.environ.get('SYNTH_MTF_TASK_FILE')
  if not files:
    raise UserError(
      'give the task: --task=NAME (`synth-mtf tasks` lists all names), or '
      '--task_file=YAML for your own (docs/data.md shows such a file)'
    )
  if ',' in files:
    raise UserError(f'--task_file={files} defines several tasks: give --task')
  return arguments.name_in_task_file(os.path.expanduser(files))


def _check_same(existing: 'RunFolder', args: argparse.Namespace) -> None:
  """Refuses a folder with another run than the one that is asked for."""
  from synth_mtf.commands import run_folder

  start = existing.init_checkpoint
  if not start:
    raise UserError(
      f'{args.folder} holds a model that was not finetuned: give another '
      f'folder for the new run, and --from={args.folder}'
    )
  if args.source:
    source, step = run_folder.get(args.source)
    asked = source.folder if step is None else source.checkpoint(step)
    known = start if step is not None else os.path.dirname(start)
    if os.path.realpath(asked) != os.path.realpath(known):
      raise UserError(
        f'{args.folder} holds a model that was finetuned from {start}, not '
        f'from {args.source}: leave --from out to continue it, or give another '
        'folder'
      )
  task = args.task or (_task(args) if args.task_file else existing.task)
  if task != existing.task:
    raise UserError(
      f'{args.folder} is finetuned on {existing.task}, not on {task}: leave '
      'the task out to continue, or give another folder'
    )
