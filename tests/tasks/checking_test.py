"""Each fault a copy of the data can have: file, line, found, expected."""

import json
import pathlib
from typing import Any

import pytest

from synth_mtf import tasks
from synth_mtf.errors import UserError
from tests.tasks.rows import run

_COLA = [
  b'gj04\t1\t\tThey drank the pub dry.\n',
  b'gj04\t0\t*\tThey drank the pub.\n',
  b'gj04\t1\t\tThe "car" honked "its way.\n',
]
_RTE_HEADER = b'index\tsentence1\tsentence2\tlabel\n'
_RTE = b'0\tA dog ran.\tA dog moved.\tentailment\n'
_BOOLQ = {'question': 'is it', 'passage': 'It is.', 'idx': 0, 'label': True}
_CONTEXT = 'The cat sat on the mat.'


def _write(data_dir, name, data: bytes) -> pathlib.Path:
  path = data_dir / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(data)
  return path


def _squad(*answers) -> bytes:
  qas = [
    {
      'id': f'q{i}',
      'question': 'Where?',
      'answers': [{'text': text, 'answer_start': start}],
    }
    for i, (text, start) in enumerate(answers)
  ]
  paragraphs = [{'context': _CONTEXT, 'qas': qas}]
  data = [{'title': 'Cats', 'paragraphs': paragraphs}]
  return json.dumps({'data': data, 'version': '1.1'}, indent=1).encode()


def _jsonl(*rows) -> bytes:
  return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


_COLA_FILE = 'glue/CoLA/train.tsv'
_RTE_FILE = 'glue/RTE/train.tsv'
_BOOLQ_FILE = 'superglue/BoolQ/train.jsonl'
_SQUAD_FILE = 'squad/train-v1.1.json'
_TASK = {
  _COLA_FILE: 'synth_glue_cola_v002',
  _RTE_FILE: 'synth_glue_rte_v002',
  _BOOLQ_FILE: 'synth_super_glue_boolq_v102',
  _SQUAD_FILE: 'synth_squad_v010_allanswers',
  'superglue/WSC/train.jsonl': 'synth_super_glue_wsc_v102_simple_train',
  'superglue/ReCoRD/train.jsonl': 'synth_super_glue_record_v102',
  'superglue/COPA/train.jsonl': 'synth_super_glue_copa_v102',
  'superglue/WiC/train.jsonl': 'synth_super_glue_wic_v102',
  'glue/STS-B/train.tsv': 'synth_glue_stsb_v002',
  'ag_news_csv/train.csv': 'synth_ag_news',
  'dpr/train.c.txt': 'synth_dpr_v001_simple',
  'convai2/train_self_original_no_cands.txt': 'synth_personachat',
}
_WSC: dict[str, Any] = {
  'text': 'Mark told Pete lies. He lied.',
  'target': {
    'span1_index': 0,
    'span2_index': 4,
    'span1_text': 'Mark',
    'span2_text': 'He',
  },
  'idx': 0,
  'label': True,
}
_RECORD = {
  'idx': 0,
  'passage': {'text': 'Ann met Bob.', 'entities': [{'start': 0, 'end': 2}]},
  'qas': [{'idx': 0, 'query': '@placeholder met', 'answers': []}],
}
_GOOD_RECORD = {
  **_RECORD,
  'qas': [
    {'idx': 0, 'query': '@placeholder met', 'answers': [{'text': 'Ann'}]}
  ],
}
_COPA = {
  'premise': 'It rained.',
  'choice1': 'a',
  'choice2': 'b',
  'question': 'cause',
  'idx': 0,
  'label': 0,
}
_WIC = {
  'word': 'go',
  'sentence1': 'Go.',
  'sentence2': 'Going on',
  'start1': 0,
  'end1': 2,
  'start2': 0,
  'end2': 5,
  'idx': 0,
  'label': True,
}
_STSB_HEADER = b'index\tsentence1\tsentence2\tscore\n'

