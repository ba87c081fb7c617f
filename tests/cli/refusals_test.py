"""What commands refuse before TensorFlow is loaded, which takes seconds."""

import argparse
import json
import subprocess
import sys

import pytest

from synth_mtf import cli
from synth_mtf.cli import checkpoint
from tests.checkpoints.saved import save
from tests.conftest import CHECKOUT
from tests.results import made_runs

# Runs the commands of standard input, one a line, as `synth-mtf` would run each
# in a process of its own.
PROGRAM = """
import contextlib, io, json, sys

imported = []

def refuse(event, arguments):
  if event == 'import' and arguments[0].partition('.')[0] == 'tensorflow':
    imported.append(arguments[0])
    raise ImportError('TensorFlow is imported')

sys.addaudithook(refuse)
from synth_mtf import cli

for line in sys.stdin:
  err = io.StringIO()
  imported.clear()
  with contextlib.redirect_stderr(err):
    try:
      status = cli.main(json.loads(line))
    except SystemExit as end:  # of argparse
      status = end.code
  print(json.dumps([status, err.getvalue(), imported]), flush=True)
"""

# {run} holds two checkpoints, and {other} a run without any.
CASES = [
  ('demo --data_dir=nosuch', '--data_dir: nosuch does not exist'),
  ('demo --gin_file=sizes/tny.gin', "did you mean 'sizes/tiny.gin'"),
  ('demo --mixture=synth_en_mx', "did you mean 'synth_en_mix'"),
  ('demo --out={file}', 'is not a folder'),
  ('demo --out=', '--out: the name is empty: give the path'),
  ('demo --out=gs://bucket/demo', 'expected a local folder'),
  ('demo --variants vanila', "did you mean 'variants/vanilla.gin'"),
  ('demo --variants R+Q', "gin file 'variants/R.gin' does not exist"),
  ('pretrain {new} --text=my.txt --variant=R+V', '--text: my.txt does not'),
  ('pretrain {new} --variant=R+Q', "there is no variant 'R+Q'; did you mean"),
  ('pretrain {new} --variant=R+V', 'give the text to pretrain on: --text='),
  ('pretrain {new} --variant=R --data_dir={folder}', 'has no text to pretrain'),
  (
    'transformer --data_dir={folder} --gin_file=runs/pretrain_text.gin',
    'has no text to pretrain on: no file corpus/**/*.txt, .jsonl or .json',
  ),
  (
    'transformer --model_dir={new} --data_dir={folder} '
    '--gin_file=runs/finetune_en_mix.gin',
    'has no train files of synth_glue_cola_v002 (glue/CoLA/train.tsv), synth',
  ),
  (
    'transformer --model_dir={new} --data_dir={glue} '
    '--gin_file=runs/eval_en_mix.gin '
    "--gin_param=MIXTURE_NAME='synth_glue_cola_v002'",
    '/glue/GLEU. Put them there, or give --data_dir=FOLDER',
  ),
  (
    'transformer --model_dir={new} --gin_file=runs/pretrain_c4.gin',
    "T5's own vocabulary gs://t5-data/vocabs/cc_all.32000/sentencepiece.model "
    'cannot be read: storage.googleapis.com: Connection refused. Give the one',
  ),
  (
    'transformer --model_dir={new} --gin_file=runs/pretrain_c4_en32k.gin',
    'gs://t5-data/vocabs/cc_en.32000/sentencepiece.model cannot be read',
  ),
  (
    'demo --data_dir={text} --out={new}',
    'has no train files of synth_glue_cola_v002',
  ),
  ('demo --data_dir={folder} --out={new}', 'has no text to pretrain on'),
  ('cache --task={task} --out={new}', "T5's own vocabulary gs://t5-data"),
  (
    'cache --task={task} --out={new} --data_dir={folder}',
    'no files of any split',
  ),
  ('vocabulary --out=v.model --data_dir={folder}', 'has no text: neither'),
  ('pretrain {new} --text={file}', 'holds no run yet: give --variant'),
  ('pretrain {file} --variant=V --text={file}', 'is a file; expected the fol'),
  ('pretrain {new} --size=tinny', "did you mean 'sizes/tiny.gin'"),
  ('finetune {new} --task={task}', 'give the model to start from, --from=RUN'),
  ('finetune {new} --from=nosuch', 'nosuch does not exist; expected the'),
  ('finetune {new} --from={run} --task_file={csv}', 'has the rows of a task'),
  ('evaluate {folder}', 'is not the folder of a run'),
  ('evaluate {new}', 'does not exist; expected the folder of a run'),
  ('predict {folder} a', 'is not the folder of a run'),
  ('predict {unsaved} a', 'has no checkpoint yet: train first'),
  ('evaluate {unsaved}', 'has no checkpoint yet: train first'),
  ('transformer', 'no flags are given: a run needs at least a folder'),
  ('transformer --gin_fil=a', "there is no flag --gin_fil; did you mean 'gin"),
  (
    'transformer --model_dir={new} --train_steps=100',
    '--train_steps: give --gin_param="utils.run.train_steps = 100"',
  ),
  (
    'transformer --model_dir={new} --mode finetune --nouse_model_api',
    '--mode: give --gin_param="utils.run.mode = \'train\'"',
  ),
  (
    'transformer --gin_file=sizes/tiny.gin',
    'give the folder of the run, --mod',
  ),
  (
    'transformer --gin_param=utils.run.train_stepz=5',
    "'utils.run' has no parameter 'train_stepz'; did you mean 'train_steps'",
  ),
  (
    'transformer --gin_param=utils.rnu.mode=5',
    "knows nothing named 'utils.rnu'",
  ),
  (
    'transformer --gin_param=trainsteps=5',
    '--gin_param: nothing reads trainst',
  ),
  ('transformer --gin_param=run.mode', "gin syntax: Couldn't parse statement"),
  ('transformer --gin_file={gin}', 'a.gin", line 2\n    Randm.max_length = 3'),
  (
    'pretrain {new} --variant=R --text={file} --gin_param=learning_rat=5',
    "nothing reads learning_rat; did you mean 'learning_rate'?",
  ),
  (
    'evaluate {unsaved} --gin_param=Randm.max_length=3',
    "knows nothing named 'Randm'; did you mean 'Random'?",
  ),
  ('demo --gin_param=Randm.max_length=3', "knows nothing named 'Randm'; did"),
  ('cost --gin_param=Randm.max_length=3', "knows nothing named 'Randm'; did"),
  ('tasks --gin_param=rate_num_example.maximum=3', "'rate_num_examples'?"),
  (
    'checkpoint convert {run} {folder} --gin_file={gin}',
    "knows nothing named 'Randm'; did you mean 'Random'?",
  ),
  (
    'transformer --size=tiny',
    'there is no flag --size: give --gin_file=sizes/tiny.gin',
  ),
  ('transformer --variant R+V', 'give --gin_file=variants/random_vanilla.gin'),
  (
    'transformer --seed=3',
    'give --gin_file=runs/repeatable.gin '
    '--gin_param="mesh_train_dataset_fn.seed = 3"',
  ),
  (
    'transformer --gin.utils.run.train_steps=100',
    'give --gin_param="utils.run.train_steps = 100"',
  ),
  (
    'transformer --gin_file=variants/R+V.gin',
    "the paper's R+V is variants/random_vanilla.gin",
  ),
  ('transformer --gin_file=tiny.gin', "did you mean 'sizes/tiny.gin'?"),
  (
    'transformer --gin_file=sizes/tinny.gin',
    "does not exist; did you mean 'sizes/tiny.gin'?\n",
  ),
  ('transformer --task_file={bad}', "bad.yaml:3: unknown field 'input'; did"),
  (
    'tasks --task_file={bad}',
    "bad.yaml:3: unknown field 'input'; did you mean",
  ),
  ('tasks --task_file={lost}', 'lost.yaml:2: '),
  (
    'evaluate {unsaved} --task_file={lost}',
    'aa.csv does not exist; expected a file',
  ),
  ('vocabulary --out=v.model --task_file={column}', "the column 'mood'"),
  (
    'cache --task=mood --out=v --task_file={column}',
    "a.csv:1: a first line without the column 'mood'",
  ),
  ('transformer --task_file=a.yaml', '--task_file: a.yaml does not exist'),
  ('transformer --data_dir=nosuch', '--data_dir: nosuch does not exist'),
  (
    'transformer --gin_file=sizes/tiny.gin --gin_file=sizes/tny.gin',
    "gin file 'sizes/tny.gin' does not exist; did you mean 'sizes/tiny.gin'",
  ),
  (
    'transformer --gin_file sizes/tiny.gin variants/random.gin',
    "'variants/random.gin' belongs to no flag: give each gin file its own",
  ),
  (
    'transformer --verbose --gin_param=utils.run.train_steps = 5',
    "'=' belongs to no flag; quote a value that has spaces",
  ),
  ('transformer --vocabulary a.model', '--vocabulary: a.model does not'),
  ('vocabulary --data_dir=nosuch --out=v', '--data_dir: nosuch does not'),
  ('vocabulary --out=a', '--out a; expected a local name, ending in .model'),
  ('vocabulary --out=', '--out: the name is empty: give the path'),
  ('vocabulary --out=gs://b/a.model', 'expected a local name'),
  (
    'vocabulary --out=a.model',
    'give the text: --text, --data_dir or --task_file',
  ),
  ('vocabulary --out={model} --data_dir=.', 'a.model is a folder; expected a'),
  ('vocabulary --out={file}/a.model --data_dir=.', 'is not a folder'),
  ('tasks --data_dir=nosuch', '--data_dir: nosuch does not exist'),
  ('tasks --data_dir={file}', 'is a file; expected a folder of official files'),
  ('tasks --task_file=a.yaml', '--task_file: a.yaml does not exist'),
  ('tasks cola', "did you mean 'synth_glue_cola_v002' or 'glue_cola_v002'"),
  ('tasks synth_glue_cola', "did you mean 'synth_glue_cola_v002'"),
  ('cache --task=glue_cola --out=a', "did you mean 'synth_glue_cola_v002'"),
  ('cache --task={task} --out=', '--out: the name is empty: give the path'),
  ('cache --task={task} --out=a*', 'TensorFlow takes the name for a pattern'),
  ('cache --task={task} --out={file}', 'is not a folder'),
  ('cache --task={task} --out=a --vocabulary=b', '--vocabulary: b does not'),
  ('checkpoint inspect no.ckpt-7', 'no.ckpt-7 does not exist'),
  ('checkpoint inspect {file}', 'there is no checkpoint'),
  ('checkpoint compare {run} {folder}', 'there is no checkpoint'),
  ('checkpoint compare {run} nosuch', 'nosuch does not exist'),
  (
    'checkpoint convert {run} {file}/a --gin_file=sizes/tiny.gin',
    'is not a folder',
  ),
  (
    'checkpoint convert {run} {folder} --gin_file=sizes/tny.gin',
    "did you mean 'sizes/tiny.gin'",
  ),
  (
    'checkpoint convert {run} {folder} --gin_file=sizes/tiny.gin '
    '--source_gin_file=sizes/tny.gin',
    "did you mean 'sizes/tiny.gin'",
  ),
  (
    'checkpoint convert {other} {folder} --gin_file=sizes/tiny.gin',
    'there is no checkpoint',
  ),
  ('checkpoint keep {file}', 'is not a folder: give a model folder'),
  ('checkpoint keep {folder}', 'holds no checkpoint'),
  ('checkpoint keep {run} --best=GLUE', "has a number 'GLUE'"),
  ('checkpoint export --to=hf {run} {folder}', 'exists already'),
  ('checkpoint export --to=hf {other} {new}', 'there is no checkpoint'),
  ('checkpoint export --to=hf {run} {new}', 'does not describe the model'),
  (
    'checkpoint export --to=hf {run} {new} --vocabulary=a',
    '--vocabulary: a does',
  ),
  (
    'checkpoint export --to=hf {run} {new} --gin_file=sizes/tny.gin',
    "did you mean 'sizes/tiny.gin'",
  ),
  ('checkpoint import --from=hf {folder} {run}', 'config.json is missing'),
  ('checkpoint import --from=hf {file} {new}', 'config.json is missing'),
  ('checkpoint import --from=hf {hf} {folder}', 'exists already'),
  (
    'checkpoint import --from=hf {hf} {new} --gin_file=sizes/tny.gin',
    "did you mean 'sizes/tiny.gin'",
  ),
  (
    'cluster --hosts=a:1,b:1 --task=0 -- --model_dir=x',
    'give the flags after -- to `synth-mtf transformer` on every machine',
  ),
  ('cost --size=tny', "did you mean 'sizes/tiny.gin'"),
  ('cost --gin_file=sizes/tny.gin', "did you mean 'sizes/tiny.gin'"),
  ('table nosuch', 'nosuch does not exist; expected a model folder'),
  ('table {file}', 'is a file; expected a model folder'),
  ('table {folder}', 'holds no run'),
  ('table {other} --checkpoint=3', 'expected best, last, or a step'),
  ('attention {folder} --text=a', 'holds no run'),
  ('attention {other} --text=a', 'there is no checkpoint'),
  ('attention {run} --text=a --step=3', 'there is no checkpoint'),
  ('attention {run} --task=synth_glue_cola', "mean 'synth_glue_cola_v002'"),
  (
    'attention {run} --task={task} --data_dir={folder}',
    'has no validation files of synth_glue_cola_v002 (glue/CoLA/dev.tsv); ',
  ),
  ('attention {run} --input=nosuch', '--input: nosuch is missing or empty'),
  ('attention {run} --input={folder}', 'is a folder; expected a file'),
  ('attention {run} --task={task} --target=a', '--target needs --text'),
  ('attention {run} --text=a --out={file}', 'not a file of this command'),
  ('attention {run} --text=a --out=', '--out: the name is empty'),
  ('plot {runs} --figures=curve', "no figure 'curve'; did you mean 'curves'"),
  ('plot {runs} --out=', '--out: the name is empty: give the path'),
  ('plot {run} --out={file}', 'is not a folder'),
  ('plot {folder}', 'holds no run'),
  ('plot {file}.npz', 'does not exist'),
  ('plot {npz}', 'is not a file of `synth-mtf attention`'),
  ('plot {run} --steps=2', '--steps needs a text'),
  ('plot {run} --figures=heads', 'need a file of `synth-mtf attention`'),
  ('plot {run} --task=synth_glue_cola', "mean 'synth_glue_cola_v002'"),
  ('report {runs}/rnu', "did you mean 'run'?"),
  ('report {folder}', 'holds no run'),
  ('report {run} --text=a --attention={npz}', 'leave it out to use --text'),
  ('report {run} --attention={npz}', 'is not a file of `synth-mtf attention`'),
  ('report {run} --out={file}', 'not a file of this command'),
  ('report {run} --out=', '--out: the name is empty'),
  ('report {run} --target=a --input={file}', '--target needs --text'),
  ('replay {folder}', 'holds no run'),
  ('replay nosuch', 'nosuch does not exist'),
  ('doctor --data_dir=nosuch', '--data_dir: nosuch does not exist'),
  ('doctor --vocabulary=a.model', '--vocabulary: a.model does not exist'),
]


