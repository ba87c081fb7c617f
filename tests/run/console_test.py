"""Progress on a terminal and elsewhere."""

import io
import time

import pytest

from synth_mtf.run.console import Console, TrainingProgress, duration


class Terminal(io.StringIO):
  def isatty(self):
    return True


@pytest.fixture
def clock(monkeypatch):
  now = [100.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  return now


def test_plain_lines_come_now_and_then(clock):
  stream = io.StringIO()
  console = Console(stream)
  console.start('pretrain')
  for second in range(1, 26):
    clock[0] = 100.0 + second
    console.update(f'step {second}')
  console.finish('done')
  assert stream.getvalue().splitlines() == [
    'pretrain  ...',
    'pretrain  step 10',
    'pretrain  step 20',
    'pretrain  done',
  ]


def test_a_terminal_line_is_rewritten(clock, monkeypatch):
  monkeypatch.setenv('TERM', 'xterm')
  stream = Terminal()
  console = Console(stream)
  console.start('pretrain')
  console.update('step 1')
  console.finish('done')
  shown = stream.getvalue().split('\r\x1b[2K')
  assert shown[1:] == ['pretrain  ...', 'pretrain  step 1', 'pretrain  done\n']


@pytest.mark.parametrize('columns', [20, 80])
def test_what_is_rewritten_is_cut_to_one_line(clock, monkeypatch, columns):
  monkeypatch.setenv('TERM', 'xterm')
  monkeypatch.setenv('COLUMNS', str(columns))
  stream = Terminal()
  console = Console(stream)
  console.start('pretrain')
  console.update('step 1 ' * 40)
  console.line('a line that stays is whole ' * 10)
  _, _, cut, whole = stream.getvalue().split('\r\x1b[2K')
  assert len(cut) == columns - 1
  assert cut.endswith('\u2026')
  assert whole == 'a line that stays is whole ' * 10 + '\n'


def test_a_terminal_that_cannot_rewrite_gets_plain_lines(clock, monkeypatch):
  monkeypatch.setenv('TERM', 'dumb')
  stream = Terminal()
  console = Console(stream)
  console.start('pretrain')
  console.update('step 1')
  console.finish('done')
  assert stream.getvalue() == 'pretrain  ...\npretrain  done\n'


def test_an_error_does_not_run_into_what_is_shown(clock, monkeypatch):
  monkeypatch.setenv('TERM', 'xterm')
  stream = Terminal()
  console = Console(stream)
  console.start('pretrain')
  console.leave()
  console.leave()
  assert stream.getvalue().endswith('pretrain  ...\n')
  assert stream.getvalue().count('\n') == 1


def test_progress_says_step_loss_speed_and_time_left():
  progress = TrainingProgress(
    step=150, total=300, loss=6.54321, steps_per_second=2.0
  )
  assert str(progress) == (
    'step 150/300  loss 6.543  2.0 steps/s  1 min 15 s left'
  )


@pytest.mark.parametrize(
  'seconds, text',
  [
    (0.4, '0 s'),
    (59.6, '1 min 00 s'),
    (185, '3 min 05 s'),
    (7800, '2 h 10 min'),
  ],
)
def test_duration(seconds, text):
  assert duration(seconds) == text
