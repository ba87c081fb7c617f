"""What a person sees of a run, and what its log keeps."""

import contextlib
import os
import pathlib
import re
from typing import Any

import pytest
from absl import logging

import synth_mtf
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.host import evaluation
from synth_mtf.recorded import RECORDER
from synth_mtf.run import main

OURS = f'{pathlib.Path(synth_mtf.__file__).parent}/tasks/mine.py'


@pytest.fixture
def run(tmp_path, capfd):
  """Runs something; returns what a person has seen of it, and the log."""

  def shown(body, error=None):
    try:
      with (
        open(2, 'w', closefd=False) as stderr,  # here it is a file of pytest's
        contextlib.redirect_stderr(stderr),
        main.shown(str(tmp_path)),
      ):
        body()
    except Exception as found:
      assert error and isinstance(found, error)
      assert str(tmp_path / 'log') in str(found) or error is UserError
    else:
      assert error is None
    return capfd.readouterr().err, (tmp_path / 'log').read_text()

  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.INFO)
  yield shown
  logging.set_verbosity(verbosity)
  RECORDER.tell(lambda *decoded: None, lambda result: None)


def warn(file, message):
  """Warns as the code of a file does."""
  exec(compile(f'warning({message!r})', file, 'exec'), vars(logging))


def test_a_run_line_by_line(run, tmp_path):
  def body():
    os.write(1, b'said by C++\n')
    RECORDER.decoded(100, 1)

  seen, log = run(body)
  assert seen.splitlines()[:3] == [
    f'Log: {tmp_path}/log',
    'prepare  ...',
    'decode, checkpoint 100  ...',
  ]
  assert re.fullmatch(r'Done in \d+ s\.', seen.splitlines()[3])
  assert log == 'said by C++\n'


def test_results_of_an_evaluation(run, tmp_path):
  place: dict[str, Any] = {
    'folder': str(tmp_path),
    'task': 'cola',
    'split': 'validation',
    'step': 100,
  }
  measures = {'neg_log_perplexity': -1.5, 'token_accuracy': 0.25}
  examples = [evaluation.Example({}, 'a', 1)] * 2

  def body():
    RECORDER.measured(
      evaluation.Perplexity(
        measures={**measures, 'num_eval_tokens': 40}, **place
      )
    )
    RECORDER.evaluated(
      evaluation.Evaluation(
        examples=examples,
        targets=[0, 1],
        metrics=[(correct, correct([0, 1], [1, 1]))],
        **place,
      )
    )

  seen, _ = run(body)
  assert seen.splitlines()[2:5] == [
    'checkpoint 100  cola  neg_log_perplexity -1.500  (40 tokens)',
    'checkpoint 100  cola  token_accuracy 0.250  (40 tokens)',
    'checkpoint 100  cola  correct 50.000 +- 50.000  (2 examples)',
  ]


def correct(targets, predictions):
  pairs = list(zip(targets, predictions))
  return {'correct': 100 * sum(a == b for a, b in pairs) / len(pairs)}


def test_our_warnings_are_shown_once_and_no_others(run):
  def body():
    for message in ('a row', 'a row', 'another row'):
      warn(OURS, message)
    warn('/elsewhere/theirs.py', 'of the host')

  seen, _ = run(body)
  assert seen.splitlines()[2:4] == ['warning: a row', 'warning: another row']
  assert 'of the host' not in seen
  before = len(logging.get_absl_logger().handlers)
  run(body)
  assert len(logging.get_absl_logger().handlers) == before


def test_a_mistake_is_passed_on(run):
  def body():
    raise UserError('give another one')

  seen, log = run(body, UserError)
  assert 'Done' not in seen.split() and 'Traceback' not in seen
  assert 'Traceback' in log


@pytest.mark.parametrize('message', ['', 'two\nlines'])
def test_what_nothing_explains_names_the_log(run, message):
  def body():
    raise ValueError(message)

  seen, log = run(body, RunFailed)
  assert 'Traceback' not in seen
  assert 'Traceback' in log and 'ValueError' in log
