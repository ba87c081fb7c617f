"""metrics.json and predictions.jsonl: what they hold, and that it lasts."""

import dataclasses
import json
import multiprocessing

import numpy as np
import pytest

from synth_mtf.errors import UserError
from synth_mtf.results import records
from synth_mtf.results.records import Result

RUN = {'versions': {'t5': '0.9.4'}, 'gin': 'a = 1\n'}
RESULT = Result('cola', 'validation', 'f1', 12.5, 40, 'example', 1.5, 100)


def changed(**changes):
  return dataclasses.replace(RESULT, **changes)


EXAMPLE = {
  'input': b'cola sentence: A b\xc3\xb6ok.',
  'target': 'acceptable',
  'prediction': 'unacceptable\n',
  'read_as': np.int32(0),
  'target_read_as': {'answers': np.array(['a', 'b'])},
}


def test_the_latest_results_come_back_with_what_they_were_made_with(tmp_path):
  other = {**RUN, 'gin': 'a = 2\n'}
  rte, later, again = changed(task='rte'), changed(step=200), changed(value=3.0)
  records.add_results(str(tmp_path), [RESULT, rte], RUN)
  records.add_results(str(tmp_path), [later, again], other)
  found = records.read(str(tmp_path))
  assert found == [(again, other), (rte, RUN), (later, other)]
  content = json.loads((tmp_path / 'metrics.json').read_text())
  assert [one['run'] for one in content['results']] == [0, 1, 0]
  assert len(content['runs']) == 2


def test_what_is_no_number_is_null(tmp_path):
  records.add_results(str(tmp_path), [changed(value=float('nan'))], RUN)
  assert 'NaN' not in (tmp_path / 'metrics.json').read_text()
  ((result, _),) = records.read(str(tmp_path))
  assert result.value is None


@pytest.mark.parametrize(
  'content',
  [
    '[' * 100_000,
    '5',
    '{"results": 5, "runs": []}',
    '{"results": [5], "runs": []}',
    '\xff',
    *(
      json.dumps({'runs': [RUN], 'results': [{**vars(RESULT), **one}]})
      for one in (
        *({'run': 3}, {'run': 0, 'value': 'x'}, {'run': 0, 'task': None}),
        *({'run': 0, 'n': 2**63}, {'run': 0, 'value': [[]]}, {'run': '0'}),
        *({'run': 0, 'more': 1}, {'run': 0, 'step': 1.5}),
        *({'run': 0, 'task': '\ud800'}, {'run': 0, 'metric': 'a\udfff'}),
        *({'run': 0, 'step': 10**30}, {'run': 0, 'value': 10**400}),
      )
    ),
  ],
)
def test_a_file_of_another_shape(tmp_path, content):
  (tmp_path / 'metrics.json').write_text(content, 'latin1')
  with pytest.raises(UserError, match='metrics.json is damaged'):
    records.read(str(tmp_path))


def test_a_cut_line_of_predictions_is_left_out(tmp_path, caplog):
  folder = str(tmp_path)
  records.add_predictions(folder, 'cola', 'validation', 100, [EXAMPLE] * 2)
  path = tmp_path / 'predictions.jsonl'
  first, second = path.read_text().splitlines()
  path.write_bytes(f'{first}\n{second[:40]}'.encode() + 'ß'.encode()[:1])
  records.add_predictions(folder, 'rte', 'validation', 100, [EXAMPLE])
  assert len(path.read_text().splitlines()) == 2
  assert 'predictions.jsonl:2' in caplog.text
  path.write_text(path.read_text().rstrip('\n'))
  records.add_predictions(folder, 'cb', 'validation', 100, [EXAMPLE])
  assert len(path.read_text().splitlines()) == 3


def test_a_file_of_someone_else_is_not_overwritten(tmp_path):
  path = tmp_path / 'metrics.json'
  path.write_text('{"accuracy": 3}')
  with pytest.raises(UserError, match='metrics.json is damaged'):
    records.add_results(str(tmp_path), [RESULT], RUN)
  assert path.read_text() == '{"accuracy": 3}'


def test_predictions_are_text(tmp_path):
  folder = str(tmp_path)
  records.add_predictions(folder, 'cola', 'validation', 100, [EXAMPLE])
  (line,) = (tmp_path / 'predictions.jsonl').read_text().splitlines()
  assert json.loads(line) == {
    'task': 'cola',
    'split': 'validation',
    'step': 100,
    'example': 0,
    'input': 'cola sentence: A böok.',
    'target': 'acceptable',
    'prediction': 'unacceptable\n',
    'read_as': 0,
    'target_read_as': {'answers': ['a', 'b']},
  }


def test_predictions_of_other_tasks_and_steps_stay(tmp_path):
  folder = str(tmp_path)
  places = [('cola', 100), ('cola', 200), ('rte', 100)]
  for place in [*places, places[0]]:
    task, step = place
    examples = [EXAMPLE, EXAMPLE]
    records.add_predictions(folder, task, 'validation', step, examples)
  lines = (tmp_path / 'predictions.jsonl').read_text().splitlines()
  found = [(p['task'], p['step']) for p in map(json.loads, lines)]
  assert sorted(found) == sorted(2 * places)


def evaluate(folder, task, steps, together):
  together.wait(timeout=60)
  for step in range(steps):
    made = changed(task=task, split='test', step=step)
    records.add_results(folder, [made], {'gin': task})
    records.add_predictions(folder, task, 'test', step, [{'input': 'a'}])


@pytest.mark.slow
def test_evaluations_side_by_side_keep_all_results(tmp_path):
  """Each process reads, changes and replaces the same two files."""
  tasks, steps = ['cola', 'rte', 'sst2'], 40
  context = multiprocessing.get_context('fork')
  together = context.Barrier(len(tasks))
  processes = [
    context.Process(
      target=evaluate, args=(str(tmp_path), task, steps, together)
    )
    for task in tasks
  ]
  for process in processes:
    process.start()
  for process in processes:
    process.join()
  assert [process.exitcode for process in processes] == [0] * len(tasks)
  kept = {(result.task, result.step) for result, _ in records.read(tmp_path)}
  expected = {(task, step) for task in tasks for step in range(steps)}
  assert kept == expected
  lines = (tmp_path / 'predictions.jsonl').read_text().splitlines()
  entries = [json.loads(line) for line in lines]
  assert {(entry['task'], entry['step']) for entry in entries} == expected
  assert len(lines) == len(expected)
