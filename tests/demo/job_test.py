"""A demo: the order of its work, what is not repeated, and its folder.

The command that stages run is a script that trains nothing.
"""

import dataclasses
import fcntl
import io
import json
import os
import re
import sys

import pytest

from synth_mtf.demo import corpus
from synth_mtf.demo.configuration import Configuration
from synth_mtf.demo.job import Job
from synth_mtf.errors import RunFailed, UserError
from synth_mtf.run import process
from synth_mtf.run.console import Console
from synth_mtf.run.model_dir import LOCK

SHORT = Configuration(
  pretrain_steps=20, finetune_steps=10, data_dir='/', vocabulary='bytes'
)
STAGES = ['pretrain', 'finetune', 'perplexity', 'evaluate']
COMMAND = """
import os, sys
os.makedirs(sys.argv[2].partition('--model_dir=')[2], exist_ok=True)
print('Done in 1 s.')
sys.exit('--gin_file=runs/FAILING.gin' in sys.argv)
"""


@pytest.fixture(autouse=True)
def _command(monkeypatch, tmp_path):
  (tmp_path / 'synth-mtf').write_text(COMMAND)
  monkeypatch.setattr(sys, 'argv', [str(tmp_path / 'synth-mtf')])
  monkeypatch.setattr(process, 'load_quietly', lambda: None)
  monkeypatch.setattr(Job, '_check', lambda job, todo: None)
  measured = {'variant': [{'seed': 0}]}
  monkeypatch.setattr(Job, '_metrics', lambda job: measured)


def job(tmp_path, *variants, **changes):
  """Returns a demo, and what it has printed."""
  stream = io.StringIO()
  configuration = dataclasses.replace(SHORT, **changes)
  out = str(tmp_path / 'out')
  made = Job(configuration, variants or ('random',), out, Console(stream))
  return made, stream


def run(tmp_path, *variants, **changes):
  """Runs a demo; returns the lines that its stages end with."""
  made, stream = job(tmp_path, *variants, **changes)
  made.run()
  return re.findall(r'^\[.* (?:Done|done) .*$', stream.getvalue(), re.M)


def test_stages_of_a_variant_after_the_other(tmp_path):
  assert run(tmp_path, 'random', 'dense') == [
    f'[{4 * i + j}/8] {variant}: {name}  Done in 1 s.'
    for i, variant in enumerate(('random', 'dense'))
    for j, name in enumerate(STAGES, 1)
  ]


def test_a_seed_after_the_other(tmp_path):
  assert run(tmp_path, 'random', seeds=(4, 3)) == [
    f'[{4 * i + j}/8] random/seed_{seed}: {name}  Done in 1 s.'
    for i, seed in enumerate((4, 3))
    for j, name in enumerate(STAGES, 1)
  ]


def test_what_is_done_is_not_repeated(tmp_path):
  run(tmp_path)
  assert run(tmp_path, 'dense', 'random')[4:] == [
    f'[{number}/8] random: {name}  done before'
    for number, name in enumerate(STAGES, 5)
  ]


def test_after_a_failure_it_resumes_there(tmp_path):
  out = tmp_path / 'out'
  failing = (
    (tmp_path / 'synth-mtf').read_text().replace('FAILING', 'demo_finetune')
  )
  (tmp_path / 'synth-mtf').write_text(failing)
  with pytest.raises(
    RunFailed, match=r'^\[2/4\] random: finetune: the process'
  ):
    run(tmp_path)
  assert not (out / 'metrics.json').exists()
  assert not (out / 'random' / 'finetune.done').exists()
  (tmp_path / 'synth-mtf').write_text(COMMAND)
  lines = run(tmp_path)
  assert lines[0].endswith('pretrain  done before')
  assert lines[1].endswith('finetune  Done in 1 s.')


def test_what_was_measured_is_written_with_the_configuration(tmp_path):
  run(tmp_path)
  content = json.loads((tmp_path / 'out' / 'metrics.json').read_text())
  assert content['configuration']['finetune_steps'] == 10
  assert content['models'] == {'variant': [{'seed': 0}]}


def test_variants_that_are_done_with_all_seeds(tmp_path):
  run(tmp_path, 'random', 'dense', seeds=(0, 5))
  made, _ = job(tmp_path, 'vanilla', 'random', seeds=(0, 5))
  assert made.finished() == ['random', 'dense']
  (tmp_path / 'out' / 'dense' / 'seed_5' / 'evaluate.done').unlink()
  assert made.finished() == ['random']


def test_the_data_are_written_whole(tmp_path, monkeypatch):
  monkeypatch.setattr(corpus, 'PACKAGES', ('seqio',))
  monkeypatch.setattr(corpus, 'MIN_BYTES', 1000)
  left = tmp_path / 'out' / '.data.partial' / 'half'  # by a killed process
  left.parent.mkdir(parents=True)
  left.write_text('')
  run(tmp_path, data_dir=None)
  assert {path.name for path in (tmp_path / 'out').iterdir()} == {
    *('data', 'random', 'run.json', 'metrics.json', LOCK),
  }
  assert {path.name for path in (tmp_path / 'out' / 'data').iterdir()} == {
    *('glue', 'superglue', 'squad', 'corpus', 'GENERATED_SAMPLE.txt'),
  }


def test_wrong_names_are_found_first(tmp_path):
  with pytest.raises(UserError, match="unknown variant 'randm'"):
    run(tmp_path, 'randm')
  assert not (tmp_path / 'out').exists()


def test_another_configuration_is_refused(tmp_path):
  run(tmp_path)
  with pytest.raises(UserError) as error:
    run(tmp_path, finetune_steps=8, seeds=(3,))
  assert 'holds a demo of another configuration' in str(error.value)
  assert 'finetune_steps: 10 there, 8 now' in str(error.value)
  assert 'seeds: [0] there, [3] now' in str(error.value)


@pytest.mark.parametrize(
  'name, content, message',
  [
    ('out', 'mine', 'out is a file'),
    ('out/x/y', 'mine', 'something other than a demo'),
    ('out/run.json', '{"steps": 7,', 'does not parse'),
    ('out/.run.json.partial', '{"st', None),  # left by a killed process
    (f'out/{LOCK}', '', None),
  ],
)
def test_what_is_in_the_folder(tmp_path, name, content, message):
  path = tmp_path / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(content)
  if message is None:
    run(tmp_path)
    return
  with pytest.raises(UserError, match=message):
    run(tmp_path)
  assert path.read_text() == content


def test_a_parent_that_is_a_file_is_refused(tmp_path):
  (tmp_path / 'file').write_text('mine')
  with pytest.raises(
    UserError, match='file is not a folder that you may write'
  ):
    run(tmp_path / 'file')


def test_a_folder_without_write_permission_is_refused(tmp_path):
  (tmp_path / 'out').mkdir(mode=0o500)
  if os.access(tmp_path / 'out', os.W_OK):
    pytest.skip('this user may write everywhere')
  with pytest.raises(UserError, match='may write'):
    run(tmp_path)


def test_two_runs_at_once_are_refused(tmp_path):
  (tmp_path / 'out').mkdir()
  with open(tmp_path / 'out' / LOCK, 'w') as other:
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(UserError, match='another run'):
      run(tmp_path)
