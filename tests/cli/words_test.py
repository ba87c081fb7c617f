"""A first day: pretrain, finetune, evaluate and predict, on a file of text.

The commands run one after another on one tiny model, in the folder of the
`day` fixture.
"""

import json
import os
import re
import shlex
import sys

import pytest

import synth_mtf
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.commands import variants
from synth_mtf.errors import UserError
from synth_mtf.results import records
from tests.cli import command

pytestmark = pytest.mark.slow  # trains

SENTENCE = 'The red boat sails along the coast number {}, and it is {} today.\n'
SMALL = (
  '--gin_param=num_layers = 1',
  "--gin_param=utils.run.sequence_length = {'inputs': 32, 'targets': 16}",
)
TASK = """
name: mood
files: {train: mood.csv, validation: mood.csv}
inputs: 'mood: {text}'
targets: '{mood}'
labels: [good, bad]
metrics: [accuracy]
"""


def run(*words):
  """What a command printed, if it ended well."""
  status, out, err = command.run(*words)
  assert not status, err
  return out, err


def refused(*words):
  status, out, err = command.run(*words)
  assert (status, out) == (2, ''), err
  return err


@pytest.fixture(scope='module')
def day(tmp_path_factory):
  """A folder with a pretrained and a finetuned model, as a user has it."""
  folder = tmp_path_factory.mktemp('day')
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(folder)
    patch.setenv('PYTHONHASHSEED', '0')
    patch.setattr(sys, 'argv', ['synth-mtf'])
    (folder / 'my.txt').write_text(
      ''.join(SENTENCE.format(n, 'fine' * (n % 3)) for n in range(4000))
    )
    rows = [f'film {n},{"good" if n % 2 else "bad"}' for n in range(40)]
    (folder / 'mood.csv').write_text('\n'.join(['text,mood', *rows, '']))
    (folder / 'mood.yaml').write_text(TASK)
    words = '--variant=R+V', '--text=my.txt', '--vocabulary_size=99', *SMALL
    run('pretrain', 'runs/rv', '--size=tiny', '--steps=2', *words)
    start = 'finetune', 'runs/sent', '--from=runs/rv', '--task_file=mood.yaml'
    run(*start, '--steps=2', '--learning_rate=0.05', *SMALL)
    yield folder


def test_pretraining_trains_a_vocabulary_and_records_the_command(day):
  (origin,) = json.loads((day / 'runs/rv' / records.ORIGINS).read_text())
  words = shlex.split(origin['command'])
  assert words[:2] == ['synth-mtf', 'transformer']
  assert '--text=my.txt' in words
  assert '--vocabulary=runs/rv/vocabulary.model' in words
  assert '--gin_file=variants/random_vanilla.gin' in words
  vocabulary = json.loads((day / 'runs/rv/vocabulary.json').read_text())
  assert vocabulary['inputs']['name'] == 'runs/rv/vocabulary.model'


def test_the_rate_is_the_one_that_was_given(day):
  config = (day / 'runs/sent/operative_config.gin').read_text()
  assert re.search(r'^learning_rate = 0.05$', config, re.M)
  assert 'constant_learning_rate.learning_rate = %learning_rate' in config


def test_the_same_command_trains_no_more_and_a_larger_number_continues(day):
  _, err = run('pretrain', 'runs/rv', '--variant=R+V', '--size=tiny')
  assert 'train_steps = 2' in err
  run('pretrain', 'runs/rv', '--steps=3')
  assert Folder(str(day / 'runs/rv')).checkpoints[-1] == 'model.ckpt-3'
  err = refused('pretrain', 'runs/rv', '--steps=2')
  assert 'has trained 3 steps' in err


def test_steps_of_finetuning_count_from_the_model_it_starts_from(day):
  out, _ = run('finetune', 'runs/sent', '--steps=5', '--dry_run')
  assert '"utils.run.train_steps = 7"' in out
  start = '--from=runs/rv/model.ckpt-2', '--task_file=mood.yaml'
  out, _ = run('finetune', 'runs/other', *start, '--steps=5', '--dry_run')
  assert '"utils.run.train_steps = 7"' in out
  assert '--vocabulary=runs/rv/vocabulary.model' in out


def test_evaluation_needs_the_folder_alone(day):
  run('evaluate', 'runs/sent')
  (result,) = records.read(str(day / 'runs/sent/validation_eval'))
  assert (result[0].task, result[0].metric) == ('mood', 'accuracy')


