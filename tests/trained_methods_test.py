"""What a trained model takes and returns, with models of one layer."""

import os
import shutil
from typing import Any

import numpy as np
import pandas as pd
import pytest

import synth_mtf
from synth_mtf import trained
from synth_mtf.attention.examples import ModelInputs
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host.described import DescribedModel
from tests.harness import assert_close
from tests.results import made_runs
from tests.trained_test import BINDINGS, INPUTS, TARGETS, write

SMALL = (
  'num_layers = 1',
  "utils.run.sequence_length = {'inputs': 64, 'targets': 40}",
)
ROWS = 384  # of the embedding of bytes
LIMIT = 'Bitransformer.decode.max_decode_length = 12'
BY_INPUT = 'Bitransformer.decode.decode_length_{} = 2'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return write(tmp_path_factory.mktemp('trained'), *SMALL)


@pytest.fixture(scope='module')
def one(folder, tmp_path_factory):
  """A model whose files were removed, as a run removes old checkpoints."""
  copy = tmp_path_factory.mktemp('copies') / 'run'
  shutil.copytree(folder, copy)
  with synth_mtf.load(copy / 'model.ckpt-7') as model:
    shutil.rmtree(copy)
    yield model


def of_one_stack(folder, kind):
  return synth_mtf.load(
    write(folder, *SMALL, f'utils.run.model_type = {kind!r}')
  )


@pytest.fixture(scope='module')
def lm(tmp_path_factory):
  with of_one_stack(tmp_path_factory.mktemp('lm'), 'lm') as model:
    yield model


def values(model, build, *options, **ids):
  """What a build computes of ids, a row for each example."""
  return model._values(ids, build, *options)  # noqa: SLF001


def likelihoods(model, **ids):
  return values(model, trained._log_likelihoods, **ids)  # noqa: SLF001


def test_a_checkpoint_as_in_export(one, folder):
  parameters = Checkpoint(str(folder)).parameters
  assert (one.label, one.step, one.parameters) == ('Syn (R+V)', 7, parameters)
  assert repr(one) == (
    f'<Syn (R+V), step 7, {parameters:,} parameters, {one.folder}>'
  )


@pytest.mark.parametrize('kind', ['one', 'lm'])
def test_probabilities_of_the_next_token(request, kind):
  """Each depends on the tokens before it, and their sum is 1."""
  model = request.getfixturevalue(kind)
  tokens = range(1, ROWS)  # 0 is padding, whose probability is small
  ids = {'decoder': [[9, token] for token in tokens]}
  if kind == 'one':
    ids['encoder'] = [[5, 8, 1]] * len(tokens)
  rows = np.array(likelihoods(model, **ids))
  assert 0.99 < np.exp(rows[:, 1]).sum() < 1
  assert_close(rows[:, 0], np.full(len(tokens), rows[0, 0]), 'the first token')
  assert np.ptp(rows[:, 1]) > 0.1


def test_a_greedy_decoder_takes_the_likeliest(one):
  ids = {'encoder': [[5, 8, 1]]}
  limits = one._limits(2)  # noqa: SLF001
  (row,) = values(one, trained._decoded, 1, limits, **ids)  # noqa: SLF001
  assert row.shape == (2,)
  every = {'encoder': ids['encoder'] * ROWS}
  firsts = likelihoods(one, **every, decoder=[[i] for i in range(ROWS)])
  assert np.argmax([first[0] for first in firsts]) == row[0]
  text = bytes(token - 3 for token in row if 3 <= token < 259)
  found = one.predict(['\x02\x05'], beams=1, max_length=2)
  assert found == [text.decode(errors='ignore')]


def test_rows_of_similar_length_are_computed_together(lm):
  def echo(made, rows, dtype):
    return None, rows['decoder']

  short, long = [5, 1], [*range(2, 30)]
  given = [long, short] * trained._BATCH  # noqa: SLF001
  given[7] = [6, 7, 1]
  found = values(lm, echo, decoder=given)
  assert len(found) == len(given)
  for row, ids in zip(found, given, strict=True):
    assert row[: len(ids)].tolist() == ids
    assert len(row) == (32 if ids == long else 16)


