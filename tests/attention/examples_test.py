"""Examples: given texts, those of a file or task, and the default ones."""

import re

import gin
import pytest
from mesh_tensorflow.transformer import utils

from synth_mtf import tasks
from synth_mtf.attention import examples
from synth_mtf.checkpoints import vocabulary as vocabularies
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.tasks import vocabulary

TASK = 'synth_glue_sst2_v002'


@pytest.fixture(autouse=True)
def run():
  """Has gin hold a run of bytes: a byte's id is its number and 3, EOS is 1."""

  def hold(**settings):
    for name, value in settings.items():
      gin.bind_parameter(f'{utils.run.__module__}.run.{name}', value)

  hold(vocabulary=vocabulary.load('bytes'))
  return hold


def ids(text):
  return [*(byte + 3 for byte in text.encode()), 1]


def test_given_texts():
  inputs = ['ab', ' Ä ']
  found = examples.from_texts({'inputs': inputs, 'targets': ['cd', 'e']})
  assert found.ids == {
    'encoder': [ids('ab'), ids('Ä')],
    'decoder': [ids('cd'), ids('e')],
  }
  assert found.tokens == {
    # Half a letter is no text.
    'encoder': [['a', 'b', '</s>'], ['<198>', '<135>', '</s>']],
    # What a decoder reads, which is one later; it does not read EOS.
    'decoder': [['<s>', 'c', 'd'], ['<s>', 'e']],
  }
  assert found.texts == {'encoder': inputs, 'decoder': ['cd', 'e']}
  alone = examples.from_texts({'inputs': inputs, 'targets': []})
  assert alone.ids == {'encoder': found.ids['encoder']}
  assert set(alone.tokens) == set(alone.texts) == {'encoder'}


@pytest.mark.parametrize(
  'model_type, side', [('lm', 'decoder'), ('aligned', 'encoder')]
)
@pytest.mark.parametrize('feature', ['inputs', 'targets'])
def test_a_model_of_one_side_takes_either(run, model_type, side, feature):
  run(model_type=model_type)
  found = examples.from_texts({feature: ['ab']})
  assert found.ids == {side: [ids('ab')]}
  assert found.texts == {side: ['ab']}


def test_pieces_of_a_vocabulary_of_pieces(run, tmp_path):
  path = tmp_path / 'some.model'
  vocabulary.train([f'a bird sang {i}' for i in range(99)], path, 26)
  run(vocabulary=vocabulary.load(str(path)))
  found = examples.from_texts({'inputs': ['a bird']})
  *pieces, end = found.tokens['encoder'][0]
  assert ''.join(pieces).replace('▁', ' ').strip() == 'a bird'
  assert end == '</s>'
  assert len(found.ids['encoder'][0]) == len(pieces) + 1


@pytest.mark.parametrize('lengths', [3, {'inputs': 3, 'targets': 3}])
def test_texts_as_long_as_the_model(run, lengths):
  run(sequence_length=lengths)
  examples.from_texts({'inputs': ['ab'], 'targets': ['cd']})
  with pytest.raises(UserError) as error:
    examples.from_texts({'inputs': ['abc', 'ab'], 'targets': ['ab', 'abcd']})
  assert str(error.value) == (
    'text 1 of the encoder has 4 tokens, and the model takes 3; text 2 of the '
    'decoder has 5 tokens, and the model takes 3 (utils.run.sequence_length). '
    'Shorten it.'
  )


@pytest.mark.parametrize(
  'texts, settings, message',
  [
    ({}, {}, 'no text is given'),
    ({'inputs': [], 'targets': []}, {}, 'no text is given'),
    ({'targets': ['a']}, {}, 'has an encoder: give an input for each'),
    (
      {'inputs': ['a', 'b'], 'targets': ['c']},
      {},
      '2 inputs and 1 targets: expected one target per input, or none',
    ),
    ({'inputs': ['a', ' ']}, {}, 'text 2 of the encoder is empty'),
    (
      {'inputs': ['a'], 'targets': ['']},
      {},
      'text 1 of the decoder is empty',
    ),
    (
      {'inputs': ['a'], 'targets': ['b']},
      {'model_type': 'lm'},
      'has only decoder layers: give either --text or',
    ),
    ({'inputs': ['a']}, {'model_type': 'other'}, "a model of type 'other'"),
  ],
)
def test_texts_that_do_not_fit(run, texts, settings, message):
  run(**settings)
  with pytest.raises(UserError, match=message):
    examples.from_texts(texts)


def from_file(tmp_path, content):
  path = tmp_path / 'texts'
  path.write_bytes(content)
  return examples.from_file(str(path))


def test_a_file(tmp_path):
  found = from_file(tmp_path, 'ab\n\nÄ c\n'.encode())
  assert found.texts == {'encoder': ['ab', 'Ä c']}
  found = from_file(tmp_path, b'ab\tc\r\nd\tef\r\n')
  assert found.texts == {'encoder': ['ab', 'd'], 'decoder': ['c', 'ef']}
  assert found.ids['decoder'] == [ids('c'), ids('ef')]


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'is empty; expected one example per line'),
    (b' \n\n', 'is empty; expected one example per line'),
    (b'a\tb\tc\n', 'texts:1: 3 columns; expected an input, or an input, a'),
    (b'a\tb\tc\nd\n', 'texts:1: 3 columns'),
    (b'a\tb\nc\n', 'texts:2: 1 columns'),
    (b'\na\n\nb\tc\n', 'texts:4: 2 columns'),  # as an editor counts
    (b'a\t \n', 'text 1 of the decoder is empty'),
    (b'ab\xff', r'is not UTF-8 \(byte 2: '),
  ],
)
def test_a_file_that_does_not_fit(tmp_path, content, message):
  with pytest.raises(UserError, match=message):
    from_file(tmp_path, content)


