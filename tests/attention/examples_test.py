"""Examples: given texts, those of a file or task, and the default ones."""

import pytest

from synth_mtf.attention import examples
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host.run_config import RunConfig
from synth_mtf.tasks import vocabulary

TASK = 'synth_glue_sst2_v002'


def inputs_of(model_type='bitransformer', lengths=None, name='bytes'):
  """A model, usually of bytes: a byte's id is its number and 3, EOS is 1."""
  known = vocabulary.load(name)
  vocabularies = dict.fromkeys(examples.SIDES, known)
  return examples.ModelInputs(model_type, lengths or {}, vocabularies)


BYTES = inputs_of()


def ids(text):
  return [*(byte + 3 for byte in text.encode()), 1]


def test_given_texts():
  inputs = ['ab', ' Ä ']
  found = examples.from_texts(BYTES, {'inputs': inputs, 'targets': ['cd', 'e']})
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
  alone = examples.from_texts(BYTES, {'inputs': inputs, 'targets': []})
  assert alone.ids == {'encoder': found.ids['encoder']}
  assert set(alone.tokens) == set(alone.texts) == {'encoder'}


@pytest.mark.parametrize(
  'model_type, side',
  [('lm', 'decoder'), ('delimited_lm', 'decoder'), ('aligned', 'encoder')],
)
def test_a_model_of_one_side_takes_either(model_type, side):
  model = inputs_of(model_type)
  for feature in ('inputs', 'targets'):
    found = examples.from_texts(model, {feature: ['ab']})
    assert found.ids == {side: [ids('ab')]}
    assert found.texts == {side: ['ab']}
  feature = {'encoder': 'inputs', 'decoder': 'targets'}[side]
  assert examples.defaults(model).texts == {side: examples.DEFAULTS[feature]}


def test_pieces_of_a_vocabulary_of_pieces(tmp_path):
  path = tmp_path / 'some.model'
  vocabulary.train([f'a bird sang {i}' for i in range(99)], path, 26)
  model = inputs_of(name=str(path))
  found = examples.from_texts(model, {'inputs': ['a bird']})
  *pieces, end = found.tokens['encoder'][0]
  assert ''.join(pieces).replace('▁', ' ').strip() == 'a bird'
  assert end == '</s>'
  assert len(found.ids['encoder'][0]) == len(pieces) + 1


@pytest.mark.parametrize(
  'inputs, targets, model_type, message',
  [
    ([], [], 'bitransformer', 'expected inputs, with or without'),
    ([], ['a'], 'bitransformer', 'expected inputs, with or without'),
    (['a', 'b'], ['c'], 'bitransformer', '2 inputs and 1 targets: exp'),
    (['a', ' '], [], 'bitransformer', 'a text is empty'),
    (['a'], [''], 'bitransformer', 'a text is empty'),
    (['a'], ['b'], 'lm', 'inputs or targets, not both: the model has one dec'),
    (['a'], [], 'other', "a model of type 'other'"),
    (['a'], [], ['lm'], r"a model of type \['lm'\]"),
  ],
)
def test_texts_that_do_not_fit(inputs, targets, model_type, message):
  model = inputs_of(model_type)
  with pytest.raises(UserError, match=message):
    examples.from_texts(model, {'inputs': inputs, 'targets': targets})


def test_texts_as_long_as_the_model():
  model = inputs_of(lengths={'inputs': 3, 'targets': 3})
  examples.from_texts(model, {'inputs': ['ab'], 'targets': ['cd']})
  with pytest.raises(UserError, match='decoder has 4 tokens.* takes 3 '):
    examples.from_texts(
      model, {'inputs': ['ab', 'a'], 'targets': ['ab', 'abc']}
    )


def from_file(tmp_path, content):
  path = tmp_path / 'texts'
  if content is not None:
    path.write_bytes(content)
  return examples.from_file(BYTES, str(path))


def test_a_file(tmp_path):
  found = from_file(tmp_path, '\ufeffab\n\nÄ\u2028c\n'.encode())
  assert found.texts == {'encoder': ['ab', 'Ä\u2028c']}
  found = from_file(tmp_path, b'ab\tc\r\nd\tef\r\n')
  assert found.texts == {'encoder': ['ab', 'd'], 'decoder': ['c', 'ef']}
  assert found.ids['decoder'] == [ids('c'), ids('ef')]


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'is missing or empty; expected one example per line'),
    (b' \n\n', 'is missing or empty; expected one example per line'),
    (b'a\tb\tc\n', 'texts:1: 3 columns; expected an input, or an input, a'),
    (b'a\tb\tc\nd\n', 'texts:1: 3 columns'),
    (b'a\tb\nc\n', 'texts:2: 1 columns'),
    (b'\na\n\nb\tc\n', 'texts:4: 2 columns'),  # as an editor counts
    (b'a\t \n', 'a text is empty'),
    (b'ab\xff', 'texts cannot be read: .*position 2'),
    (None, 'texts is missing or empty'),
  ],
)
def test_a_file_that_does_not_fit(tmp_path, content, message):
  with pytest.raises(UserError, match=message):
    from_file(tmp_path, content)


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
  found = examples.from_task(BYTES, TASK, 'validation', count)
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
def test_examples_are_what_the_model_gets():
  lengths = {'inputs': 7, 'targets': 4}
  found = examples.from_task(inputs_of(lengths=lengths), TASK, 'train', 1)
  assert len(found.ids['encoder'][0]) == 7
  assert found.tokens['decoder'] == [['<s>', *'pos']]
  found = examples.from_task(inputs_of('lm', lengths), TASK, 'train', 1)
  assert found.texts == {'decoder': ['pos']}
  found = examples.from_task(inputs_of('delimited_lm'), TASK, 'train', 1)
  inputs = found.texts['decoder'][0].removesuffix(' positive')
  assert found.ids == {'decoder': [[*ids(inputs), *ids('positive')]]}


@pytest.mark.usefixtures('sst2')
def test_a_task_of_another_vocabulary(tmp_path):
  path = tmp_path / 'some.model'
  vocabulary.train([f'a bird sang {i}' for i in range(99)], path, 26)
  message = f'{TASK} has another vocabulary for its inputs'
  with pytest.raises(UserError, match=message):
    examples.from_task(inputs_of(name=str(path)), TASK, 'train', 1)


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
    examples.from_task(BYTES, name, split, 1)


def test_defaults_fit_the_demo_even_in_bytes():
  gin_files.parse(
    ['sizes/tiny.gin', 'variants/random.gin', 'runs/demo_finetune.gin'],
    ['utils.run.init_checkpoint = None'],
  )
  lengths = RunConfig().lengths
  assert lengths
  longest = {
    side: max(map(len, rows))
    for side, rows in examples.defaults(BYTES).ids.items()
  }
  assert longest['encoder'] <= lengths['inputs']
  assert longest['decoder'] <= lengths['targets']
