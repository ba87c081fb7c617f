"""Tasks of the user's own, each in a YAML file."""

import contextlib
import csv
import gzip
import io
import json
import os
import re

import gin
import pytest
import seqio
import tensorflow.compat.v1 as tf
from t5.evaluation import metrics

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.host.run_config import RunConfig
from synth_mtf.run import checks
from synth_mtf.tasks import inspection
from tests.cli import command, t5_main
from tests.tasks.folder import write

FILE = """\
name: nli
files: {train: data/train.tsv, validation: data/dev.jsonl}
inputs: 'nli premise: {premise} hypothesis: {hypothesis}'
targets: '{label}'
labels: [yes, maybe, no]
metrics: [accuracy]
mixtures: {half: {synth_glue: 3, nli: 1}, all: {half: 4}}
"""
TSV = b'premise\thypothesis\tlabel\nIt ran.\tIt {x}.\tyes\n"It" sat.\t\t2\n'
ROW = b'{"premise": 1, "hypothesis": true, "label": "maybe"}\n'


@pytest.fixture
def file(tmp_path, monkeypatch):
  write(tmp_path / 'data/train.tsv', TSV)
  write(tmp_path / 'data/dev.jsonl', ROW)
  monkeypatch.setenv('SYNTH_MTF_TASK_FILE', str(tmp_path / 'task.yaml'))
  yield write(tmp_path / 'task.yaml', FILE.encode())
  monkeypatch.delenv('SYNTH_MTF_TASK_FILE', raising=False)
  assert not own_names()


def own_names():
  names = map(inspection.names, (seqio.TaskRegistry, seqio.MixtureRegistry))
  return [n for found in names for n in found if not n.startswith('synth_')]


def test_a_task_and_its_mixtures(file):
  task = seqio.get_mixture_or_task('nli')  # as T5's main looks it up
  tasks.check(['nli'], ['train', 'validation'])
  rows = [[*task.source.chosen.examples(s)] for s in ('train', 'validation')]
  assert [[row['targets'] for row in part] for part in rows] == [
    ['yes', 'no'],
    ['maybe'],
  ]
  assert [row['inputs'] for part in rows for row in part] == [
    'nli premise: It ran. hypothesis: It {x}.',
    'nli premise: "It" sat. hypothesis: ',
    'nli premise: 1 hypothesis: true',
  ]
  assert [task.postprocess_fn(x) for x in ('yes', 'no', '?')] == [0, 2, -1]
  assert task.metric_fns == [metrics.accuracy]
  assert own_names() == ['nli', 'all', 'half']
  write(file, FILE.replace('yes, maybe', 'maybe, yes').encode())
  assert tasks.get('nli').postprocess_fn('yes') == 1


def test_files_in_a_bucket(file, tmp_path):
  bucket = f'ram://{tmp_path}/train.tsv'
  with tf.io.gfile.GFile(bucket, 'wb') as stream:
    stream.write(TSV)
  write(file, FILE.replace('data/train.tsv', bucket).encode())
  task = tasks.get('nli')
  assert [row['targets'] for row in task.source.chosen.examples('train')] == [
    'yes',
    'no',
  ]


def test_log_perplexity_alone_has_no_mode_eval(file):
  """The host would skip the task and end without a word."""
  write(file, FILE.replace('[accuracy]', '[log_perplexity]').encode())
  read = 'mesh_eval_dataset_fn.mixture_or_task_name'
  for name, has_metric in (
    ('nli', False),
    ('synth_text_span_corruption', False),
    ('half', True),  # of GLUE
  ):
    gin.clear_config()
    gin.bind_parameter(read, name)
    gin.bind_parameter('run.mode', 'eval')
    refused = pytest.raises(
      UserError, match=f"{name} has no metric for mode 'e"
    )
    with contextlib.nullcontext() if has_metric else refused:
      checks.check_task(RunConfig(), is_cached=True)
    gin.bind_parameter('run.mode', 'perplexity_eval')
    checks.check_task(RunConfig(), is_cached=True)


