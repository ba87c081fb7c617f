"""Runs the stages of a demo, two at a time, and shows what they say."""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Sequence
from multiprocessing import connection

from synth_mtf.demo import processes
from synth_mtf.demo.pace import Pace
from synth_mtf.demo.stages import Stage
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.run import output

_AT_ONCE = 2  # most of what a small stage does keeps one core busy
_ERROR = 'synth-mtf: error: '


@dataclasses.dataclass
class _Followed:
  """A running stage, and what it has said.

  Attributes:
    stage: the stage.
    name: its run and its own name.
    title: its name after its number.
    process: runs it.
    progress: what it does; '' before it says so.
    last: its last line.
    error: the lines of its error.
  """

  stage: Stage
  name: str
  title: str
  process: processes.Running
  progress: str = ''
  last: str = ''
  error: str = ''


class Runner:
  """Runs stages."""

  def __init__(
    self,
    stages: Sequence[Stage],
    out: pathlib.Path,
    console: output.Console,
    command: processes.Command,
  ) -> None:
    """Takes what `run` runs.

    Args:
      stages: in the order in which they start.
      out: the folder of the demo.
      console: shows what they say.
      command: runs the command line of a stage.
    """
    self._count = len(stages)
    self._todo = collections.deque(enumerate(stages, 1))
    self._out = out
    self._console = console
    self._command = command
    self._pace = Pace(stages)
    self._followed: list[_Followed] = []

  def run(self) -> None:
    """Runs the stages that are not done.

    Raises:
      UserError: a stage refused what it was given.
      RunFailed: a stage failed. Another that was running has saved a
        checkpoint.
    """
    with processes.ended() as running:
      while True:
        while self._todo and self._may_start(self._todo[0][1]):
          self._start(*self._todo.popleft(), running)
        if not self._followed:
          return
        readers = {
          followed.process.reader: followed for followed in self._followed
        }
        for reader in connection.wait([*readers]):
          self._hear(readers[reader])

  def _may_start(self, stage: Stage) -> bool:
    """Whether the next stage may start while others run."""
    if not self._followed or stage.done.exists():
      return True
    if len(self._followed) == _AT_ONCE:
      return False
    if stage.is_timed or any(
      followed.stage.is_timed for followed in self._followed
    ):
      return False
    return stage.after is None or stage.after.exists()

  def _start(
    self, number: int, stage: Stage, running: list[processes.Running]
  ) -> None:
    name = f'{stage.model_dir.parent.relative_to(self._out)}: {stage.name}'
    title = f'[{number}/{self._count}] {name}'
    if stage.done.exists():
      self._console.line(f'{title}  done before')
      return
    self._pace.begin(stage)
    self._console.start('', f'{title}  start ...')
    process = processes.Running(
      self._command, stage.words, {output.INTERVAL: '1'}, running
    )
    running.append(process)
    self._followed.append(_Followed(stage, name, title, process))

  def _hear(self, followed: _Followed) -> None:
    """Shows what a stage says, or that it has ended."""
    lines = followed.process.lines()
    if lines is None:
      self._followed.remove(followed)
      self._end(followed)
      return
    for line in lines:
      self._hear_line(followed, line.rstrip())

  def _hear_line(self, followed: _Followed, line: str) -> None:
    run = followed.name.partition(':')[0]
    followed.last = line
    score = re.match(r'\d+  (\S+  \S+ .*)', line)
    if followed.error or line.startswith((_ERROR, 'Traceback')):
      followed.error += line.removeprefix(_ERROR) + '\n'
    elif line.startswith('warning: '):
      self._console.line(f'{followed.title}  {line}')
    elif score:
      self._console.line(f'  {run}: {score[1]}')
    elif line.startswith('Starts after step '):
      self._console.line(f'  {run}: {line}')
    elif not line.startswith(('Log: ', 'Wrote ', 'Done in ')):
      self._pace.hear(followed.stage, line)
      followed.progress = _shortened(line)
      self._show(takes_long=line.endswith('...'))

  def _show(self, takes_long: bool) -> None:
    """Shows what the stages do, and how long all will take.

    Args:
      takes_long: whether one of them begins what may take minutes.
    """
    parts = [self._pace.left()]
    for followed in self._followed:
      parts.append(
        followed.progress and f'{followed.name}  {followed.progress}'
      )
    text = ' | '.join(filter(None, parts))
    if takes_long:
      self._console.start('', text)
    else:
      self._console.update(text)

  def _end(self, followed: _Followed) -> None:
    """Marks a stage as done, or raises its error."""
    status = followed.process.status()
    if not status:
      self._pace.end(followed.stage)
      self._console.line(
        f'{followed.title}  {followed.last}'
      )  # Done in 42 s: ...
      return
    self._console.line(f'{followed.title}  failed')
    reason = followed.error.strip()
    if status == 2:
      raise UserError(reason)
    log = followed.stage.model_dir / 'log'
    raise RunFailed(
      f'{followed.title}: {reason or processes.died(status)}\nThe log is '
      f'{log}; the same command resumes this stage.'
    )


def _shortened(line: str) -> str:
  """Returns what a stage's line says, without its loss, speed and time."""
  title, *rest = line.split('  ')
  if title != 'train' or not rest:
    return line
  is_step = '/' in rest[0]
  return rest[0] if is_step else '  '.join(rest)
