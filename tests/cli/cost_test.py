"""`synth-mtf cost`: a row for each variant."""

import argparse
import io
import pathlib
import sys
from unittest import mock

import pytest

from synth_mtf import cost
from synth_mtf.cli import cost as cost_command
from synth_mtf.paths import gin_path
from synth_mtf.results import paper
from tests.cli.command import run

M, G = 10**6, 10**9
COUNTS = cost.Cost(5 * M, 3 * M, 1 * M, 7 * G, 8 * G, 2 * G, 9 * M)
SIDES = (('en', 16), ('de', 8))
WORDS = ('cost', '--size=tiny', '--inputs=16', '--targets=8')


def test_a_gin_file_of_a_run(tmp_path, monkeypatch):
  """Its checkpoint is not needed; files that are not ours are read again."""
  monkeypatch.chdir(tmp_path)
  count = mock.Mock(return_value=COUNTS)
  monkeypatch.setattr(cost, 'cost_of_files', count)
  own = tmp_path / 'own.gin'
  for width in (8, 16):
    own.write_text(f'd_ff = {width}\n')
    run(*WORDS, '--variants=random', '--gin_file=own.gin')
  assert count.call_count == 2
  files, _, bindings = count.call_args.args
  assert files[-1] == 'own.gin'
  assert 'utils.run.init_checkpoint = None' in bindings
  status, _, err = run(*WORDS, '--gin_file=runs/finetune_en_mox.gin')
  assert status == 2 and "did you mean 'runs/finetune_en_mix.gin'" in err


@pytest.mark.parametrize(
  ('words', 'bindings', 'variants'),
  [
    (['--variants=random'], [], ['random']),
    (
      ['--variants=cross_random,random+cross_random'],
      [],
      ['cross_random', 'random+cross_random'],
    ),
    (['--variants=random', '--gin_param=d_ff = 8'], ['d_ff = 8'], ['random']),
  ],
)
def test_what_is_counted(monkeypatch, words, bindings, variants):
  count = mock.Mock(return_value=COUNTS)
  monkeypatch.setattr(cost, 'cost_of_files', count)
  status, out, _ = run(*WORDS, *words)
  assert status == 0
  assert [line.split()[0] for line in out.splitlines()[2:]] == variants
  lengths = {'inputs': 16, 'targets': 8}
  own = [f'{s}coder/Unitransformer.max_length = {n}' for s, n in SIDES]
  assert [call.args for call in count.call_args_list] == [
    (
      ['sizes/tiny.gin', *(f'variants/{v}.gin' for v in name.split('+'))],
      lengths,
      [*own, *bindings],
    )
    for name in variants
  ]


def test_a_table():
  status, out, _ = run(*WORDS, '--variants=random', '--model_parallelism=2')
  assert status == 0
  title, heads, row = out.splitlines()
  assert title.startswith('tiny, 16 inputs and 8 targets, 2 cores')
  assert heads.split()[:2] == ['variant', 'trained']
  assert row.split()[0] == 'random'


def test_by_default_all_variants_are_counted_but_the_originals(monkeypatch):
  monkeypatch.setattr(cost, 'cost_of_files', lambda *_, **__: COUNTS)
  files = pathlib.Path(gin_path(), 'variants').glob('*.gin')
  names = sorted(p.stem for p in files if 'original' not in p.stem)
  lines = run('cost')[1].splitlines()[2:]
  assert [line.split()[0] for line in lines] == names
  _, counts = lines[0].split(maxsplit=1)
  cells = ['3.0 M', '2.0 M', '1.0 M', '7.0 GFLOP', '8.00 GB', '2.00 GB', '9 MB']
  assert counts.split() == ' '.join(cells).split()


def test_an_unknown_size():
  status, _, err = run('cost', '--size=nothing')
  assert status == 2
  assert 'nothing' in err


class Terminal(io.StringIO):
  def isatty(self):
    return True


def test_it_shows_what_it_counts(monkeypatch):
  monkeypatch.setattr(cost, 'cost_of_files', lambda *_, **__: COUNTS)
  monkeypatch.setenv('TERM', 'xterm')
  monkeypatch.setattr(sys, 'stderr', stream := Terminal())
  arguments = argparse.Namespace(
    variants='random,dense',
    size='tiny',
    inputs=16,
    targets=8,
    gin_file=[],
    gin_param=[],
    module_import=[],
    model_parallelism=1,
    paper=False,
    device=None,
  )
  cost_command.run(arguments)
  *_, last, end = stream.getvalue().split('\r\x1b[2K')
  assert last + end == 'count  the cost of 2 variants ...'
  # A pipe gets lines from time to time, here each time.
  monkeypatch.setenv('SYNTH_MTF_PROGRESS_SECONDS', '0')
  monkeypatch.setattr(sys, 'stderr', pipe := io.StringIO())
  cost_command.run(arguments)
  assert 'count  dense (2 of 2) ...' in pipe.getvalue().splitlines()
  monkeypatch.setattr(sys, 'stderr', stream)
  arguments.paper = True
  monkeypatch.setattr(paper, '_cost', lambda *_: COUNTS)
  cost_command.run(arguments)
  assert 'count the cost of its models ...' in stream.getvalue()