def test_rates_are_shares_whatever_the_sizes(file):
  status, report, _ = command.run('tasks', 'all', f'--task_file={file}')
  assert status == 0
  shares = dict(re.findall(r'(\w+) +[\d,]+ +\w+ +[\d.]+ +([\d.]+)%', report))
  assert shares.pop('nli') == '25.00'
  assert sum(map(float, shares.values())) == pytest.approx(75, abs=0.1)
  # As in GLUE itself, in proportion to the rows.
  mnli, rte = (float(shares[f'synth_glue_{n}_v002']) for n in ('mnli', 'rte'))
  assert mnli / rte == pytest.approx(392_702 / 2_490, rel=0.05)
  assert 'No data folder is set' in report


def test_a_task_of_the_users_needs_no_data_folder(file):
  _, report, _ = command.run('tasks', 'nli', f'--task_file={file}')
  assert 'nli, train' in report
  assert 'No data folder is set' not in report


@pytest.mark.parametrize(
  'old, new, message',
  [
    (
      'name: nli',
      'name: synth_nli',
      r':1: the name .* without synth_ in front',
    ),
    ('name: nli', f'name: {"n" * 101}', ':1: the name .* 100 characters at'),
    ('[yes, maybe', '[yes, yes', ":5: 2 times the label 'yes'; expected once"),
    ('data/dev.jsonl', 'ram://no/a.tsv', ':2: ram://no/a.tsv does not exist'),
    ('name: nli', 'name: glue_cola_v002', ':1: the name .* is taken'),
    ('name: nli', 'name: ag_news', ':1: the name .* is taken'),
    ('half: {syn', 'nli: {syn', ":7: the name 'nli' is taken"),
    ('inputs:', 'input:', ":3: unknown field 'input'; did you mean 'inputs'"),
    ('metrics: [accuracy]', '', ":1: the file without 'metrics', with"),
    ('[accuracy]', '[acuracy]', ':6: metrics acuracy; expected accuracy or'),
    ('[accuracy]', 'accuracy', ":6: metrics: 'accuracy'; expected a list"),
    ('[yes', '[[yes]', r':5: labels\[0\]: .*; expected a string'),
    ('[yes, maybe, no]', '[no', ':6: YAML that does not parse: '),
    ('{premise}', '{premise', ":3: unmatched '{'"),
    ("'{label}'", 'label', ":4: no column in 'label'; .* as '{sentence}'"),
    ('dev.jsonl', 'no.jsonl', ':2: .*no.jsonl does not exist'),
    ('dev.jsonl', 'Dev.json', ':2: .*Dev.json does .*there is .*dev.jsonl'),
    ('inputs:', 'name:', ":1: 'name' appears twice"),
    ('{syn', '{nli: 1, nli: 2, syn', ":7: 'nli' appears twice"),
    ('{synth_glue: 3, nli: 1}', '{}', ':7: the mixture half without parts'),
    ('nli: 1', 'nli: -1', ":7: the rate '-1'"),
    ('synth_glue', 'glu', ":7: unknown task or mixture 'glu'; did you mean"),
    ('synth_glue', 'synth_ag_news_class', ':7: .*different output features'),
    (FILE, '', ":1: the file: 'null'; expected an object"),
    (
      'metrics',
      'quotes: no\nmetrics',
      ":6: quotes: 'no'; expected csv or text",
    ),
  ],
)
def test_a_fault_has_a_line_and_nothing_is_registered(file, old, new, message):
  tasks.get('nli')
  write(file, FILE.replace(old, new, 1).encode())
  for lookup in (tasks.get, seqio.get_mixture_or_task):
    with pytest.raises(UserError, match=f'^{file}{message}'):
      lookup('nli')
  assert 'nli' not in seqio.TaskRegistry.names()


def test_a_large_task_file_is_refused_at_once(file):
  """8 GB would not fit in memory; YAML of a megabyte takes many seconds."""
  os.truncate(file, 8 << 30)
  with pytest.raises(UserError, match='8,589,934,592 bytes .*1,048,576 at mos'):
    tasks.get('nli')


