"""Completion of commands, flags and values in a shell, by argcomplete."""

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

from synth_mtf.cli import arguments


def complete(parser: argparse.ArgumentParser) -> None:
  """Prints completions and ends the process, which the shell has started."""
  for action in _actions(parser):
    if isinstance(action.type, arguments.Completed):
      action.completer = action.type.completions
  importlib.import_module('argcomplete').autocomplete(parser)


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
  """Yields the actions of a parser and of the parsers of its subcommands."""
  for action in parser._actions:  # noqa: SLF001  argparse lists them nowhere
    yield action
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
      for subparser in action.choices.values():
        yield from _actions(subparser)
