"""Chooses which checkpoints to remove, provided that those kept are complete.

Whoever keeps some checkpoints of a folder wants to read them later. Before any
other is removed, every value of these is therefore read.
"""

import os
from collections.abc import Mapping

from synth_mtf.checkpoints.folder import Folder, listed, step_of
from synth_mtf.errors import UserError


class Choice:
  """What is kept of a folder, and what is not.

  Attributes:
    last: the name of the checkpoint that the folder's pointer names.
    kept: the names of checkpoints, ordered by step, each with its reasons.
    removed: all earlier ones, with what interrupted saves and removals left.
    left_alone: later ones that are not checkpoints, for want of an `.index`.
      Their save was interrupted, or they are still being copied.
  """

  def __init__(self, folder: Folder, kept: Mapping[str, list[str]]) -> None:
    """Chooses; nothing is removed.

    Args:
      folder: has at least one checkpoint.
      kept: names of checkpoints in the folder, each with its reasons. The one
        that the pointer names is kept as well.

    Raises:
      UserError: a checkpoint that is kept is damaged, or one that would be
        removed is later than the last one.
    """
    self._folder = folder
    self._latest = folder.latest()
    self.last = os.path.basename(self._latest or '')
    reasons = {self.last: ['last']}
    for name, more in kept.items():
      reasons.setdefault(name, []).extend(more)
    self.kept = {name: reasons[name] for name in sorted(reasons, key=step_of)}
    self.removed: list[str] = []
    self.left_alone: list[str] = []
    names = {*folder.checkpoints, *folder.unfinished}.difference(reasons)
    for name in sorted(names, key=step_of):
      if step_of(name) > step_of(self.last):
        self.left_alone.append(name)
      else:
        self.removed.append(name)
    self._check_none_is_later()
    self._check_kept()

  def check_unchanged(self) -> None:
    """Refuses to go on if the folder has changed since it was listed.

    A bucket has no lock that would keep a run from saving meanwhile.
    """
    now = Folder(self._folder.path)
    then = (self._folder.checkpoints, self._latest)
    if (now.checkpoints, now.latest()) != then:
      raise UserError(
        f'the checkpoints in {now.path} have changed meanwhile: a run may be '
        'training there. Nothing was removed. Wait for it, and try again.'
      )

  def _check_none_is_later(self) -> None:
    folder = self._folder
    later = [name for name in self.left_alone if name in folder.checkpoints]
    if not later:
      return
    damaged = folder.damaged(later)
    complete = [name for name in later if name not in damaged]
    faults = f'{folder.path} holds later checkpoints: {listed(later)}'
    if damaged:
      faults += f' (damaged: {listed(damaged)})'
    advice = f'{folder.how_to_resume(complete)} ' if complete else ''
    raise UserError(
      f'the file checkpoint names {self.last} as the last one, but {faults}. '
      f'Nothing was removed. {advice}To go on from {self.last}, first move '
      'the files of the later ones elsewhere, or remove them.'
    )

  def _check_kept(self) -> None:
    folder = self._folder
    damaged = folder.damaged([*self.kept])
    if not damaged:
      return
    faults = [f'{name} ({", ".join(self.kept[name])})' for name in damaged]
    advice = 'Copy what is damaged again, if there is another copy.'
    if self.last in damaged:
      others = [name for name in folder.checkpoints if name not in damaged]
      broken = folder.damaged(others)
      complete = [name for name in others if name not in broken]
      if complete:
        advice += (
          f' Otherwise, move the files of {self.last} elsewhere. '
          + folder.how_to_resume(complete)
        )
      else:
        advice += ' No other checkpoint here is complete.'
    else:
      advice += ' Otherwise, leave out its --best.'
    raise UserError(
      f'{folder.path} would keep what is damaged (truncated or altered): '
      f'{", ".join(faults)}. Nothing was removed. {advice}'
    )