@pytest.mark.parametrize(
  'row, message',
  [
    (b'{"premise": 1}', "row without 'hypothesis'"),
    (ROW.replace(b'true', b'null'), "'hypothesis': 'null'; expected a string"),
    (ROW.replace(b'true', b'NaN'), "'hypothesis': 'NaN'; expected a string"),
    (ROW.replace(b'true', b'-Infinity'), "'hypothesis': '-Infinity'; expec"),
    (ROW.replace(b'true', b'1e999'), "'hypothesis': 'Infinity'; expected a"),
    (b'[' + ROW.strip() + b']', 'a JSON array; expected .*per line, as `jq'),
    (ROW.replace(b'{', b'{"label": 0,'), "'label' appears twice"),
    (ROW.replace(b'"maybe"', b'3'), "the label '3'; expected one of: 0 or yes"),
    (b'{', 'JSON that does not parse'),
  ],
)
def test_a_fault_of_a_row_has_its_line(file, row, message):
  path = write(file.parent / 'data/dev.jsonl', ROW + row)
  with pytest.raises(UserError, match=f'{path}:2: {message}'):
    tasks.check(['nli'], ['validation'])
  status, report, _ = command.run('doctor', f'--task_file={file}')
  assert (status, f'{path}:2: ' in report) == (1, True)


def test_a_path_may_begin_with_the_home_folder(file, monkeypatch):
  monkeypatch.setenv('HOME', str(file.parent))
  write(file, FILE.replace('data/dev', '~/data/dev').encode())
  write(file.parent / 'data/dev.jsonl', ROW)
  assert tasks.check(['nli'], ['validation']) == []


def test_a_column_that_is_not_used_may_lack_a_value(file):
  more = ROW.replace(b'}', b', "more": NaN, "most": null}')
  write(file.parent / 'data/dev.jsonl', ROW + more)
  assert tasks.check(['nli'], ['validation']) == []


def examples(file, name, data, more=''):
  """The inputs of a task on one file, and what is odd about it."""
  task = FILE.replace('data/dev.jsonl', name).replace('[yes, maybe, no]', '[y]')
  write(file, f'{task}{more}\n'.encode())
  write(file.parent / name, data)
  odd = tasks.check(['nli'], ['validation'])
  rows = tasks.get('nli').source.chosen.examples('validation')
  return [row['inputs'] for row in rows], odd


NLI = 'nli premise: {} hypothesis: {}'.format


@pytest.mark.parametrize(
  'name', ['d.json', 'd.ndjson', 'd.jsonl.gz', 'd.json.gz', 'd.ndjson.gz']
)
def test_json_lines_have_several_names(file, name):
  data = b'{"premise": "a", "hypothesis": "b", "label": "y"}\n' * 2
  if name.endswith('.gz'):
    data = gzip.compress(data)
  assert examples(file, name, data) == ([NLI('a', 'b')] * 2, [])


ROWS = [
  ('One, two', 'He said "hi"'),
  ('"Whole"', 'over\ntwo\u2028 lines'),
  ('tab\there', ''),
  (' space ', "it's"),
]