def test_a_language_model_scores(lm):
  texts = ['a' * 30, 'b']
  scores = lm.score(None, texts)
  (row,) = likelihoods(lm, decoder=[[ord('b') + 3, 1]])
  assert_close(scores[1], row[0] + row[1], 'a text and its end')
  assert_close(scores, [lm.score(None, [text])[0] for text in texts], 'alone')
  with pytest.raises(UserError, match='expected inputs or targets'):
    lm.score(['ab'], ['cd'])
  with pytest.raises(UserError, match="model of type 'lm'"):
    lm.predict(['ab'])


def test_a_token_is_scored_given_the_input(one):
  found = one.score(['a', 'b'], ['yes', 'yes'])
  assert abs(found[0] - found[1]) > 1e-3
  assert_close(found[1], one.score(['b'], ['yes'])[0], 'alone')
  assert type(found[0]) is float


def test_attention_of_an_encoder_ignores_padding(tmp_path):
  with of_one_stack(tmp_path, 'aligned') as model:
    found = model.attention(['ab', 'cdefg'])
    (alone,) = model.attention(['ab']).stacks.values()
    with pytest.raises(UserError, match='score needs a decoder'):
      model.score(None, ['ab'])
  weights = found.stacks['encoder'].weights
  assert weights.shape == (1, 2, 3, 6, 6)
  tokens = weights[:, 0, :, :3, :3]
  assert_close(tokens.sum(-1), np.ones([1, 3, 3]), 'the sum over tokens')
  assert_close(tokens, alone.weights[:, 0], 'alone')
  assert found.tokens['encoder'][0].tolist() == ['a', 'b', '</s>', '', '', '']


def test_attention_of_both_sides(one):
  found = one.attention(iter(['a', 'bc']), np.array(['d', 'efg']))
  shapes = {name: stack.weights.shape for name, stack in found.stacks.items()}
  assert shapes == {
    'encoder': (1, 2, 3, 3, 3),
    'decoder': (1, 2, 3, 4, 4),
    'cross': (1, 2, 3, 4, 3),
  }
  assert found.texts['decoder'].tolist() == ['d', 'efg']
  assert (found.run, found.label, found.step) == (one.folder, one.label, 7)
  (encoder,) = one.attention(['a', 'bc']).stacks.values()
  assert_close(
    encoder.weights, found.stacks['encoder'].weights, 'without targets'
  )


@pytest.mark.parametrize(
  'call, message',
  [
    (lambda m: m.predict('one text'), 'expected a list of texts'),
    (lambda m: m.predict(b'a'), "inputs are b'a': expected a list of texts"),
    (lambda m: m.predict({'a': 1}), "inputs are {'a': 1}: expected a list"),
    (lambda m: m.predict(np.array('a')), 'inputs are array.*: expected a list'),
    (lambda m: m.predict(['a', ' ']), 'a text is empty'),
    (lambda m: m.predict(['a' * 99]), 'has 100 tokens, and the model takes 64'),
    (lambda m: m.predict(['a'], beams=0), 'beams = 0: .* at least 1'),
    (lambda m: m.predict(['a'], beams=2.0), 'beams = 2.0: .* whole number'),
    (lambda m: m.predict([], beams=True), 'beams = True: .* whole number'),
    (lambda m: m.predict(['a'], max_length=0), 'max_length = 0: .* at least 1'),
    (lambda m: m.predict(None), 'inputs are None: expected a list of texts'),
    (lambda m: m.predict(['a', None]), r'inputs\[1\] is None: expected a text'),
    (
      lambda m: m.predict(['a\ud800']),
      r"\[0\] is 'a.ud800', .* character 1 is",
    ),
    (
      lambda m: m.score(['a'], ['\udfff']),
      r'targets\[0\] is .* not valid Unicode',
    ),
    (lambda m: m.score(['a'], ['b', 'c']), '1 inputs and 2 targets'),
    (lambda m: m.score(['a'], []), 'score needs a decoder, and a target'),
    (lambda m: m.score([], ['a']), 'expected inputs, with or without'),
    (lambda m: m.score('a', ['a']), "inputs are 'a': expected a list"),
    (
      lambda m: m.predict(pd.DataFrame({'sentence': ['a'], 'label': [1]})),
      "a table with the columns 'sentence', 'label': expected a list",
    ),
    (lambda m: m.attention([]), 'needs at least one text'),
    (lambda m: m.attention(['a'], [3]), r'targets\[0\] is 3: expected a text'),
  ],
)
def test_texts_that_do_not_fit(one, call, message):
  with pytest.raises(UserError, match=message):
    call(one)


