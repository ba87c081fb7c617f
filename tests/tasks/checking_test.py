"""Each fault a copy of the data can have: file, line, found, expected."""

import json
from typing import Any

import pytest

from synth_mtf import tasks
from synth_mtf.errors import UserError
from tests.tasks import folder
from tests.tasks.rows import run

_TASKS = {
  'cola': 'glue_cola_v002',
  'rte': 'glue_rte_v002',
  'stsb': 'glue_stsb_v002',
  'boolq': 'super_glue_boolq_v102',
  'wsc': 'super_glue_wsc_v102_simple_train',
  'record': 'super_glue_record_v102',
  'copa': 'super_glue_copa_v102',
  'wic': 'super_glue_wic_v102',
  'dpr': 'dpr_v001_simple',
  'squad': 'squad_v010_allanswers',
  'news': 'ag_news',
  'chat': 'personachat',
  'web': 'web_questions_open_test',
}
_COLA = b'gj04\t1\t\tThe "car" honked "its way.\n'
_RTE = b'index\tsentence1\tsentence2\tlabel\n0\tA ran.\tA moved.\tentailment\n'
_STSB = b'index\tsentence1\tsentence2\tscore\n0\ta\tb\t5.000\n'
_DPR = b'A met B as he ran.\n%s\nA,B\n%s\n\n'
_GOOD_DPR = _DPR % (b'he', b'A')
_BOOLQ = {'question': 'is it', 'passage': 'It is.', 'idx': 0, 'label': True}
_WSC = json.loads(
  '{"text": "Mark told Pete lies. He lied.", "idx": 0, "label": true, '
  '"target": {"span1_index": 0, "span1_text": "Mark", "span2_index": 4, '
  '"span2_text": "He"}}'
)
_RECORD: dict[str, Any] = {
  'idx': 0,
  'passage': {'text': 'Ann met Bob.', 'entities': [{'start': 0, 'end': 2}]},
  'qas': [{'idx': 0, 'query': '@placeholder', 'answers': [{'text': 'Ann'}]}],
}
_COPA = json.loads(
  '{"premise": "It rained.", "choice1": "a", "choice2": "b", '
  '"question": "why", "idx": 0, "label": 0}'
)
_WIC = json.loads(
  '{"word": "go", "sentence1": "Go.", "sentence2": "Going on", "idx": 0, '
  '"start1": 0, "end1": 2, "start2": 0, "end2": 5, "label": true}'
)


def _rows(good, **changed) -> bytes:
  """Two lines of JSON; the second one is changed."""
  rows = [good, {**good, **changed}]
  return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


def _wsc(**changed) -> bytes:
  return _rows(_WSC, target={**_WSC['target'], **changed})


def _record(**changed) -> bytes:
  return _rows(_RECORD, qas=[{**_RECORD['qas'][0], **changed}])


def _squad(*answers) -> bytes:
  qas = [
    {
      'id': f'q{i}',
      'question': 'Where?',
      'answers': [{'text': text, 'answer_start': start}],
    }
    for i, (text, start) in enumerate(answers)
  ]
  paragraphs = [{'context': 'The cat sat on the mat.', 'qas': qas}]
  data = [{'title': 'Cats', 'paragraphs': paragraphs}]
  return json.dumps({'data': data, 'version': '1.1'}, indent=1).encode()


def _web(target) -> bytes:
  row = {'url': 'x', 'utterance': 'who?', 'targetValue': target}
  good = {**row, 'targetValue': '(list (description A))'}
  return json.dumps([good, {**row, 'utterance': 'why?'}], indent=1).encode()