@pytest.mark.parametrize('name, delimiter', [('d.csv', ','), ('d.tsv', '\t')])
@pytest.mark.parametrize('end', ['\n', '\r\n'])
@pytest.mark.parametrize('quoting', [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_what_csv_writes_is_read(file, name, delimiter, end, quoting):
  text = io.StringIO(newline='')
  writer = csv.writer(
    text, delimiter=delimiter, lineterminator=end, quoting=quoting
  )
  writer.writerow(['hypothesis', 'premise', 'label'])
  for premise, hypothesis in ROWS * 40:
    writer.writerow([hypothesis, premise, 'y'])
  data = ('\ufeff' + text.getvalue()).encode()
  inputs, _ = examples(file, name, data, 'quotes: csv')  # in several parts
  assert inputs == [NLI(*row) for row in ROWS * 40]


@pytest.mark.parametrize(
  'name, blank, row',
  [
    ('d.csv', b'\n  \n', b'a,b,y\n'),
    ('d.tsv', b'\n\t \n', b'a\tb\ty\n'),
    (
      'd.jsonl',
      b'\n  \n',
      b'{"premise": "a", "hypothesis": "b", "label": "y"}',
    ),
  ],
)
@pytest.mark.parametrize('end', [b'\n', b'\r\n'])
@pytest.mark.parametrize('mark', [b'', b'\xef\xbb\xbf'])
def test_blank_lines_are_skipped(file, name, blank, row, end, mark):
  """And reported; CR LF and a byte order mark are read without a word."""
  delimiter = b',' if name == 'd.csv' else b'\t'
  header = delimiter.join([b'premise', b'hypothesis', b'label']) + b'\n'
  data = (b'' if name == 'd.jsonl' else header) + row.rstrip() + b'\n'
  whole = mark + (data + row.rstrip() + b'\n').replace(b'\n', end)
  assert examples(file, name, whole) == ([NLI('a', 'b')] * 2, [])
  parted = mark + (data + blank + row).replace(b'\n', end)
  inputs, (note,) = examples(file, name, parted)
  assert inputs == [NLI('a', 'b')] * 2
  assert re.search(f'{name}:[23]: a blank line; skipped .2 of 4 rows', note)


@pytest.mark.parametrize(
  'name, header, row',
  [
    ('d.csv', b'premise,hypothesis,label\n', b'a,b,y\n'),
    ('d.tsv', b'premise\thypothesis\tlabel\n', b'a\tb\ty\n'),
    ('d.jsonl', b'', b'{"premise":"a", "hypothesis":"b", "label":"y"}\n'),
  ],
)
def test_blank_lines_first_and_marks_inside(file, name, header, row):
  """As where files were joined."""
  mark = b'\xef\xbb\xbf'
  data = mark + b'\n \n' + header + row + mark + row
  assert examples(file, name, data)[0] == [NLI('a', 'b')] * 2
  with pytest.raises(UserError, match=f'{name}:[56]: '):
    examples(file, name, data + b'three')
  if header:
    with pytest.raises(UserError, match=f"{name}:3: a first line .* 'prem"):
      examples(file, name, b'\n\nnothing\n')


@pytest.mark.parametrize(
  'name, row',
  [
    ('d.csv', 'premise,hypothesis,label\n{},b,{}\n'),
    ('d.tsv', 'premise\thypothesis\tlabel\n{}\tb\t{}\n'),
    ('d.jsonl', '{{"premise": "{}", "hypothesis": "b", "label": "{}"}}\n'),
  ],
)
def test_empty_cells(file, name, row):
  """Without a target, there is nothing to learn; others may be empty."""
  task = FILE.replace('labels:', '#').replace('data/dev.jsonl', name)
  write(file, task.encode())
  for target in ('', ' '):
    write(file.parent / name, row.format('a', target).encode())
    with pytest.raises(UserError, match='[12]: an empty target; expected a te'):
      tasks.check(['nli'], ['validation'])
  inputs, (note,) = examples(file, name, row.format('', 'y').encode())
  assert inputs == [NLI('', 'b')]
  assert "an empty 'premise'; kept" in note


def test_quotes_of_csv_in_tsv_are_reported(file):
  data = b'premise\thypothesis\tlabel\n"a ""b"" c"\t"d" e\ty\n'
  inputs, odd = examples(file, 'd.tsv', data)
  assert inputs == [NLI('"a ""b"" c"', '"d" e')]
  (note,) = odd
  assert 'd.tsv:2: a field with doubled quotes in quotes; its qu' in note
  assert 'add `quotes: csv` to the task file' in note
  assert examples(file, 'd.tsv', data, 'quotes: text') == (inputs, [])


@pytest.mark.parametrize(
  'name, data, message',
  [
    ('d.tsv', 'premise,hypothesis,label\n', '1: columns separated by commas'),
    ('d.csv', 'premise\thypothesis\tlabel\n', '1: columns separated by tabs'),
    ('d.csv', 'label;premise;hypothesis\n', '1: columns separated by semico'),
    ('d.tsv', '{"premise": "x"}\n', '1: JSON: .*must end in .jsonl or .ndjson'),
    ('d.tsv', '"premise"\t"hypothesis"\t"label"\n', '1: columns in quotes'),
    ('d.csv', 'premise,hypothesis\n', "1: a first line without the column 'l"),
    ('d.csv', '\n', '1: an empty file; expected a first line with the columns'),
    (
      'd.csv',
      'premise,hypothesis,label\na,b,y\nc,"d\ne,f\n',
      '3: CSV that does not parse .unexpected end of data.*quotes closed',
    ),
    (
      'd.csv',
      'premise,hypothesis,label\na,"b"c,y\n',
      '2: CSV that does not parse',
    ),
    ('d.csv', 'premise,hypothesis,label\na,b\n', '2: 2 columns, separated by'),
    (
      'd.tsv',
      'premise\thypothesis\tlabel\n"a\nb"\tc\ty\n',
      '2: 1 columns, separated by tabs.*add `quotes: csv` to the task file',
    ),
  ],
)
def test_files_of_another_format_are_recognized(file, name, data, message):
  with pytest.raises(UserError, match=f'{name}:{message}'):
    examples(file, name, data.encode())


def test_metrics_of_labels_and_numbers(file):
  write(file, FILE.replace('accuracy', 'mean_multiclass_f1').encode())
  task = tasks.get('nli')
  (metric,) = task.metric_fns
  # F1 of `yes` is 1/2, of `maybe` 1, of `no` 0.
  assert metric([0, 0, 1, 2], [0, -1, 1, 0]) == {
    'mean_3class_f1': pytest.approx(100 * (1 / 2 + 1 + 0) / 3)
  }
  text = FILE.replace('accuracy', 'mean_squared_error, log_perplexity')
  write(file, text.replace('labels:', '#').encode())
  task = tasks.get('nli')
  (metric,) = task.metric_fns
  answers = [task.postprocess_fn(x) for x in ('3', 'nan', 'x')]
  assert answers == [3.0, -1.0, -1.0]
  assert metric([1.0, 1.0, 1.0], answers) == {
    'mean_squared_error': pytest.approx((4 + 4 + 4) / 3)
  }
  write(file, FILE.replace('accuracy', 'log_perplexity').encode())
  assert tasks.get('nli').metric_fns == []
  write(file, FILE.replace('accuracy', 'mean_squared_error').encode())
  with pytest.raises(UserError, match='expected accuracy or .*log_perplexity'):
    tasks.get('nli')


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'{premise}': '{premis}'}, "1: .* the column 'premis'"),
    ({'hypothesis': 'premise'}, "1: the column 'premise' appears twice"),
    ({'maybe': '-1.0'}, "3: the label '2'; expected one of: yes, -1.0, no"),
    (
      {'labels:': '#', 'accuracy': 'pearson_corrcoef', 'yes': 'nan'},
      "2: the target 'nan'; expected a number",
    ),
  ],
)
def test_a_file_that_does_not_fit_its_task(file, changes, message):
  task, table = FILE, TSV.decode()
  for old, new in changes.items():
    task, table = task.replace(old, new), table.replace(old, new)
  write(file, task.encode())
  path = write(file.parent / 'data/train.tsv', table.encode())
  with pytest.raises(UserError, match=f'{path}:{message}'):
    tasks.check(['nli'], ['train'])


