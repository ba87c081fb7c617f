"""Which training data gain by being packed: real text through T5's pipeline."""

import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from t5.models import mesh_transformer

from tests.conftest import CHECKOUT
from tests.tasks import rows

# Rows that are read: more than the text has, so that it is read again.
ROWS = 400


@pytest.fixture(scope='module')
def text(tmp_path_factory) -> pathlib.Path:
  """A data folder whose corpus is what this project has written."""
  folder = tmp_path_factory.mktemp('text')
  (folder / 'corpus').mkdir()
  for path in [*CHECKOUT.glob('*.md'), *CHECKOUT.glob('docs/*.md')]:
    (folder / 'corpus' / f'{path.stem}.txt').write_bytes(path.read_bytes())
  return folder


def training_rows(task, lengths, pack, shuffle=False):
  def make() -> tf.data.Dataset:
    return mesh_transformer.mesh_train_dataset_fn(
      task, lengths, None, 'train', shuffle=shuffle, seed=0, pack=pack
    )

  return rows.run(make, ROWS)


def pairs(found):
  return [(r['inputs'].tolist(), r['targets'].tolist()) for r in found]


@pytest.mark.slow  # reads text again and again
@pytest.mark.parametrize('shuffle', [False, True], ids=['in order', 'shuffled'])
@pytest.mark.parametrize('lengths', [(512, 114), (128, 29)], ids=str)
def test_span_corruption_fills_each_row_by_itself(
  text, monkeypatch, lengths, shuffle
):
  """Packing leaves all rows as they are but for pieces at a group's end."""
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(text))
  lengths = dict(zip(('inputs', 'targets'), lengths))
  task = 'synth_text_span_corruption'
  packed, unpacked = (
    training_rows(task, lengths, pack, shuffle) for pack in (True, False)
  )
  full = [r for r in unpacked if (r['inputs'] != 0).all()]
  assert len(full) > 0.97 * ROWS
  assert all((r['targets'] != 0).all() for r in full)
  alone = [
    r
    for r in packed
    if (r['inputs_segmentation'] == 1).all()
    and (r['targets_segmentation'] == 1).all()
  ]
  # Two short pieces may share a row, so that the packed rows reach further.
  assert len(alone) >= len(full)
  assert pairs(alone)[: len(full)] == pairs(full)
  for row in packed:
    if row['inputs_segmentation'].max() > 1:
      assert np.sum(row['inputs_segmentation'] == 1) < lengths['inputs']
