"""Where results come from, and what differs from there here."""

import json
import os
import shlex
import sys

import pytest

from synth_mtf.results import records
from synth_mtf.run import origin
from synth_mtf.tasks import inspection, vocabulary
from tests.results.made_runs import fake, result


def test_here_are_the_command_and_the_variables_that_matter(monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['/bin/synth-mtf', 'demo', "anna's"])
  monkeypatch.setenv('PYTHONHASHSEED', '0')
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', '/data')
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', '/index')  # only saves time
  found = origin.here(vocabulary.load('bytes'), 'today')
  assert shlex.split(found['command']) == ['/bin/synth-mtf', 'demo', "anna's"]
  assert found['environment'] == {
    'PYTHONHASHSEED': '0',
    'SYNTH_MTF_DATA_DIR': '/data',
  }
  assert (found['date'], found['folder']) == ('today', os.getcwd())
  assert found['vocabulary']['targets']['name'] == 'ByteVocabulary'


def test_each_training_is_added_to_those_before(tmp_path):
  for date in ('1', '2'):
    origin.record(None, date, str(tmp_path))
  found = json.loads((tmp_path / records.ORIGINS).read_text())
  assert [one['date'] for one in found] == ['1', '2']


@pytest.mark.parametrize(
  ('program', 'expected'),
  [
    ('/usr/bin/synth-mtf', 'synth-mtf'),
    ('t5_mesh_transformer', 't5_mesh_transformer'),
    ('/evil/rm', 't5_mesh_transformer'),
  ],
)
def test_a_command_runs_one_of_two_programs(program, expected):
  made = {
    'command': shlex.join([program, "a'b", '$HOME']),
    'environment': {'LD_PRELOAD': 'evil.so', 'PYTHONHASHSEED': '0'},
    'folder': "it's here",
  }
  assert shlex.split(origin.command(made)) == [
    *('cd', "it's here", '&&', 'env', 'PYTHONHASHSEED=0'),
    *(expected, "a'b", '$HOME'),
  ]


def test_what_differs_is_named_and_nothing_else(monkeypatch):
  made = json.loads(json.dumps(origin.here(vocabulary.load('bytes'))))
  made['environment'] = {'PYTHONHASHSEED': '7'}
  assert not [*origin.differences(made)]
  made['machine'] = 'a supercomputer'
  made['versions']['t5'] = '9.9'
  made['vocabulary']['targets']['sha256'] = 'f00'
  names = [text.partition(': ')[0] for text in origin.differences(made)]
  assert names == ['machine', 't5', 'vocabulary of targets']
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', '/no.model')
  missing, *_ = origin.differences(made)
  assert "'/no.model' cannot be read" in missing
  made['vocabulary'] = None
  names = [text.partition(': ')[0] for text in origin.differences(made)]
  assert names == ['machine', 't5']


def test_data_that_differ_are_named(made_data, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(made_data))
  known = inspection.digest('synth_glue_cola_v002', 'validation')
  assert known
  results = [
    result(split='validation', digest=known),
    result(split='train', digest='f00'),
    result(split='test', digest=''),  # unknown then
    result(task='of_nobody', digest='f00'),
  ]
  found = [*origin.data_differences(fake('run', *results))]
  assert [text.partition(' there')[0] for text in found] == [
    'data of synth_glue_cola_v002, train: f00',
    'data of of_nobody, validation: f00',
  ]
  assert found[1].endswith('no files here')