# name: file, its bytes, the line, what was found, what was expected, good rows.
_FAULTS = {
  'header where there is none': (
    _COLA_FILE,
    b'source\tlabel\tmark\tsentence\n' + b''.join(_COLA),
    (1, "the label 'label'", 'one of: 0 or unacceptable, 1 or acceptable', 3),
  ),
  'no header where there is one': (
    _RTE_FILE,
    _RTE * 2,
    (1, "without the column 'sentence1'", 'sentence1, sentence2, label', None),
  ),
  'too few columns': (
    _COLA_FILE,
    _COLA[0] + b'gj04\t1\tOops.\n' + _COLA[1],
    (2, '3 tab-separated columns', '4 (source, is_acceptable', 2),
  ),
  'too many columns': (
    _RTE_FILE,
    _RTE_HEADER + _RTE + b'1\ta\tb\tc\tentailment\n',
    (3, '5 tab-separated columns', '4 (index, sentence1', 1),
  ),
  'empty line': (
    _COLA_FILE,
    _COLA[0] + b'\n' + _COLA[1],
    (2, 'an empty line', 'a row', 2),
  ),
  'empty last line': (
    _COLA_FILE,
    _COLA[0] + b'\n',
    (2, 'an empty line', 'a row', 1),
  ),
  'invalid UTF-8': (
    _COLA_FILE,
    _COLA[0] + b'gj04\t1\t\tcaf\xe9 au lait.\n',
    (2, 'the byte 0xe9 at column 12', 'UTF-8 text', 1),
  ),
  'label outside the set': (
    _RTE_FILE,
    _RTE_HEADER + _RTE + b'1\ta\tb\tmaybe\n',
    (3, "the label 'maybe'", '0 or entailment, 1 or not_entailment', 1),
  ),
  'score that is no number': (
    'glue/STS-B/train.tsv',
    _STSB_HEADER + b'0\ta\tb\t5.000\n1\ta\tb\tnan\n',
    (3, "the score 'nan'", 'a number from 0 to 5', 1),
  ),
  'JSON that does not parse': (
    _BOOLQ_FILE,
    _jsonl(_BOOLQ) + b'{"question": "is it", "passage\n',
    (2, 'JSON that does not parse', 'one JSON object a line', 1),
  ),
  'JSON without a key': (
    _BOOLQ_FILE,
    _jsonl(_BOOLQ, {'question': 'q', 'idx': 1, 'label': False}),
    (2, "row without 'passage'", "a string under 'passage'", 1),
  ),
  'JSON of another type': (
    _BOOLQ_FILE,
    _jsonl(_BOOLQ, {**_BOOLQ, 'label': 'true'}),
    (2, 'the label \'"true"\'', 'one of false, true', 1),
  ),
  'number for a truth value': (
    _BOOLQ_FILE,
    _jsonl(_BOOLQ, {**_BOOLQ, 'label': 1}),
    (2, "the label '1'", 'one of false, true', 1),
  ),
  'half a character in JSON': (
    _BOOLQ_FILE,
    _jsonl(_BOOLQ, {**_BOOLQ, 'question': '\ud83d'}),
    (2, 'half of a surrogate pair', 'whole characters', 1),
  ),
  'index outside the text': (
    'superglue/WSC/train.jsonl',
    _jsonl(_WSC, {**_WSC, 'target': {**_WSC['target'], 'span2_index': 6}}),
    (2, "the pronoun 'He' with span2_index 6", 'the index of a', 1),
  ),
  'span that is not in the text': (
    'superglue/WSC/train.jsonl',
    _jsonl(_WSC, {**_WSC, 'target': {**_WSC['target'], 'span1_text': 'Ann'}}),
    (2, '"span1_text": "Ann"', 'words of the text at these', 1),
  ),
  'query without answers': (
    'superglue/ReCoRD/train.jsonl',
    _jsonl(_RECORD),
    (1, 'a query without answers', 'at least one', 0),
  ),
  'answer outside its passage': (
    _SQUAD_FILE,
    _squad(('mat', 19), ('mat', 99)),
    (20, "question q1: the answer 'mat' at character 99", 'a span', 1),
  ),
  'answer elsewhere in its passage': (
    _SQUAD_FILE,
    _squad(('cat', 4), ('mat', 4)),
    (20, "which has 'cat' there", 'a span of the passage', 1),
  ),
  'SQuAD cut short': (
    _SQUAD_FILE,
    _squad(('mat', 19))[:-60],
    (17, 'JSON that does not parse', '{"data": [{', 0),
  ),
  'score cut short': (
    'glue/STS-B/train.tsv',
    _STSB_HEADER + b'0\ta\tb\t5.000\n1\ta\tb\t3',
    (3, 'a last line without a line end', 'its score in full', 1),
  ),
  'pronoun elsewhere in the text': (
    'superglue/WSC/train.jsonl',
    _jsonl(_WSC, {**_WSC, 'target': {**_WSC['target'], 'span2_index': 3}}),
    (2, "the pronoun 'He' with span2_index 3, where 'lies.'", 'is the pron', 1),
  ),
  'pronoun with a backslash': (
    'superglue/WSC/train.jsonl',
    _jsonl(_WSC).replace(b'He', b'H\\\\e'),
    (1, 'the pronoun', 'the index of a word', 0),
  ),
  'pronoun that is the first word': (
    'superglue/WSC/train.jsonl',
    _jsonl(
      _WSC,
      {
        **_WSC,
        'target': {
          **_WSC['target'],
          'span2_index': 0,
          'span2_text': 'Mark',
        },
      },
    ),
    (2, "'Mark' with span2_index 0", 'not the first word', 1),
  ),
  'pronoun behind two spaces': (
    'superglue/WSC/train.jsonl',
    _jsonl(_WSC, {**_WSC, 'text': _WSC['text'].replace(' Pete', '  Pete')}),
    (2, "the pronoun 'He' with span2_index 4", 'counted from 0', 1),
  ),
  'query without a placeholder': (
    'superglue/ReCoRD/train.jsonl',
    _jsonl(
      _GOOD_RECORD, {**_GOOD_RECORD, 'qas': [{'idx': 0, 'query': 'Who?'}]}
    ).replace(b'"Who?"', b'"Who?", "answers": [{"text": "Ann"}]'),
    (2, "the query 'Who?'", 'a @placeholder in it', 1),
  ),
  'answer that is no part of the passage': (
    'superglue/ReCoRD/train.jsonl',
    _jsonl(_GOOD_RECORD).replace(b'"Ann"}]', b'"Eve"}]'),
    (1, "the answer 'Eve'", 'an entity, a part of the passage', 0),
  ),
  'question of another kind': (
    'superglue/COPA/train.jsonl',
    _jsonl(_COPA, {**_COPA, 'question': 'why'}),
    (2, "the question 'why'", 'one of cause, effect', 1),
  ),
  'span outside its sentence': (
    'superglue/WiC/train.jsonl',
    _jsonl(_WIC, {**_WIC, 'end2': 9}),
    (2, 'the word from 0 to 9', 'a span of sentence2, which has 8', 1),
  ),
  'span that is empty': (
    'superglue/WiC/train.jsonl',
    _jsonl(_WIC, {**_WIC, 'end1': 0}),
    (2, 'the word from 0 to 0', 'a span of sentence1', 1),
  ),
  'rubbish behind the end': (
    _SQUAD_FILE,
    _squad(('mat', 19)) + b'\n{"more": 1}',
    (26, 'JSON that does not parse (Extra data', '{"data": [{', 0),
  ),
  'rubbish before the articles': (
    _SQUAD_FILE,
    b'{"version" 1.1,' + _squad(('mat', 19))[1:],
    (1, 'JSON that does not parse', '{"data": [{', 0),
  ),
  'articles without a comma': (
    _SQUAD_FILE,
    b'{"data": [{"paragraphs": []}\n{"paragraphs": []}]}',
    (2, "JSON that does not parse (Expecting ',' del", '{"data": [{', 0),
  ),
  'comma behind the last article': (
    _SQUAD_FILE,
    _squad(('mat', 19)).replace(b'}\n ],\n "version"', b'}\n ,],\n "version"'),
    (23, 'JSON that does not parse (Expecting value', '{"data": [{', 0),
  ),
  'pronoun that is not in its sentence': (
    'dpr/train.c.txt',
    b'A met B as he ran.\nhe\nA,B\nA\n\nA met B as he ran.\nshe\nA,B\nA\n\n',
    (7, "the pronoun 'she'", "a word of 'A met B as", 1),
  ),
  'CSV that does not parse': (
    'ag_news_csv/train.csv',
    b'"1","a","b"\n"2","a"x","b"\n',
    (2, 'CSV that does not parse', 'class, title, descr', 1),
  ),
  'class outside the set': (
    'ag_news_csv/train.csv',
    b'"1","a","b"\n"5","a","b"\n',
    (2, "the class '5'", 'one of 1, 2, 3, 4', 1),
  ),
  'answer that is no candidate': (
    'dpr/train.c.txt',
    b'A met B as he ran.\nhe\nA,B\nA\n\nA met B as he ran.\nhe\nA,B\nC\n\n',
    (9, "the answer 'C'", "one of 'A,B'", 1),
  ),
  'turn without a response': (
    'convai2/train_self_original_no_cands.txt',
    b'1 your persona: i run.\n2 hi\thello\n1 hi\thello\n2 bye\n',
    (4, 'a turn without a response', 'a tab', 1),
  ),
}


