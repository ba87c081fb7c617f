"""Sign tests over examples: by hand, and what is compared."""

import pandas as pd
import pytest

from synth_mtf.demo.pairing import compared, of_examples
from synth_mtf.errors import UserError
from synth_mtf.results import records


@pytest.mark.parametrize(
  ('better', 'worse', 'tasks', 'is_significant'),
  [
    (8, 0, 1, True),  # 2 / 2^8 = 0.0078
    (7, 0, 1, False),  # 0.0156
    (8, 0, 2, False),
    (9, 0, 2, True),
    (11, 1, 1, True),  # 2 (1 + 12) / 2^12 = 0.0063
    (10, 1, 1, False),  # 0.0117
    (0, 0, 1, False),
  ],
)
def test_sign_test(better, worse, tasks, is_significant):
  both: list[tuple[int, int | None]] = [(100, 0)] * better
  both += [(0, 100)] * worse
  both += [(100, 100)] * 3 + [(100, None)]
  models = {
    model: pd.DataFrame({'synth_a': one, **dict.fromkeys('bc'[: tasks - 1], 1)})
    for model, one in zip('vr', zip(*both, strict=True), strict=True)
  }
  title, *lines = compared(models, 'examples').splitlines()
  assert title == (
    f'Sign tests over examples, in percent, p < 0.01, corrected for {tasks}:'
  )
  n = len(both) - 1
  means = ', '.join(
    f'{model} {100 * (right + 3) / n:.1f}'
    for model, right in (('v', better), ('r', worse))
  )
  no = '  no significant difference'
  assert lines == [f'  a: {means} (n = {n})' if is_significant else no]


def test_scores_of_examples(tmp_path):
  nothing = of_examples(tmp_path)
  for step, read_as in ((1, [0, 0, 0]), (2, [1, 0, -1])):
    for task, targets in (('cola', [1, 1, 0]), ('stsb', [1.0, 1.0, 0.0])):
      examples = [
        {'input': 'ä\u2028b', 'read_as': one, 'target_read_as': target}
        for one, target in zip(read_as, targets, strict=True)
      ]
      records.add_predictions(str(tmp_path), task, 'validation', step, examples)
  found = of_examples(tmp_path)
  assert found.to_dict() == {'cola': {0: 100, 1: 0, 2: 0}}
  assert compared({'v': found, 'r': nothing}, 'examples') == ''
  path = tmp_path / records.PREDICTIONS
  whole = path.read_bytes()
  for content, error in (
    (whole + b'{"task": "cola"}\n', 'KeyError'),
    (whole[:-9], 'JSONDecodeError'),
    (whole[: whole.rindex('ä'.encode()) + 1], 'JSONDecodeError'),
  ):
    path.write_bytes(content)
    with pytest.raises(UserError, match=f'cut or altered .{error}'):
      of_examples(tmp_path)
