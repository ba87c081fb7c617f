"""The alphas of a run, against those of its checkpoints and event files."""

import functools

import gin
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.results import alphas
from tests import model
from tests.results import made_runs
from tests.results.made_runs import only

STEPS = (0, 7)


def grown(step, name, value):
  """A weight that differs from step to step."""
  del name
  return value * (step + 1)


@pytest.mark.slow  # builds whole models
def test_alpha_is_that_of_the_checkpoints(tmp_path):
  for step in STEPS:
    model.write(
      tmp_path,
      'random_vanilla',
      step=step,
      change=functools.partial(grown, step),
    )
  (tmp_path / 'operative_config.gin').write_text(gin.config_str())
  found = alphas.paths(only(tmp_path))
  assert [(p.stack, p.layer) for p in found] == [
    ('encoder', 1),
    ('encoder', 2),
    ('decoder', 1),
    ('decoder', 2),
  ]
  scope = 'decoder/block_001/layer_000/SyntheticAttention/alpha'
  scores = tf.train.load_checkpoint(str(tmp_path / 'model.ckpt-7')).get_tensor(
    scope
  )
  expected = np.exp(scores) / np.exp(scores).sum(0)
  assert list(found[3].steps) == list(STEPS)
  np.testing.assert_allclose(found[3].values[1], expected.T, rtol=1e-6)


def test_alpha_is_that_of_the_event_files(tmp_path):
  one_layer = ['num_layers = 1', 'num_heads = 2']
  made_runs.trained(tmp_path, 'random_vanilla', one_layer)
  told = {'R/head_01': 0.25, 'R/head_02': 0.5, 'V/head_01': 0.75}
  tags = {f'attention/decoder/layer_01/alpha/{k}': v for k, v in told.items()}
  last = {'attention/decoder/layer_01/alpha/V/head_02': 0.5}
  made_runs.events(tmp_path, (20, {**tags, **last}), (40, tags))  # cut short
  (path,) = alphas.paths(only(tmp_path))
  assert (path.stack, path.layer) == ('decoder', 1)
  assert list(path.functions) == ['R', 'V']
  assert list(path.steps) == [20]
  np.testing.assert_array_equal(path.values, [[[0.25, 0.75], [0.5, 0.5]]])


def test_where_nothing_is_mixed_there_is_none(tmp_path):
  made_runs.trained(tmp_path, 'random')
  assert alphas.paths(only(tmp_path)) == []


def test_a_run_without_its_configuration(tmp_path):
  made_runs.events(tmp_path, (1, {'loss': 5.0}))
  with pytest.raises(UserError, match='it has no operative_config.gin'):
    alphas.paths(only(tmp_path))