@pytest.mark.parametrize('fault', _FAULTS)
def test_fault_is_located(fault, data_dir):
  file, data, (line, found, expected, _) = _FAULTS[fault]
  path = _write(data_dir, file, data)
  task = _TASK[file]
  for use in (
    lambda: tasks.check([task], ['train']),
    lambda: tasks.get(task).get_dataset({'inputs': 9, 'targets': 9}, 'train'),
  ):
    with pytest.raises(UserError) as error:
      use()
    message = str(error.value)
    assert f'{path}:{line}: ' in message
    found_at = message.index(found)
    assert expected in message[found_at:]
    assert 'Traceback' not in message


@pytest.mark.parametrize('fault', _FAULTS)
def test_bad_rows_are_skipped_and_counted(fault, data_dir, monkeypatch, caplog):
  file, data, (_, found, _, good_rows) = _FAULTS[fault]
  _write(data_dir, file, data)
  monkeypatch.setenv('SYNTH_MTF_SKIP_BAD_ROWS', '1')
  task = tasks.get(_TASK[file])
  if good_rows is None:  # a file with another layout cannot be fixed that way
    with pytest.raises(UserError, match=found):
      task.num_input_examples('train')
    return
  assert task.num_input_examples('train') == good_rows
  if not good_rows:
    with pytest.raises(UserError, match='no rows'):
      tasks.check([task.name], ['train'])
    return
  tasks.check([task.name], ['train'])
  with caplog.at_level('WARNING', logger='absl'):
    rows = run(lambda: task.source.get_dataset('train', shuffle=False))
  assert len(rows) == good_rows
  assert f'{good_rows} examples remain' in caplog.text
  assert found in caplog.text


