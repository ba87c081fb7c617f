"""The page: what is on it, which text is text, and what it may replace."""

import json
import sys

import numpy as np
import pytest

from synth_mtf import figures
from synth_mtf.checkpoints import files
from synth_mtf.report import page, weights
from synth_mtf.results import alphas, records, runs
from synth_mtf.results.printing import Grid
from tests import model
from tests.attention.made import random_attention
from tests.report.pages import Reader, render
from tests.results import made_runs

EVIL = '</script></pre><script>alert("x")</script>'
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 1"></svg>'


def full_page():
  """One with all sections."""
  row = [f'Syn {EVIL}', '**12.5**', '1/**2**']
  table = Grid('GLUE', ['Model', 'CoLA', 'SQuAD'], [row], [f'n: {EVIL}'])
  return render(
    tables=[table],
    figures=[page.Drawn(f'Loss {EVIL}', SVG, [{'title': EVIL, 'lines': []}])],
    models=weights.pack([random_attention()]),
    configurations=[('a', f'x = "{EVIL}"')],
    differences=Grid('Settings', ['gin', 'a'], [['run.seed', EVIL]]),
    notes=[f'No attention: {EVIL}'],
    command=f'synth-mtf report {EVIL}',
  )


def test_every_element_is_closed_and_every_text_is_text():
  made = Reader(full_page())
  assert made.open == []
  texts = [text for tag in ('th', 'pre', 'p') for text in made.content[tag]]
  assert sum(EVIL in text for text in texts) >= 5
  assert not any('alert' in text for text in made.content['script'])


def test_it_asks_for_no_other_file():
  text = full_page()
  policies = []
  for tag, attributes in Reader(text).elements:
    for name in ('src', 'href'):
      address = attributes.get(name) or ''
      assert address.startswith(('#', 'data:')) or not address, tag
    if attributes.get('http-equiv') == 'Content-Security-Policy':
      policies.append(attributes['content'])
  assert 'url(' not in text and '@import' not in text
  (policy,) = policies
  assert policy and policy.startswith("default-src 'none';")
  assert 'http' not in policy


def test_sections_without_content_are_left_out():
  all_ids, ids = (
    {attributes.get('id') for _, attributes in Reader(text).elements}
    for text in (full_page(), render())
  )
  assert {'tables', 'configuration', 'command'} <= ids
  assert not ids & {'figures', 'attention', 'models'}
  assert {'figures', 'attention', 'models'} <= all_ids


def test_the_best_is_marked():
  text = full_page()
  assert (
    '<td><strong>12.5</strong></td><td>1/<wbr><strong>2</strong></td>' in text
  )


def trained(folder, *variants):
  """Runs of variants, in folders of their names."""
  for variant in variants:
    made_runs.trained(folder / variant, variant)
  return runs.read(*(str(folder / variant) for variant in variants))


@pytest.fixture
def without_matplotlib(monkeypatch):
  for name in ('of_attention', 'of_runs', 'style'):
    path = f'{figures.__name__}.{name}'
    monkeypatch.delitem(sys.modules, path, raising=False)
    monkeypatch.delattr(figures, name, raising=False)
  for name in [name for name in sys.modules if name.startswith('matplotlib.')]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, 'matplotlib', None)


def write(path, *args, **kwargs):
  page.write(str(path), *args, **kwargs)
  return path.read_text(encoding='utf-8')


@pytest.mark.usefixtures('without_matplotlib')
def test_what_is_given_is_on_the_page(tmp_path):
  found = trained(tmp_path, 'random', 'dense')
  made = write(
    tmp_path / 'x.html',
    found,
    [random_attention()],
    command=['synth-mtf', 'report', "it's here"],
    notes=['No attention of this one'],
  )
  assert '<title>Syn (R), Syn (D)</title>' in made
  assert Reader(made).models[0]['label'] == 'Syn (R)'
  assert 'No attention of this one' in made
  assert 'No figures: figures need matplotlib' in made
  assert 'synth-mtf report &#39;it&#39;&#34;&#39;&#34;&#39;s here&#39;' in made
  for run in found:
    assert run.name in made


