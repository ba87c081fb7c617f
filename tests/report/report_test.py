"""The page of `synth-mtf report`: which models it shows, and what it lacks."""

import re
import sys

import gin
import pytest
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.report import report
from synth_mtf.results import runs
from synth_mtf.tasks import vocabulary
from tests.report.models import attention
from tests.results import made_runs

# What T5's main binds, for a run on one device.
BINDINGS = (
  "utils.run.mesh_shape = ''",
  "get_vocabulary.mixture_or_task_name = 'synth_text_span_corruption'",
)


def trained(folder, *variants):
  """Runs of variants, in folders of their names."""
  for variant in variants:
    made_runs.trained(folder / variant, variant, BINDINGS)
  return runs.read_all([str(folder / variant) for variant in variants])


@pytest.fixture
def without_figures(monkeypatch):
  """They are tested with `report.drawings`, and take long."""
  for name in [n for n in sys.modules if '.figures' in n]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, 'matplotlib', None)


def write(path, found, looked=(), layouts=(), commands=(), missing=()):
  report.write(str(path), found, looked, layouts, commands, missing)
  return path.read_text(encoding='utf-8')


@pytest.mark.usefixtures('without_figures')
def test_what_is_given_is_on_the_page(tmp_path):
  found = trained(tmp_path, 'random', 'dense')
  made = write(
    tmp_path / 'x.html',
    found,
    looked=[attention('Syn (R)', ['R'])],
    commands=[['synth-mtf', 'report', "it's here"]],
    missing=['No attention of this one'],
  )
  assert '<title>Syn (R), Syn (D)</title>' in made
  assert 'id="weights-0-encoder-0-0"' in made
  assert 'No attention of this one' in made
  assert 'No figures: ' in made
  assert re.search(r'synth-mtf report .*it.*s here', made)
  for run in found:
    assert run.name in made


@pytest.mark.usefixtures('without_figures')
def test_the_title_counts_many_models(tmp_path):
  names = ['random', 'dense', 'vanilla', 'random_vanilla', 'factorized_random']
  found = trained(tmp_path, *names)
  four = write(tmp_path / 'four.html', [*found[:4], *found[:4]])
  assert '<title>Syn (R), Syn (D), T5 (V), Syn (R+V)</title>' in four
  assert '<title>5 models</title>' in write(tmp_path / 'five.html', found)


@pytest.mark.usefixtures('without_figures')
def test_a_page_that_cannot_be_written_is_one_message(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match='--out .*/file/x.html cannot be written'):
    write(tmp_path / 'file' / 'x.html', trained(tmp_path, 'random'))


@pytest.mark.usefixtures('without_figures')
def test_a_layout_without_its_scores_leaves_no_page(tmp_path):
  with pytest.raises(UserError, match='no run has what is in the table'):
    write(tmp_path / 'x.html', trained(tmp_path, 'random'), layouts=['glue'])
  assert not (tmp_path / 'x.html').exists()


@pytest.mark.usefixtures('without_figures')
def test_a_page_may_be_replaced_and_nothing_else(tmp_path):
  path = tmp_path / 'x.html'
  report.check_replaceable(str(path))  # nothing is there
  write(path, trained(tmp_path, 'random'))
  report.check_replaceable(str(path))
  path.write_bytes(b'\xff\x00 mine')
  with pytest.raises(UserError, match='not a page of `synth-mtf report`'):
    report.check_replaceable(str(path))
  assert path.read_bytes() == b'\xff\x00 mine'


def test_runs_of_several_seeds_are_one_model(tmp_path):
  for seed in (0, 1):
    made_runs.trained(tmp_path / 'random' / f'seed_{seed}', 'random')
  made_runs.trained(tmp_path / 'dense', 'dense')
  found = runs.read_all([str(tmp_path / n) for n in ('random', 'dense')])
  assert len(found) == 3
  shown = [run.name for run in report.models(found)]
  assert shown == [str(tmp_path / 'random' / 'seed_0'), str(tmp_path / 'dense')]


def test_a_model_that_cannot_be_looked_at_is_told(tmp_path):
  found = trained(tmp_path, 'random', 'dense')
  (tmp_path / 'dense' / 'operative_config.gin').unlink()
  bare = runs.read(str(tmp_path / 'dense'))
  looked, missing = report.look([found[0], *bare], report.own_examples, 'bytes')
  assert looked == []
  first, second = missing
  assert first.startswith(f'No attention of Syn (R), {tmp_path}/random: ')
  assert 'has 128 rows' in first
  assert second.startswith(f'No attention of dense, {tmp_path}/dense: ')
  assert 'does not say what its model is' in second


@pytest.mark.parametrize(
  'model_type, expected',
  [
    ('bitransformer', {'encoder': 'inputs', 'decoder': 'targets'}),
    ('lm', {'decoder': 'targets'}),
    ('aligned', {'encoder': 'inputs'}),
  ],
)
def test_own_examples_suit_the_model(model_type, expected):
  gin.bind_parameter('run.model_type', model_type)
  gin.bind_parameter('run.vocabulary', vocabulary.load('bytes'))
  assert report.own_examples().texts == {
    side: report.EXAMPLES[feature] for side, feature in expected.items()
  }


def test_own_examples_fit_the_demo_even_in_bytes():
  gin_files.parse(
    ['sizes/tiny.gin', 'variants/random.gin', 'runs/demo_finetune.gin'],
    ['utils.run.init_checkpoint = None'],
  )
  with gin.unlock_config():
    gin.bind_parameter('run.vocabulary', vocabulary.load('bytes'))
  lengths = gin.get_bindings(utils.run)['sequence_length']
  found = report.own_examples()
  longest = {s: max(map(len, rows)) for s, rows in found.ids.items()}
  assert longest['encoder'] <= lengths['inputs']
  assert longest['decoder'] <= lengths['targets']