@pytest.fixture(scope='module')
def places(tmp_path_factory):
  """Paths, by the names in `CASES`."""
  runs = tmp_path_factory.mktemp('runs')
  for name in ('folder', 'hf', 'a.model'):
    (runs / name).mkdir()
  (runs / 'file').write_text('text')
  (runs / 'glue' / 'GLEU').mkdir(parents=True)
  (runs / 'text' / 'corpus').mkdir(parents=True)
  (runs / 'text' / 'corpus' / 'a.txt').write_text('text')
  (runs / 'a.npz').write_text('text')
  (runs / 'a.gin').write_text('import synth_mtf\nRandm.max_length = 3\n')
  (runs / 'a.csv').write_text('text,label')
  (runs / 'unsaved').mkdir()
  (runs / 'unsaved/operative_config.gin').write_text('run.train_steps = 8')
  (runs / 'hf' / 'config.json').write_text('{}')
  task = (
    'name: mood\nfiles: {train: a.csv}\ninputs: "{text}"\n'
    'targets: "{mood}"\nmetrics: [accuracy]\n'
  )
  (runs / 'column.yaml').write_text(task)
  (runs / 'bad.yaml').write_text(task.replace('inputs', 'input'))
  (runs / 'lost.yaml').write_text(task.replace('a.csv', 'aa.csv'))
  save(runs / 'run', 2, 4)
  made_runs.events(runs / 'other', (2, {'loss': 1.0}))
  return {
    'runs': runs,
    'model': runs / 'a.model',
    **{x: runs / f'{x}.yaml' for x in ('bad', 'column', 'lost')},
    'csv': runs / 'a.csv',
    'gin': runs / 'a.gin',
    'npz': runs / 'a.npz',
    'unsaved': runs / 'unsaved',
    'task': 'synth_glue_cola_v002',
    **{
      x: runs / x
      for x in (
        'file',
        'folder',
        'glue',
        'hf',
        'new',
        'other',
        'run',
        'text',
      )
    },
  }