def test_figures_that_can_be_drawn(tmp_path, monkeypatch):
  """R+V, with a checkpoint, and R; neither was evaluated."""
  pytest.importorskip('matplotlib', reason='the extra [plot]')
  from synth_mtf.figures import of_runs

  curves = of_runs.curves
  found = trained(tmp_path, 'random_vanilla', 'random')
  model.write(tmp_path / 'random_vanilla', 'random_vanilla', ['num_layers = 1'])
  looked = [random_attention(layers=1)]
  drawn, missing = page.draw(found, looked)
  of_alpha = f'Alpha over training, Syn (R+V), {found[0].name}'
  assert [one.caption for one in drawn] == [
    'Learning curves',
    'Sizes of attention weights',
    'Entropy and distance of each head',
    of_alpha,
  ]
  assert all(one.svg.startswith('<svg') for one in drawn)
  assert 'training loss' in drawn[0].svg
  assert 'encoder, layer 1' in drawn[-1].svg
  assert missing == [
    'Not drawn (Score against speed and parameters): no evaluation is in '
    f'{found[0].name}, {found[1].name}.'
  ]
  captions = [one.caption for one in page.draw(found, [])[0]]
  assert captions == ['Learning curves', of_alpha]
  monkeypatch.setattr(of_runs, 'curves', lambda runs: curves(runs) * 2)
  score = {'matthews_corrcoef': 50.0}
  made_runs.evaluated(tmp_path / 'random', made_runs.COLA, 100, score)
  files.write(str(tmp_path / 'bare'), 1, {'w': np.zeros(1)})
  names = 'random_vanilla', 'random', 'bare'
  found = runs.read(*(str(tmp_path / name) for name in names))
  drawn, missing = page.draw(found, [])
  both = ['Learning curves, 1 of 2', 'Learning curves, 2 of 2']
  scores = 'Score against speed and parameters'
  assert [one.caption for one in drawn] == [*both, scores, of_alpha]
  assert [note.partition(', /')[0] for note in missing] == [
    'Learning curves: No curve of bare',
    f'{scores}: No point of Syn (R+V)',
    f'{scores}: No point of bare',
  ]


def test_alpha_that_has_not_moved_is_left_out(tmp_path, monkeypatch):
  pytest.importorskip('matplotlib', reason='the extra [plot]')
  (run,) = trained(tmp_path, 'random_vanilla')
  model.write(tmp_path / 'random_vanilla', 'random_vanilla', ['num_layers = 1'])
  for move, is_drawn in ((0.019, False), (0.02, True)):
    monkeypatch.setattr(alphas, 'largest_move', lambda frame, m=move: m)
    drawn, missing = page.draw([run], [])
    why = 'no weight differs by 0.02 between checkpoints'
    assert (why in missing[-1]) != is_drawn
    assert ('Alpha over' in drawn[-1].caption) == is_drawn


def test_when_and_with_which_code_a_run_was_made(tmp_path):
  (run,) = trained(tmp_path, 'random')
  assert page.origins([run]).rows[0][1:] == ('unknown',) * 3
  origin = {
    'date': '2026-11-29 07:00',
    'environment': {},
    'versions': {'synth-mtf': '1.1.0', 'commit': f'{"0a" * 20}-dirty'},
  }
  earlier = {'date': '2026-11-28', 'environment': {}, 'versions': {}}
  (tmp_path / 'random' / records.ORIGINS).write_text(
    json.dumps([origin, earlier])
  )
  (run,) = runs.read(str(tmp_path / 'random'))
  assert page.origins([run]).rows[0][1:] == (
    '2026-11-29 07:00',
    '1.1.0',
    '0a0a0a0a0a0a-dirty',
  )


def test_runs_and_how_their_configurations_differ(tmp_path):
  mixing = ["SyntheticAttention.mixing = 'sum'"]
  made_runs.trained(tmp_path / 'r2', 'random', mixing)
  trained(tmp_path, 'vanilla', 'random', 'dense')
  (tmp_path / 'dense' / 'operative_config.gin').unlink()
  names = ['vanilla', 'random', 'r2', 'dense']
  found = runs.read(*(str(tmp_path / name) for name in names))
  configurations = dict(page.configurations(found))
  labels = ['T5 (V)', 'Syn (R)', 'Syn (R)']
  names = [
    f'{label}, {run.name}' for label, run in zip(labels, found, strict=False)
  ]
  assert list(configurations) == names
  assert 'SyntheticAttention.synthesizers' in configurations[names[1]]
  differing = page.differences(found[1:])
  assert differing.headers == ['gin', *names[1:]]
  values = {name.rpartition('/')[2]: values for name, *values in differing.rows}
  assert values == {'SyntheticAttention.mixing': ['not set', "'sum'"]}
  assert page.differences(found[:1]).rows == []