def test_missing_file_is_named(data_dir):
  with pytest.raises(UserError) as error:
    tasks.check(['synth_en_mix'], ['train'])
  message = str(error.value)
  for name in ('glue/CoLA/train.tsv', 'superglue/WSC/train.jsonl', 'squad/'):
    assert name in message
  assert str(data_dir) in message
  assert 'SYNTH_MTF_DATA_DIR' in message


def test_task_without_tfds_asks_for_a_folder():
  with pytest.raises(UserError, match='not in TensorFlow Datasets'):
    tasks.check(['synth_text_span_corruption'], ['train'])


def test_empty_file_and_header_alone_have_no_rows(data_dir):
  _write(data_dir, _COLA_FILE, b'')
  _write(data_dir, _RTE_FILE, _RTE_HEADER)
  with pytest.raises(UserError) as error:
    tasks.check([_TASK[_COLA_FILE], _TASK[_RTE_FILE]], ['train'])
  assert str(error.value).count('no rows in') == 2


def test_bad_text_is_located_while_it_streams(data_dir):
  good = (b'A line of text. ' * 250 + b'\n') * 500  # two blocks
  path = _write(data_dir, 'corpus/a.txt', good + b'caf\xe9\n')
  source = tasks.get('synth_text_span_corruption').source
  with pytest.raises(Exception, match=f'{path}:501: the byte 0xe9'):
    run(lambda: source.get_dataset('train', shuffle=False))


def test_all_faults_come_at_once(data_dir):
  _write(data_dir, _COLA_FILE, b'bad\n' * 30 + _COLA[0])
  _write(data_dir, _RTE_FILE, _RTE_HEADER + b'0\ta\tb\tno\n')
  with pytest.raises(UserError) as error:
    tasks.check([_TASK[_COLA_FILE], _TASK[_RTE_FILE]], ['train'])
  message = str(error.value)
  assert f'{data_dir}/{_COLA_FILE}:20:' in message
  assert '... and 10 more' in message
  assert f'{data_dir}/{_RTE_FILE}:2:' in message


def test_unknown_name_offers_the_nearest():
  with pytest.raises(UserError, match="did you mean 'synth_glue_cola_v002'"):
    tasks.check(['glue_cola'], ['train'])


def test_unknown_split_is_named(data_dir):
  with pytest.raises(UserError, match="no split 'dev'; it has train, valid"):
    tasks.check(['synth_glue_cola_v002'], ['dev'])