_SQUAD = _squad(('mat', 19))
_NO_JSON = 'JSON that does not parse'
# The file, its bytes, the line, what was found and expected, and how many rows
# remain without the bad ones; None if the file cannot be read at all.
_FAULTS = [
  ('cola', b'a\tlabel\tb\tc\n' + _COLA, 1, "label 'label'", 'one of: 0 or', 1),
  ('rte', _RTE.partition(b'\n')[2], 1, "the column 'sentence1'", 'label', None),
  ('cola', _COLA + b'a\t1\tOops.\n', 2, '3 columns', '4 (source, is', 1),
  ('rte', _RTE + b'1\ta\tb\tc\tentailment\n', 3, "label 'c'", '0 or ent', 1),
  ('cola', b'a\t%s\t\tb\n' % (b'1' * 60), 1, f"'{'1' * 60}'", 'one of', 0),
  ('cola', b'a\t%s\t\tb\n' % (b'1' * 61), 1, f"'{'1' * 57}...'", 'one of', 0),
  ('cola', _COLA + b'\n' + _COLA, 2, '1 columns', '4 (source', 2),
  ('cola', _COLA + b' \t\n', 2, '2 columns', '4 (source', 1),
  ('cola', _COLA + b'a\t1\t\tb\rc\n', 2, '1 columns', '4 (source', 2),
  ('cola', _COLA + b'a\t1\t\tcaf\xe9.\n', 2, '0xe9 at column 9', 'UTF-8', 1),
  ('cola', _COLA + b'a\t1\t\tc\0\0.\n', 2, '0x00 at column 7', 'UTF-8', 1),
  ('rte', _RTE + b'1\ta\tb\tmaybe\n', 3, "label 'maybe'", '1 or not_ent', 1),
  ('stsb', _STSB + b'1\ta\tb\tnan\n', 3, "score 'nan'", 'from 0 to 5', 1),
  ('stsb', _STSB + b'1\ta\tb\t3', 3, 'without a line end', 'its score', 1),
  ('boolq', _rows(_BOOLQ)[:-9] + b'\n', 2, _NO_JSON, 'one JSON object', 1),
  ('boolq', _rows(_BOOLQ, label='true'), 2, '\'"true"\'', 'one of false', 1),
  ('boolq', _rows(_BOOLQ, label=1), 2, "the label '1'", 'one of false', 1),
  ('boolq', _rows(_BOOLQ, question='\ud83d'), 2, 'half of a', 'whole char', 1),
  ('boolq', _rows(_BOOLQ).replace(b'pass', b'x', 1), 1, "'passage'", 'keys', 1),
  ('wsc', _wsc(span2_index=6), 2, 'with span2_index 6', 'the index of a', 1),
  ('wsc', _wsc(span1_text='Ann'), 2, '"span1_text": "Ann"', 'at these', 1),
  ('wsc', _wsc(span2_index=3), 2, "where 'lies.'", 'that is the pronoun', 1),
  ('wsc', _rows(_WSC).replace(b'He', b'H\\\\e'), 1, 'the pronoun', 'index', 0),
  ('wsc', _wsc(span2_index=0, span2_text='Mark'), 2, 'index 0', 'not the f', 1),
  ('wsc', _rows(_WSC).replace(b' P', b'  P', 1), 1, 'index 4', 'counted', 1),
  ('record', _record(answers=[]), 2, 'without answers', 'at least one', 1),
  ('record', _record(query='Who?'), 2, "'Who?'", 'a @placeholder in it', 1),
  ('record', _record(answers=[{'text': 'Eve'}]), 2, "'Eve'", 'an entity', 1),
  ('copa', _rows(_COPA), 1, "'why'", 'cause, effect', 0),
  ('wic', _rows(_WIC, end2=9), 2, 'from 0 to 9', 'sentence2, which has 8', 1),
  ('wic', _rows(_WIC, end1=0), 2, 'from 0 to 0', 'a span of sentence1', 1),
  ('squad', _squad(('mat', 19), ('mat', 99)), 20, 'q1: the answer', 'a', 1),
  ('squad', _squad(('cat', 4), ('mat', 4)), 20, "has 'cat' there", 'a span', 1),
  ('squad', _SQUAD.replace(b'"q0"', b'1'), 1, "'id': '1'", 'a string', 0),
  ('squad', _SQUAD[:-60], 17, _NO_JSON, '{"data": [{', 0),
  ('squad', _SQUAD + b'\n{"more": 1}', 26, f'{_NO_JSON} (Extra', '{"data', 0),
  ('squad', b'{"version" 1,' + _SQUAD[1:], 1, _NO_JSON, '{"data": [{', 0),
  ('squad', b'{"data": [{}\n{}]}', 2, f"{_NO_JSON} (Expecting ','", '{"d', 0),
  ('squad', _SQUAD.replace(b' ],\n "v', b' ,],\n "v'), 23, _NO_JSON, '{"d', 0),
  ('dpr', _GOOD_DPR + _DPR % (b'she', b'A'), 7, "'she'", 'a word', 1),
  ('dpr', _GOOD_DPR + _DPR % (b'he', b'C'), 9, "'C'", "'A,B'", 1),
  ('news', b'"1","a","b"\n"2","a"x","b"\n', 2, 'CSV that does', 'class, t', 1),
  ('news', b'"1","a","b"\n"5","a","b"\n', 2, "the class '5'", '1, 2, 3, 4', 1),
  ('web', _web(None), 9, "'targetValue': 'null'", 'a string', 1),
  ('web', _web('(list)'), 9, "no answer in '(list)'", '(description', 1),
  ('web', b'{}', 1, "file: '{}'", 'a list', 0),
  ('chat', b'1 a\tb\n1 a\tb\n2 c\n', 3, 'without a response', 'a tab', 1),
]


def _write(data_dir, name: str, data: bytes):
  task = tasks.get(f'synth_{_TASKS[name]}')
  return task, folder.write(data_dir / folder.train_file(task.name), data)


