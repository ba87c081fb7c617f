"""What a configuration describes is asked apart from the process's gin."""

import contextlib
import threading

import gin
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as models
from synth_mtf.host.described import described
from tests import model

MINE = 'SelfAttention.num_heads = 77'


def text(variant, *bindings):
  """The configuration of a tiny model; gin has another one afterwards."""
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  written = gin.config_str()
  gin.clear_config()
  gin.parse_config(MINE)
  return written


def classes(transformer):
  return {type(layer).__name__ for _, layer in models.layers(transformer)}


def test_gin_has_it_only_meanwhile():
  configuration = text('random', "utils.run.model_type = 'lm'")
  before = gin.config_str()
  with described(configuration, 'a.gin') as made:
    assert made.run.model_type == 'lm'
    assert 'SyntheticAttention' in classes(made.transformer())
    assert made.build(256).shapes['transformer/embedding'].dims[0].size == 256
    assert '77' not in gin.config_str()
  assert gin.config_str() == before
  with made.configured():
    assert made.run.model_type == 'lm'
  assert gin.config_str() == before


def test_two_are_told_apart():
  random, plain = text('random'), text(None)
  with described(random, 'a.gin') as outer:
    with described(plain, 'b.gin') as inner:
      assert 'SyntheticAttention' not in classes(inner.transformer())
    assert 'SyntheticAttention' in classes(outer.transformer())


def test_a_locked_configuration_stays_locked():
  configuration = text('random')
  gin.finalize()
  with described(configuration, 'a.gin'):
    pass
  assert gin.config_is_locked()


def test_gin_is_restored_after_an_error():
  text('random')
  before = gin.config_str()
  for wrong, message in (
    (None, 'folder has no a.gin, which describes its model'),
    ('a = = b', 'folder/a.gin: gin syntax'),
    ('make_layer_stack.layers = [@their.Layer]', '@their.Layer'),
  ):
    refused = pytest.raises(UserError, match=message)
    with refused, described(wrong, 'folder/a.gin'):
      pass
    assert gin.config_str() == before
  with contextlib.suppress(KeyError), described(text('random'), 'a.gin'):
    raise KeyError
  assert gin.config_str() == before


def test_skipped_statements_are_listed():
  with described('import theirs\n' + text('random'), 'a.gin') as made:
    assert made.skipped == ['import theirs']


def test_threads_take_turns():
  configurations = {name: text(name) for name in ('random', 'dense')}
  letters: dict[str, set[str]] = {name: set() for name in configurations}

  def describe(name):
    for _ in range(5):
      with described(configurations[name], 'a.gin') as made:
        for _, layer in models.layers(made.transformer()):
          letters[name].add(getattr(layer, 'letters', ''))

  threads = [threading.Thread(target=describe, args=[x]) for x in letters]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert letters == {'random': {'', 'R'}, 'dense': {'', 'D'}}


def test_only_errors_are_logged_meanwhile():
  before = tf.logging.get_verbosity()
  try:
    tf.logging.set_verbosity(tf.logging.DEBUG)
    with described(text('random'), 'a.gin') as made, made.configured():
      assert tf.logging.get_verbosity() == tf.logging.ERROR
    assert tf.logging.get_verbosity() == tf.logging.DEBUG
  finally:
    tf.logging.set_verbosity(before)
