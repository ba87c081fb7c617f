"""Examples: given texts, those of a file or task, and the default ones."""

import dataclasses

import pytest
import seqio
import tensorflow.compat.v1 as tf

from synth_mtf.attention import examples
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host.run_config import RunConfig
from synth_mtf.tasks import vocabulary

TASK = 'synth_glue_sst2_v002'
SENTENCES = 'a dull film', 'a warm film', 'no', 'fine', 'it is odd'


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


class WithoutEnd(seqio.ByteVocabulary):
  """A vocabulary that has no EOS; T5 appends its own."""

  @property
  def eos_id(self):
    return None


def test_texts_end_even_if_the_vocabulary_has_no_end():
  model = dataclasses.replace(BYTES, vocabularies={'encoder': WithoutEnd()})
  found = examples.from_texts(model, {'inputs': ['a']})
  assert found.ids == {'encoder': [ids('a')]}
  assert found.tokens == {'encoder': [['a', '<1>']]}


@pytest.mark.parametrize(
  'inputs, targets, model_type, message',
  [
    ([], [], 'bitransformer', 'expected inputs, with or without'),
    ([], ['a'], 'bitransformer', 'expected inputs, with or without'),
    (['a', 'b'], ['c'], 'bitransformer', '2 inputs and 1 targets: exp'),
    (['a', ' '], [], 'bitransformer', 'a text is empty'),
    (['a'], [''], 'bitransformer', 'a text is empty'),
    (['a'], ['b'], 'lm', 'inputs or targets, not both: the model has one dec'),
    ([], [], 'lm', 'expected inputs or targets'),
    (['a'], [], 'other', "a model of type 'other'"),
    (['a'], [], ['lm'], r"a model of type \['lm'\]"),
  ],
)
def test_texts_that_do_not_fit(inputs, targets, model_type, message):
  model = inputs_of(model_type)
  with pytest.raises(UserError, match=message):
    examples.from_texts(model, {'inputs': inputs, 'targets': targets})


@pytest.mark.parametrize(
  'model_type, side, most',
  [
    ('bitransformer', 'encoder', 3),
    ('bitransformer', 'decoder', 5),
    ('lm', 'decoder', 5),
    ('aligned', 'encoder', 3),
    ('delimited_lm', 'decoder', 8),  # both in one row
  ],
)
def test_the_most_tokens_of_a_side(model_type, side, most):
  assert inputs_of(model_type, {'inputs': 3, 'targets': 5}).most(side) == most
  assert inputs_of(model_type).most(side) is None


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
  """SST-2 in five rows, and another one to train on."""
  folder = tmp_path / 'data' / 'glue' / 'SST-2'
  folder.mkdir(parents=True)
  dev = [f'{sentence} \t{i % 2}' for i, sentence in enumerate(SENTENCES)]
  for part, rows in (('train', ['a fine film \t1']), ('dev', dev)):
    lines = ['sentence\tlabel', *rows]
    (folder / f'{part}.tsv').write_text('\n'.join(lines) + '\n')
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(tmp_path / 'data'))
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path / 'index'))
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'bytes')


@pytest.mark.usefixtures('sst2')
@pytest.mark.parametrize('count, expected', [(2, 2), (9, 5)])
def test_the_first_examples_of_a_task(count, expected):
  found = examples.from_task(BYTES, TASK, 'validation', count)
  inputs = [f'sst2 sentence: {sentence} ' for sentence in SENTENCES]
  targets = [('negative', 'positive')[i % 2] for i in range(len(SENTENCES))]
  assert found.texts == {
    'encoder': inputs[:expected],
    'decoder': targets[:expected],
  }
  assert found.ids['decoder'] == list(map(ids, targets[:expected]))
  assert found.tokens['decoder'][0] == ['<s>', *'negative']


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
  other = vocabulary.load(str(path))
  for side, feature in (('encoder', 'inputs'), ('decoder', 'targets')):
    known = {**BYTES.vocabularies, side: other}
    model = dataclasses.replace(BYTES, vocabularies=known)
    message = f'{TASK} has another vocabulary for its {feature}'
    with pytest.raises(UserError, match=message):
      examples.from_task(model, TASK, 'train', 1)


NAME = 'task_of_somebody'


@pytest.fixture
def add_task(request, monkeypatch):
  """Registers a task of rows, in bytes."""
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'bytes')

  def add(dataset, *features):
    seqio.TaskRegistry.add(
      NAME,
      source=seqio.FunctionDataSource(
        lambda split, shuffle_files, seed=None: dataset(), splits=['train']
      ),
      preprocessors=[
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos,
      ],
      output_features={x: vocabulary.OUTPUT_FEATURES[x] for x in features},
    )
    request.addfinalizer(lambda: seqio.TaskRegistry.remove(NAME))

  return add


def sang():
  return tf.data.Dataset.from_tensors({'targets': 'sang'})


@pytest.mark.parametrize('features', [['targets'], ['inputs', 'targets']])
def test_a_task_without_inputs(add_task, features):
  add_task(sang, *features)
  found = examples.from_task(inputs_of('lm'), NAME, 'train', 1)
  assert found.ids == {'decoder': [ids('sang')]}
  message = f"{NAME} has no inputs, which a model of type 'bitransformer' reads"
  with pytest.raises(UserError, match=message):
    examples.from_task(BYTES, NAME, 'train', 1)


def test_long_examples_if_the_model_has_no_lengths(add_task):
  add_task(
    lambda: tf.data.Dataset.from_tensors({'targets': 'a' * 600}), 'targets'
  )
  for lengths, expected in (({}, 512), ({'targets': 700}, 601)):
    found = examples.from_task(inputs_of('lm', lengths), NAME, 'train', 1)
    assert len(found.ids['decoder'][0]) == expected


def test_a_task_without_examples(add_task):
  add_task(lambda: sang().take(0), 'targets')
  with pytest.raises(UserError, match=f"{NAME} has no examples in .*'train'"):
    examples.from_task(inputs_of('lm'), NAME, 'train', 1)


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
