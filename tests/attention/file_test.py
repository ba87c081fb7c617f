"""The .npz of attention: names, shapes, and that it comes back."""

import dataclasses
import io
import zipfile

import numpy as np
import pytest

from synth_mtf.attention import file
from synth_mtf.errors import UserError
from tests.attention.made import SENTENCES, random_attention


@pytest.mark.parametrize(
  'functions, shared', [('', False), ('R', True), ('RV', False)]
)
def test_a_file(tmp_path, functions, shared):
  made = random_attention('Syn', functions, shared=shared)
  stacks = {name: made.stacks[name] for name in ('encoder', 'cross')}
  path = str(tmp_path / 'x.npz')
  file.write(path, dataclasses.replace(made, stacks=stacks))
  arrays = ['weights', 'logits']
  arrays += ['functions'] * bool(functions) + ['alpha'] * (functions == 'RV')
  with np.load(path) as there:
    assert set(there.files) == {
      *('format', 'run', 'label', 'step'),
      *(f'{side}_{kind}' for side in SENTENCES for kind in ('tokens', 'text')),
      *(f'{stack}_{name}' for stack in stacks for name in arrays),
    }
    for name in set(arrays) - {'functions'}:
      assert there[f'cross_{name}'].dtype == np.float32
  found = file.read(path)
  assert (found.run, found.label, found.step) == ('my_runs/Syn', 'Syn', 100)
  assert tuple(found.texts['decoder']) == SENTENCES['decoder']
  np.testing.assert_array_equal(found.tokens['encoder'], made.tokens['encoder'])
  assert set(found.stacks) == {'encoder', 'cross'}
  for name, stack in stacks.items():
    there = found.stacks[name]
    np.testing.assert_array_equal(there.weights, stack.weights.astype('f4'))
    np.testing.assert_array_equal(there.logits, stack.logits)
    assert list(there.functions) == list(functions)
    assert (there.alpha is None) == (functions != 'RV')
    if there.alpha is not None and stack.alpha is not None:
      np.testing.assert_allclose(there.alpha, stack.alpha, rtol=1e-6)


@pytest.mark.parametrize('shared', [False, True])
def test_an_example_is_cut_to_its_tokens(shared):
  made = random_attention(shared=shared)
  assert made.examples == 4
  encoder, decoder = (SENTENCES[side][3].split() for side in SENTENCES)
  assert made.axes('encoder', 3) == (encoder, encoder)
  assert made.axes('cross', 3) == (decoder, encoder)
  row, cross = 0 if shared else 3, made.stacks['cross']
  np.testing.assert_array_equal(
    made.weights('cross', 3), cross.weights[:, row, :, :2, :2]
  )
  np.testing.assert_array_equal(
    made.weights('cross', 0, 'logits'), cross.logits[:, 0, :, :3, :8]
  )


@pytest.mark.parametrize(
  'content, message',
  [
    *((text, 'x.npz is not a file of') for text in (b'', b'PK\x03\x04', b'a')),
    ({'a': 1}, 'x.npz is not a file of'),
    ({'format': 2}, 'format 2, expected 1'),
    (
      None,
      'does not exist; `synth-mtf attention RUN --out .*x.npz` writes one',
    ),
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
  with pytest.raises(UserError, match='cannot be written'):
    file.write(str(tmp_path / 'gone' / 'x.npz'), random_attention())
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'change, message',
  [
    ({'step': np.zeros(3, int)}, 'step is int64 with 1 axes'),
    ({'run': np.zeros((), int)}, "run is int64 with 0 axes, expected kind 'U'"),
    (
      {'encoder_weights': np.zeros([2, 3])},
      'encoder_weights is float64 with 2',
    ),
    ({'encoder_text': np.asarray(['a'])}, 'its sides have .* examples'),
    ({'cross_logits': np.zeros([1] * 5)}, r'cross_logits is \(1, 1, 1, 1, 1\)'),
    (
      {'cross_weights': np.zeros([1] * 5)},
      'cross_weights is .1, 1, 1, 1, 1., exp',
    ),
    ({'cross_alpha': np.zeros([1, 1, 7])}, r'cross_alpha is \(1, 1, 7\)'),
    ({'label': np.asarray([{}], object)}, 'label is object with 1 axes'),
    ({'label': np.asarray('\ud800')}, 'surrogates not allowed'),
    (
      {'run': np.frombuffer(b'\xff' * 4, '<U1')[0:1].reshape(())},
      'of this version .*Error',
    ),
    ({'step': None}, "KeyError: 'step'"),
    ({'cross_logits': None}, "KeyError: 'cross_logits'"),
    ({'encoder_tokens': None}, "KeyError: 'encoder_tokens'"),
  ],
)
def test_arrays_that_do_not_fit(tmp_path, change, message):
  path = str(tmp_path / 'x.npz')
  file.write(path, random_attention('Syn', 'RV'))
  with np.load(path) as there:
    arrays = {**there, **change}
  kept = {name: x for name, x in arrays.items() if x is not None}
  np.savez_compressed(path, **kept)
  with pytest.raises(UserError, match=f'x.npz is not .*{message}'):
    file.read(path)


def test_other_arrays_are_not_unpacked(tmp_path):
  """Nor are ours if they are too large: six gigabytes, in six megabytes."""
  path = str(tmp_path / 'x.npz')
  file.write(path, random_attention('Syn', 'R'))
  header = io.BytesIO()
  shape = {
    'descr': '<f4',
    'fortran_order': False,
    'shape': (6, 1 << 28, 1, 1, 1),
  }
  np.lib.format.write_array_header_1_0(header, shape)
  with zipfile.ZipFile(path, 'a') as archive:
    archive.writestr('other.npy', header.getvalue())
  assert file.read(path).step == 100
  with np.load(path) as there:
    kept = {name: there[name] for name in there.files if 'other' not in name}
  kept.pop('encoder_weights')
  np.savez(path, **kept)
  with zipfile.ZipFile(path, 'a') as archive:
    archive.writestr('encoder_weights.npy', header.getvalue())
  with pytest.raises(UserError, match='unpack to 6,44.*at most 67,108,864'):
    file.read(path)


@pytest.mark.parametrize('most_compressed', [1, 100])
def test_a_file_is_not_compressed_more_than_is_read(
  tmp_path, monkeypatch, most_compressed
):
  monkeypatch.setattr(file, '_ALWAYS_READ_BYTES', 1000)
  monkeypatch.setattr(file, '_MOST_COMPRESSED', most_compressed)
  weights = np.full([2, 4, 1, 200, 200], 1 / 200)
  stack = file.Stack(weights, weights)
  tokens = np.full([4, 200], 'a')
  side = {'encoder': tokens}
  made = file.Attention(
    'x', 'x', 1, {'encoder': stack}, side, {'encoder': tokens[:, 0]}
  )
  path = tmp_path / 'x.npz'
  file.write(str(path), made)
  assert file.read(str(path)).stacks['encoder'].weights.shape == weights.shape
  with np.load(path) as there:
    arrays = {**there}
  np.savez_compressed(path, **arrays)
  with pytest.raises(UserError, match='unpack to 2,56.*, expected at most'):
    file.read(str(path))


def test_more_than_can_be_read_is_not_written(tmp_path, monkeypatch):
  monkeypatch.setattr(file, '_MOST_BYTES', 1000)
  with pytest.raises(UserError, match='on 4 examples has .*give fewer'):
    file.write(str(tmp_path / 'x.npz'), random_attention())
  assert not [*tmp_path.iterdir()]