def test_any_series_of_texts(one):
  expected = one.predict(INPUTS, beams=2, max_length=3)
  numbers: Any = np.array([2, 3])  # beams, max_length
  for inputs in (
    (text for text in INPUTS),
    np.array(INPUTS),
    np.array(INPUTS, object),
    pd.Series(INPUTS, index=[3, 5, 8]),
  ):
    assert one.predict(inputs, *numbers) == expected
  scores = one.score(np.array(INPUTS), pd.Series(TARGETS))
  np.testing.assert_allclose(scores, one.score(INPUTS, TARGETS))
  assert one.predict(np.array([])) == []
  assert one.score([], []) == one.score(None, ()) == []


@pytest.mark.parametrize(
  'bindings, given, most, by_input',
  [
    ([], None, 64, False),  # the length of inputs
    ([], 3, 3, False),
    ([LIMIT], None, 12, False),
    ([LIMIT], 30, 30, False),
    ([BY_INPUT.format('multiplier')], None, 64, True),
    ([BY_INPUT.format('constant'), LIMIT], None, 12, True),
    ([BY_INPUT.format('constant')], 3, 3, False),
  ],
)
def test_the_most_tokens_of_a_target(
  one, monkeypatch, bindings, given, most, by_input
):
  made = DescribedModel('\n'.join(bindings), 'operative_config.gin')
  monkeypatch.setattr(one, '_model', made)
  limits = dict(one._limits(given))  # noqa: SLF001
  assert limits.pop('max_decode_length') == most
  constant = {'decode_length_multiplier': 0.0, 'decode_length_constant': most}
  assert limits == ({} if by_input else constant)
  monkeypatch.setattr(one, '_inputs', ModelInputs('bitransformer', {}, {}))
  if most == 64:
    assert dict(one._limits(None))['max_decode_length'] == 512  # noqa: SLF001


def test_a_closed_model_says_so(folder):
  with synth_mtf.load(folder) as model:
    session: Any = model._loaded  # noqa: SLF001
  for call in (model.predict, model.attention, lambda x: model.score(x, x)):
    with pytest.raises(UserError, match=f'of {folder} is closed: load it'):
      call(['a'])
  model.close()  # again
  with pytest.raises(RuntimeError, match='closed Session'):
    session.run(trained._log_likelihoods, {'encoder': [[1]], 'decoder': [[1]]})  # noqa: SLF001


def test_another_process_has_loaded_a_model(one, tmp_path, monkeypatch):
  """As the parent of a fork has, in which a session would wait forever."""
  monkeypatch.setattr(trained, '_opened_in', {os.getppid()})
  for call in (lambda: one.attention(['a']), lambda: synth_mtf.load(tmp_path)):
    with pytest.raises(UserError, match="method 'spawn'"):
      call()


def test_folders_that_do_not_fit(folder, tmp_path):
  file = folder / 'model.ckpt-7'
  other = tmp_path / 'other'
  made_runs.trained(other, bindings=BINDINGS)
  for path, step, settings, message in (
    (tmp_path / 'no', None, {}, 'does not exist'),
    (folder, 8, {}, 'there is no checkpoint .*-8; .*holds model.ckpt-7'),
    (folder, 0, {}, 'there is no checkpoint .*-0; .*holds model.ckpt-7'),
    (folder / 'model.ckpt-8', None, {}, 'there is no checkpoint'),
    (file, 8, {}, 'is at step 7, and step = 8'),
    (file, 0, {}, 'is at step 7, and step = 0'),
    (other, None, {'vocabulary': 'bytes'}, 'has 128 rows'),
    (folder, None, {'module_import': 'nosuch'}, 'module_import nosuch: '),
  ):
    with pytest.raises(UserError, match=message):
      synth_mtf.load(path, step, **settings)


def test_a_path_with_its_step(folder):
  file = f'{folder}/model.ckpt-7'
  for step in (None, 7):
    assert trained._split(file, step) == (str(folder), 7)  # noqa: SLF001
  for step in (None, 0, 3):
    assert trained._split('run', step) == ('run', step)  # noqa: SLF001


def test_texts_are_those_of_python():
  (text,) = trained._texts('inputs', np.array(['a']))  # noqa: SLF001
  assert type(text) is str
