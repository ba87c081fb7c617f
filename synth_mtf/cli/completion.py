"""Completion of commands, flags and names in a shell, by argcomplete."""

import argparse
import importlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from synth_mtf import paths
from synth_mtf.cli import arguments

_T5S_FLAGS = (
  '--data_dir=',
  '--device=',
  '--gin_param=',
  '--model_dir=',
  '--task_file=',
  '--tpu=',
  '--vocabulary=',
)


def complete(parser: argparse.ArgumentParser) -> None:
  """Prints completions and ends the process, which the shell has started."""
  for action in _actions(parser):
    if isinstance(action.type, arguments.GinNames):
      _complete_with(action, action.type.known())
    elif action.dest == 'gin_file':
      _complete_with(action, _gin_files())
    elif action.dest == 'flags':  # of T5's main
      files = [f'--gin_file={file}' for file in _gin_files()]
      _complete_with(action, [*files, *_T5S_FLAGS])
    elif action.dest in ('name', 'task', 'mixture'):
      _complete_with(action, _tasks())
  importlib.import_module('argcomplete').autocomplete(parser)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
  """Yields the actions of a parser and of the parsers of its subcommands."""
  for action in parser._actions:  # noqa: SLF001  argparse lists them nowhere
    yield action
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
      for subparser in action.choices.values():
        yield from _actions(subparser)


def _complete_with(action: Any, names: list[str]) -> None:
  action.completer = lambda **_: names


def _gin_files() -> list[str]:
  folder = pathlib.Path(paths.gin_path())
  return sorted(
    str(path.relative_to(folder)) for path in folder.glob('*/*.gin')
  )


def _tasks() -> list[str]:
  """Returns the names of our tasks, without importing them."""
  released = pathlib.Path(__file__).parents[1] / 'tasks' / 'released.json'
  return [f'synth_{name}' for name in json.loads(released.read_text())]