@pytest.mark.parametrize(
  'name, data, line, found, expected, good_rows', _FAULTS
)
def test_fault_is_located_or_skipped_and_counted(
  name, data, line, found, expected, good_rows, data_dir, monkeypatch, caplog
):
  task, path = _write(data_dir, name, data)
  lengths = {'inputs': 9, 'targets': 9}
  for use in (
    lambda: tasks.check([task.name], ['train']),
    lambda: task.get_dataset(lengths, 'train'),
  ):
    with pytest.raises(UserError) as error:
      use()
    message = str(error.value)
    assert expected in message.partition(found)[2]
    assert f'{path}:{line}: ' in message
  monkeypatch.setenv('SYNTH_MTF_SKIP_BAD_ROWS', '1')
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
  files = 'glue/CoLA/train.tsv', 'superglue/WSC/train.jsonl', 'squad/'
  for name in (*files, str(data_dir), 'SYNTH_MTF_DATA_DIR'):
    assert name in str(error.value)


@pytest.mark.parametrize(
  ('file', 'data', 'message'),
  [
    ('xsum-extracts-from-downloads/1.data', '', 'xsum needs XSum-TRAINING'),
    ('XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json', '', 'and articles in xsum'),
    ('train.jsonl', '{"document": ""}', "train.jsonl:1: row without 'summary'"),
  ],
)
def test_parts_of_xsum(file, data, message, data_dir):
  folder.write(data_dir / 'xsum' / file, data.encode())
  with pytest.raises(UserError, match=message):
    tasks.check(['synth_xsum_v110'], ['train'])


@pytest.mark.parametrize(
  ('ids', 'message'),
  [
    ('[' * 100_000, 'does not parse .* expected lists of ids by split'),
    ('{"train": [%s]}' % ('1' * 5000), 'does not parse .Exceeds the limit'),
    ('{"train": [["1"]]}', r"1: 'train'\[0\]: .*; expected a string"),
    ('{"train":\n[1 2]}', 'json:2: JSON that does not parse'),
    ('{"test": []}', "file without 'train', with 'test'"),
    ('\ufeff{"train": ["1"]}', 'an article of the parts none'),
  ],
)
def test_ids_of_xsum(ids, message, data_dir):
  folder.write(data_dir / 'xsum/bbc-summary-data/1.summary', b'')
  name = 'XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json'
  folder.write(data_dir / 'xsum' / name, ids.encode())
  with pytest.raises(UserError, match=message):
    tasks.check(['synth_xsum_v110'], ['train'])


def test_task_without_tfds_asks_for_a_folder():
  with pytest.raises(UserError, match='not in TensorFlow Datasets'):
    tasks.check(['synth_text_span_corruption'], ['train'])


def test_empty_file_and_header_alone_have_no_rows(data_dir):
  for name, data in (('cola', b''), ('rte', _RTE.splitlines(True)[0])):
    task, path = _write(data_dir, name, data)
    with pytest.raises(UserError, match=f'no rows in {path}'):
      tasks.check([task.name], ['train'])


def test_bad_text_is_located(data_dir, monkeypatch, caplog):
  good = (b'A line of text. ' * 250 + b'\n') * 500  # two blocks
  path = folder.write(data_dir / 'corpus/a.txt', good + b'caf\xe9\n')
  with pytest.raises(Exception, match=f'{path}:501: the byte 0xe9'):
    folder.texts(shuffle=False)
  monkeypatch.setenv('SYNTH_MTF_SKIP_BAD_ROWS', '1')
  with caplog.at_level('WARNING', logger='absl'):
    assert folder.texts(shuffle=False)
  assert f'{path}:501: the byte 0xe9' in caplog.text


def test_rows_that_are_left_out_are_counted(data_dir):
  rte, path = _write(data_dir, 'rte', _RTE + b'1\tA ran.\n')
  (note,) = tasks.check([rte.name], ['train'])
  assert note.startswith(f'{path}:3: a broken row; left out')
  assert note.endswith('(1 of 2 rows)')
  _write(data_dir, 'rte', _RTE.replace(b'\n', b'\r'))
  (note,) = tasks.check([rte.name], ['train'])
  assert '(2 of 2 lines, this is the first)' in note


def test_all_faults_come_at_once(data_dir):
  cola, path = _write(data_dir, 'cola', b'bad\n' * 30 + _COLA)
  rte, other = _write(data_dir, 'rte', _RTE + b'0\ta\tb\tno\n')
  with pytest.raises(UserError, match=f'{path}:20:') as error:
    tasks.check([cola.name, rte.name], ['train'])
  assert f'{path}:21:' not in str(error.value)
  assert f'{other}:3:' in str(error.value)


def test_unknown_names_and_splits(data_dir):
  with pytest.raises(UserError) as error:
    tasks.check(['glue_cola', folder.COLA], ['dev'])
  assert "did you mean 'synth_glue_cola_v002'" in str(error.value)
  assert "v002 has no split 'dev'; it has train, valid" in str(error.value)