@pytest.fixture(scope='module')
def refused(tmp_path_factory, places):
  """A function that runs a line.

  It returns the status, the message and what was imported of TensorFlow.
  """
  folder = tmp_path_factory.mktemp('program')
  program = folder / 'synth-mtf'  # by this name, `import synth_mtf` is fast
  program.write_text(PROGRAM)
  with subprocess.Popen(
    [sys.executable, program],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    cwd=folder,
    env={
      # As a notebook sets it; the module is not there.
      'MPLBACKEND': 'module://matplotlib_inline.backend_inline',
      'PYTHONPATH': str(CHECKOUT),
      'PYTHONHASHSEED': '0',
      'https_proxy': 'http://127.0.0.1:9',  # where nobody listens
    },
  ) as process:
    requests, answers = process.stdin, process.stdout
    assert requests is not None and answers is not None

    def run(line):
      words = line.format(**places).split()
      print(json.dumps(words), file=requests, flush=True)
      return json.loads(answers.readline())

    yield run
    requests.close()


@pytest.mark.parametrize(('words', 'message'), CASES)
def test_a_wrong_argument_needs_no_tensorflow(refused, words, message):
  status, err, imported = refused(words)
  assert (status, imported) == (2, []), err
  assert message in err
  assert err.startswith('synth-mtf: error: ')


def test_the_program_notices_tensorflow(refused):
  _, err, imported = refused('tasks {task} --data_dir={folder}')
  assert 'the host stack cannot be imported: TensorFlow is imported' in err
  assert imported


def test_every_command_and_action_is_there():
  lines = [words.split() for words, _ in CASES]
  assert {words[0] for words in lines} == {*cli.COMMANDS, *cli.GONE}
  parser = argparse.ArgumentParser()
  checkpoint.add_arguments(parser)
  (known,) = [x.choices for x in parser._actions if x.choices]  # noqa: SLF001
  tried = {words[1] for words in lines if words[0] == 'checkpoint'}
  assert tried == {*known}
