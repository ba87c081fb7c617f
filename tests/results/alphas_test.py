"""The alphas of a run, against those of its checkpoints."""

import functools
import math

import gin
import numpy as np
import pandas as pd
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.results import alphas
from tests import model
from tests.results import made_runs
from tests.results.made_runs import only

STEPS = (0, 7)


@pytest.mark.slow  # builds whole models
@pytest.mark.parametrize(
  'mixing, second, letters',
  [('softmax', 'DotProduct', 'R V'), ('layer_sigmoid', 'Random', 'R1 R2')],
)
def test_alpha_is_that_of_the_checkpoints(tmp_path, mixing, second, letters):
  settings = [
    f'SyntheticAttention.mixing = {mixing!r}',
    f'SyntheticAttention.synthesizers = [@Random, @{second}]',
  ]

  def grown(step, _name, value):
    return value * (step + 1)

  for step in STEPS:
    change = functools.partial(grown, step)
    model.write(tmp_path, 'random_vanilla', settings, step, change)
  (tmp_path / 'operative_config.gin').write_text(gin.config_str())
  found = alphas.frame(only(tmp_path))
  places = found[['stack', 'layer']].drop_duplicates().to_numpy().tolist()
  assert places == [[s, n] for s in ('encoder', 'decoder') for n in (1, 2)]
  reader = tf.train.load_checkpoint(str(tmp_path / 'model.ckpt-7'))
  scope = 'decoder/block_001/layer_000/SyntheticAttention/alpha'
  e = np.exp(reader.get_tensor(scope)).reshape(-1, len({*found['head']}))
  e = np.append(e, np.ones_like(e[: 2 - len(e)]), axis=0)
  last = found[(found['stack'] == 'decoder') & (found.layer == 2)]
  assert sorted(set(last.step)) == list(STEPS)
  by_place = last[last.step == 7].pivot(
    index='function', columns='head', values='value'
  )
  assert [x.replace(' ', '') for x in by_place.index] == letters.split()
  np.testing.assert_allclose(by_place, e / e.sum(0), rtol=1e-6)


def test_the_largest_move_is_between_checkpoints():
  place = {'stack': 'encoder', 'layer': 1, 'function': 'R'}
  values = [(1, 0, 0.5), (1, 9, 0.52), (2, 0, 0.1), (2, 9, 0.13)]
  rows = [
    {**place, 'head': head, 'step': step, 'value': value}
    for head, step, value in values
  ]
  assert alphas.largest_move(pd.DataFrame(rows)) == pytest.approx(0.03)
  assert alphas.largest_move(pd.DataFrame(rows[:1])) == math.inf


def test_functions_of_one_letter_are_numbered():
  numbered = alphas._numbered(['R', 'V', 'R'])  # noqa: SLF001
  assert numbered == ['R 1', 'V', 'R 2']


def test_where_nothing_is_mixed_there_is_none(tmp_path):
  made_runs.trained(tmp_path, 'random')
  assert alphas.frame(only(tmp_path)).empty
