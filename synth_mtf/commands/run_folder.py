"""What the folder of a run knows, so that nobody has to give it again.

That is the configuration (operative_config.gin) with its size, variant, task
and lengths, the checkpoints, and the settings of the command that trained it:
data, vocabulary and task files. None of it needs TensorFlow.
"""

import argparse
import functools
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from synth_mtf.checkpoints import folder as checkpoint_folders
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.results import records, runs
from synth_mtf.storage import filesystem, json_files

# The settings of data that a command names.
SETTINGS = (
  'data_dir',
  'text',
  'vocabulary',
  'task_file',
  'task_data_dirs',
  'cache_dir',
  'skip_bad_rows',
)
_NO_PATHS = ('skip_bad_rows', 'task_data_dirs')
_PRETRAINING = re.compile(r'.*span_corruption|.*lm1b')


class RunFolder:
  """A run that has been configured, with or without checkpoints.

  Attributes:
    name: the folder as it was given.
    folder: with the checkpoints; in the folder of a demo, it is inside.
    gin_file: the run's configuration.
  """

  def __init__(self, name: str, run: runs.Run) -> None:
    self.name = name
    self.folder = run.folder
    self.gin_file = run.gin_file
    self._run = run

  def setting(self, name: str) -> Any:
    """Returns a binding's value; None if it is unset or not a literal."""
    return self._run.setting(name)

  @property
  def task(self) -> str | None:
    """The task or the mixture of the run."""
    return self.setting('MIXTURE_NAME')

  @property
  def is_pretraining(self) -> bool:
    """Whether the task has no answers to score, but a log perplexity."""
    return bool(_PRETRAINING.fullmatch(self.task or ''))

  @property
  def init_checkpoint(self) -> str | None:
    """The checkpoint of another model from which the run started."""
    return self.setting('run.init_checkpoint')

  @property
  def first_step(self) -> int:
    """The step at which the run started."""
    start = self.init_checkpoint
    return checkpoint_folders.step_of(start) if start else 0

  @property
  def has_mesh(self) -> bool:
    """Whether a mesh is set; a run on all devices may leave none."""
    names = 'run.mesh_shape', 'tpu_mesh_shape.tpu_topology'
    return any(self.setting(name) is not None for name in names)

  @property
  def last_step(self) -> int | None:
    """The step of the latest checkpoint, if there is any."""
    latest = Folder(self.folder).latest()
    return checkpoint_folders.step_of(latest) if latest else None

  def checkpoint(self, step: int | None = None) -> str:
    """Returns the path of a checkpoint, by default of the latest.

    Raises:
      UserError: there is none.
    """
    names = Folder(self.folder).checkpoints
    if not names:
      raise UserError(
        f'{self.folder} has no checkpoint yet: train first, with `synth-mtf '
        'pretrain` or `synth-mtf finetune`'
      )
    chosen = self.last_step if step is None else step
    if f'model.ckpt-{chosen}' not in names:
      raise UserError(
        f'{self.folder} has no checkpoint of step {chosen}; there are '
        f'{checkpoint_folders.listed(names)}'
      )
    return os.path.join(self.folder, f'model.ckpt-{chosen}')

  @functools.cached_property
  def _commands(self) -> list[tuple[str, list[str], Mapping[str, str]]]:
    """The folder, words and environment of each command that trained here."""
    read = json_files.read(self.folder, records.ORIGINS, list) or []
    found: list[tuple[str, list[str], Mapping[str, str]]] = []
    for origin in read:
      try:
        words = shlex.split(origin['command'])
        found.append((origin['folder'], words, dict(origin['environment'])))
      except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
          f'{self.folder}/{records.ORIGINS} is damaged ({error!r}): remove it'
        ) from error
    return found

  @functools.cached_property
  def settings(self) -> dict[str, str]:
    """The settings of the last command that trained here; see `SETTINGS`."""
    if not self._commands:
      return {}
    place, words, environment = self._commands[-1]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in SETTINGS:
      default = environment.get(f'SYNTH_MTF_{name.upper()}')
      is_switch = name == 'skip_bad_rows'
      options: dict[str, Any] = (
        {'nargs': '?', 'const': '1'} if is_switch else {}
      )
      parser.add_argument(f'--{name}', default=default, **options)
    given, _ = parser.parse_known_args(words[2:])
    settings = {name: value for name, value in vars(given).items() if value}
    for name, value in settings.items():
      if name == 'task_file':  # one or more
        paths = [self._from_here(path, place) for path in value.split(',')]
        settings[name] = ','.join(paths)
      elif name not in _NO_PATHS:
        settings[name] = self._from_here(value, place)
    return settings

  def gin_name(self, kind: str) -> str | None:
    """Returns the name of the gin file of a kind that began the run.

    Args:
      kind: the folder of the gin files, 'sizes' or 'variants'.
    """
    for _, words, _ in self._commands:
      for word in words:
        match = re.fullmatch(rf'(?:--gin_file=)?{kind}/(\w+)\.gin', word)
        if match:
          return match[1]
    return None

  def _from_here(self, path: str, place: str) -> str:
    """Returns the path of a setting that was given in another folder.

    A vocabulary may have moved together with the run.
    """
    local = os.path.expanduser(path)
    candidates = [path]
    is_relative = path != 'bytes' and not os.path.isabs(local)
    if is_relative and os.path.realpath(place) != os.getcwd():
      candidates.insert(0, filesystem.join(place, path))
    candidates.append(os.path.join(self.folder, os.path.basename(path)))
    for candidate in candidates:
      if os.path.exists(os.path.expanduser(candidate)):
        return candidate
    return candidates[0]


def find(path: str) -> RunFolder | None:
  """Returns the run in a folder; None if the folder has no configuration.

  Raises:
    UserError: the path is a file, or holds several runs.
  """
  if filesystem.exists(path) and not filesystem.is_folder(path):
    raise UserError(f'{path} is a file; expected the folder of a run')
  if not filesystem.exists(path) or not _holds_run(path):
    return None
  run = runs.only(path)
  return RunFolder(path, run) if run.gin else None


def _holds_run(path: str) -> bool:
  """Whether a folder holds more than what precedes a first training."""
  try:
    runs.read(path)
  except UserError:
    return False
  return True


def get(path: str) -> tuple[RunFolder, int | None]:
  """Returns the run in a folder or of a checkpoint, and the checkpoint's step.

  Raises:
    UserError: there is no run.
  """
  folder, step = checkpoint_folders.split(path)
  if not filesystem.exists(folder):
    similar = filesystem.similar(folder)
    hint = f'; there is {", ".join(similar)}' if similar else ''
    raise UserError(
      f'{folder} does not exist{hint}; expected the folder of a run, which '
      '`synth-mtf pretrain` or `synth-mtf finetune` makes'
    )
  found = find(folder)
  if found is None:
    raise UserError(
      f'{folder} is not the folder of a run, which has operative_config.gin '
      f'and checkpoints: {filesystem.contents(folder)}'
    )
  return found, step