def test_a_pretrained_model_has_a_log_perplexity(day):
  out, _ = run('evaluate', 'runs/rv', '--dry_run')
  assert '--gin_file=perplexity_eval.gin' in out


@pytest.mark.xla
def test_a_run_on_all_devices_is_evaluated_without_them(day):
  """Its configuration has no mesh, which a session needs."""
  words = (
    '--variant=R',
    '--text=my.txt',
    '--vocabulary=runs/rv/vocabulary.model',
  )
  on_devices = 'pretrain', 'runs/on_devices', '--size=tiny', '--device=cpu'
  run(*on_devices, '--steps=1', *words, *SMALL)
  folder = day / 'runs/on_devices'
  assert 'mesh_shape' not in (folder / 'operative_config.gin').read_text()
  run('evaluate', 'runs/on_devices')
  (path,) = folder.glob('*/metrics.json')
  assert 'neg_log_perplexity' in path.read_text()


def test_predictions_are_those_of_load(day, monkeypatch):
  texts = ['mood: film 7', 'mood: film 8']
  words = 'predict', 'runs/sent', '--max_length=8'
  out, _ = run(*words, *texts)
  (day / 'inputs.txt').write_text('\n'.join(texts) + '\n')
  with synth_mtf.load('runs/sent') as model:
    expected = model.predict(texts, max_length=8)
  assert out.splitlines() == expected
  out, _ = run(*words, '--input=inputs.txt')
  assert out.splitlines() == expected


def test_commands_work_from_another_folder(day, monkeypatch):
  monkeypatch.chdir(day / 'runs')
  out, _ = run('evaluate', 'sent', '--dry_run')
  assert f'--task_file={day}/mood.yaml' in out
  assert f'--vocabulary={day}/runs/rv/vocabulary.model' in out


def test_a_path_may_have_a_comma(day):
  """Of the settings with paths, only that of task files names several."""
  (day / 'a,b').symlink_to('runs')
  words = 'a,b/new', '--from=a,b/rv', '--task_file=mood.yaml', '--dry_run'
  origin = day / 'runs/rv' / records.ORIGINS
  before = origin.read_text()
  origin.write_text(before.replace('=runs/rv/voc', '=a,b/rv/voc'))
  try:
    out, _ = run('finetune', *words)
  finally:
    origin.write_text(before)
  assert '--vocabulary=a,b/rv/vocabulary.model' in out


def test_a_variant_may_be_a_file_of_the_user(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(UserError, match="no variant 'Mine'"):
    variants.file_of('Mine')
  (tmp_path / 'variants').mkdir()
  (tmp_path / 'variants/Mine.gin').write_text('')
  assert variants.file_of('Mine') == 'Mine'


# In the folder of the day; {} is a new folder.
REFUSED = [
  ('pretrain runs/x=[1] --variant=R --text=my.txt', 'for a pattern and would'),
  ('pretrain runs/rv --variant=R', 'model of --variant=R+V, not R: leave'),
  ('pretrain runs/rv --size=small', 'model of --size=tiny, not small: leave'),
  ('pretrain runs/sent', 'was finetuned from runs/rv/model.ckpt-2: continue'),
  ('finetune runs/rv --from=runs/sent', 'holds a model that was not finetuned'),
  ('finetune runs/sent --from=runs/sent', 'was finetuned from runs/rv/model'),
  ('finetune runs/sent --task=synth_en_mix', 'is finetuned on mood, not on'),
  ('finetune {} --from=runs/rv', 'give the task: --task=NAME'),
  ('finetune {} --from=runs/rv --task_file=mood.csv', 'has the rows of a task'),
  ('finetune {} --from=runs/rv/model.ckpt-1 --task_file=mood.yaml', 'no check'),
  ('evaluate runs/sent --split=test', 'mood has no test file, only train, val'),
  ('evaluate runs/rv/model.ckpt-77', 'no checkpoint of step 77; there are mod'),
  ('predict runs', 'holds 3 runs; give one of them: runs/'),
]


@pytest.mark.parametrize(('words', 'message'), REFUSED)
def test_what_cannot_be_meant_is_refused(day, words, message):
  err = refused(*words.format('runs/new').split())
  assert message in err
  assert not os.path.exists('runs/new')