@pytest.mark.parametrize('name', ['gone.txt', ''])
def test_what_is_no_file(tmp_path, name):
  path = str(tmp_path / name)
  with pytest.raises(UserError, match=f'there is no file {re.escape(path)}'):
    examples.from_file(path)


@pytest.fixture
def sst2(tmp_path, monkeypatch):
  """SST-2 in three rows."""
  folder = tmp_path / 'data' / 'glue' / 'SST-2'
  folder.mkdir(parents=True)
  rows = ['sentence\tlabel', 'a warm film \t1', 'a dull film \t0', 'no \t0']
  for part in ('train', 'dev'):
    (folder / f'{part}.tsv').write_text('\n'.join(rows) + '\n')
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(tmp_path / 'data'))
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path / 'index'))
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'bytes')


@pytest.mark.usefixtures('sst2')
@pytest.mark.parametrize('count, expected', [(2, 2), (9, 3)])
def test_the_first_examples_of_a_task(count, expected):
  found = examples.from_task(TASK, 'validation', count)
  inputs = [
    f'sst2 sentence: {s} ' for s in ('a warm film', 'a dull film', 'no')
  ]
  targets = ['positive', 'negative', 'negative']
  assert found.texts == {
    'encoder': inputs[:expected],
    'decoder': targets[:expected],
  }
  assert found.ids['decoder'] == list(map(ids, targets[:expected]))
  assert found.tokens['decoder'][0] == ['<s>', *'positive']


@pytest.mark.usefixtures('sst2')
def test_examples_are_what_the_model_gets(run):
  run(sequence_length={'inputs': 7, 'targets': 4})
  found = examples.from_task(TASK, 'train', 1)
  assert len(found.ids['encoder'][0]) == 7
  assert found.tokens['decoder'] == [['<s>', *'pos']]
  run(model_type='lm')
  found = examples.from_task(TASK, 'train', 1)
  assert found.texts == {'decoder': ['positive']}


@pytest.mark.usefixtures('sst2')
@pytest.mark.parametrize(
  'name, split, message',
  [
    ('synth_glue_sst2', 'train', "did you mean 'synth_glue_sst2_v002'"),
    (TASK, 'trian', 'trian'),
    ('synth_glue_cola_v002', 'train', 'CoLA/train.tsv'),
  ],
)
def test_a_task_that_is_not_there(name, split, message):
  with pytest.raises(UserError, match=message):
    examples.from_task(name, split, 1)


def chosen_vocabulary(given, folder):
  examples.choose_vocabulary(given, str(folder))
  return tasks.settings().vocabulary


def test_the_recorded_vocabulary_is_used_unless_another_is_set(
  tmp_path, monkeypatch
):
  assert chosen_vocabulary(None, tmp_path) is None, 'nothing is recorded'
  vocabularies.record(vocabulary.load('bytes'), str(tmp_path))
  assert chosen_vocabulary(None, tmp_path) == 'bytes'
  assert chosen_vocabulary('given.model', tmp_path) == 'given.model'
  gin.clear_config()
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'set.model')
  assert chosen_vocabulary(None, tmp_path) == 'set.model'


def test_a_recorded_file_is_used_if_it_is_still_there(tmp_path):
  model, folder = tmp_path / 'some.model', tmp_path / 'run'
  folder.mkdir()
  vocabulary.train(['a bird sang'] * 99, model, 14)
  vocabularies.record(vocabulary.load(str(model)), str(folder))
  moved = model.rename(tmp_path / 'moved.model')
  assert chosen_vocabulary(None, folder) is None
  moved.rename(model)
  assert chosen_vocabulary(None, folder) == str(model)


def test_the_vocabulary_of_the_tasks_where_the_run_says_none():
  gin.clear_config()
  gin.bind_parameter('get_vocabulary.mixture_or_task_name', TASK)
  examples.choose_vocabulary('bytes', '/no/such')
  found = examples.vocabulary()
  assert set(found) == {'inputs', 'targets'}
  for one in found.values():
    assert one.encode('a') == [100]


@pytest.mark.parametrize(
  'model_type, sides',
  [
    ('bitransformer', ['encoder', 'decoder']),
    ('lm', ['decoder']),
    ('delimited_lm', ['decoder']),
    ('aligned', ['encoder']),
  ],
)
def test_defaults_suit_the_model(run, model_type, sides):
  run(model_type=model_type)
  features = {'encoder': 'inputs', 'decoder': 'targets'}
  assert examples.defaults().texts == {
    side: examples.DEFAULTS[features[side]] for side in sides
  }


def test_defaults_fit_the_demo_even_in_bytes():
  gin_files.parse(
    ['sizes/tiny.gin', 'variants/random.gin', 'runs/demo_finetune.gin'],
    ['utils.run.init_checkpoint = None'],
  )
  with gin.unlock_config():
    gin.bind_parameter('run.vocabulary', vocabulary.load('bytes'))
  lengths = gin.get_bindings(utils.run)['sequence_length']
  longest = {
    side: max(map(len, rows)) for side, rows in examples.defaults().ids.items()
  }
  assert longest['encoder'] <= lengths['inputs']
  assert longest['decoder'] <= lengths['targets']
