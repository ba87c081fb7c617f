"""Classification for an encoder alone: one class, and where the text ends."""

import numpy as np
import seqio

from synth_mtf import tasks  # noqa: F401  registers the tasks
from tests.tasks import rows

LENGTHS = {'inputs': 48, 'targets': 48, 'targets_segmentation': 48}


def test_the_target_of_the_first_token_is_the_class(tmp_path, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(tmp_path))
  folder = tmp_path / 'ag_news_csv'
  folder.mkdir()
  (folder / 'test.csv').write_text('"3","A title","B"\n"1","C","D"\n')
  task = seqio.get_mixture_or_task('synth_ag_news_class')
  found = rows.run(
    lambda: task.get_dataset(LENGTHS, split='test', shuffle=False)
  )
  assert [row['targets'].tolist() for row in found] == [[3], [1]]
  text = task.output_features['inputs'].vocabulary.decode(
    found[0]['inputs'].tolist()
  )
  assert text == 'ag_news title: A title description: B'
  for row in found:
    assert row['inputs'][-1] == 1, 'the end of the text'
    np.testing.assert_array_equal(
      row['targets_segmentation'], np.ones(len(row['inputs']))
    )
