"""The .npz of attention: names, shapes, and that it comes back."""

import numpy as np
import pytest

from synth_mtf.attention import file
from synth_mtf.attention.file import Attention, Stack
from synth_mtf.errors import UserError

TOKENS = {
  'encoder': np.array([['a', 'b', '</s>'], ['c', '</s>', '']]),
  'decoder': np.array([['<start>', 'd'], ['<start>', 'e']]),
}
LENGTHS = {'encoder': 3, 'decoder': 2}


def array(*shape):
  return np.random.RandomState(len(shape)).uniform(size=shape)


def attention(**changes):
  shared = Stack(
    array(5, 1, 7, 3, 3), array(5, 1, 7, 3, 3), ('R', 'V'), array(5, 7, 2)
  )
  stacks = {
    'encoder': shared,
    'cross': Stack(array(5, 2, 7, 2, 3), array(5, 2, 7, 2, 3)),
  }
  texts = {side: np.array(['a b', 'é']) for side in TOKENS}
  return Attention(
    **{
      'run': 'models/x',
      'label': 'Syn (R+V)',
      'step': 70,
      'stacks': stacks,
      'tokens': TOKENS,
      'texts': texts,
      **changes,
    }
  )


def test_names_and_types(tmp_path):
  path = str(tmp_path / 'x.npz')
  file.write(path, attention())
  with np.load(path) as found:
    assert set(found.files) == {
      'format', 'run', 'label', 'step',
      'encoder_weights', 'encoder_logits', 'encoder_alpha',
      'encoder_functions', 'cross_weights', 'cross_logits',
      'encoder_tokens', 'encoder_text', 'decoder_tokens', 'decoder_text',
    }  # fmt: skip
    for name in ('encoder_weights', 'cross_logits', 'encoder_alpha'):
      assert found[name].dtype == np.float32
    assert list(found['encoder_functions']) == ['R', 'V']


def test_round_trip(tmp_path):
  path = str(tmp_path / 'x.npz')
  file.write(path, attention())
  found = file.read(path)
  assert (found.run, found.label, found.step) == ('models/x', 'Syn (R+V)', 70)
  assert list(found.texts['decoder']) == ['a b', 'é']
  assert set(found.stacks) == {'encoder', 'cross'}
  for name, stack in attention().stacks.items():
    there = found.stacks[name]
    np.testing.assert_array_equal(there.weights, stack.weights.astype('f4'))
    np.testing.assert_array_equal(there.logits, stack.logits.astype('f4'))
    assert list(there.functions) == list(stack.functions)
    assert (there.alpha is None) == (stack.alpha is None)


def test_an_example_is_cut_to_its_tokens():
  made = attention()
  assert made.examples == 2
  assert made.axes('encoder', 1) == (['c', '</s>'], ['c', '</s>'])
  assert made.axes('cross', 0) == (['<start>', 'd'], ['a', 'b', '</s>'])
  np.testing.assert_array_equal(
    made.weights('encoder', 1),
    made.stacks['encoder'].weights[:, 0, :, :2, :2],
  )
  np.testing.assert_array_equal(
    made.logits('cross', 1), made.stacks['cross'].logits[:, 1, :, :, :2]
  )


@pytest.mark.parametrize(
  'content, message',
  [
    (None, 'there is no file .*x.npz'),
    (b'', 'is not a file of `synth-mtf attention`'),
    (b'PK\x03\x04 not a zip', 'is not a file of `synth-mtf attention`'),
    (b'text', 'is not a file of `synth-mtf attention`'),
    ({'a': 1}, 'is not a file of `synth-mtf attention`'),
    ({'format': 2}, 'format 2, expected 1'),
  ],
)
def test_what_cannot_be_read(tmp_path, content, message):
  path = tmp_path / 'x.npz'
  if isinstance(content, bytes):
    path.write_bytes(content)
  elif content:
    np.savez(path, **content)
  with pytest.raises(UserError, match=message):
    file.read(str(path))


def test_a_folder_that_is_not_there(tmp_path):
  path = tmp_path / 'gone' / 'x.npz'
  with pytest.raises(UserError, match='cannot be written'):
    file.write(str(path), attention())
  assert not list(tmp_path.iterdir())