@pytest.mark.parametrize(
  'labels, metric, read',
  [
    ('', 'squad', [['1'], '1']),
    ('', 'pearson_corrcoef', [1.0, 1.0]),
    ('', 'bleu', ['1', '1']),
    ('labels: [0, 1]', 'f1_score_with_invalid', [1, 1]),
  ],
)
def test_how_metrics_read_texts(file, labels, metric, read):
  text = FILE.replace('labels: [yes, maybe, no]', labels)
  write(file, text.replace('[accuracy]', f'[{metric}]').encode())
  task = tasks.get('nli')
  assert [task.postprocess_fn('1', is_target=x) for x in (True, False)] == read
  assert list(task.metric_fns[0]([read[0]] * 2, [read[1]] * 2))


@pytest.mark.slow  # trains
def test_train_evaluate_table(file, tmp_path, monkeypatch):
  monkeypatch.delenv('SYNTH_MTF_TASK_FILE')
  run = tmp_path / 'run'
  for name, params in (
    (
      'finetune',
      ['utils.run.train_steps = 1', 'utils.run.init_checkpoint = None'],
    ),
    ('eval', []),
  ):
    assert not t5_main.synth_mtf_transformer(
      *(f'--model_dir={run}', f'--task_file={file}', '--vocabulary=bytes'),
      *t5_main.REPEATABLE[:2],
      f'--gin_file=runs/{name}_en_mix.gin',
      *t5_main.REPEATABLE[3:],
      "--gin_param=MIXTURE_NAME = 'nli'",
      '--gin_param=utils.run.batch_size = 2',
      *(f'--gin_param={param}' for param in params),
    )
  metrics_json = (run / 'validation_eval/metrics.json').read_text()
  (result,) = json.loads(metrics_json)['results']
  evaluated = result['task'], result['metric'], result['n']
  assert evaluated == ('nli', 'accuracy', 1)
  assert 'nli/accuracy' in command.run('table', run)[1]
