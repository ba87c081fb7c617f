"""A table in Markdown, in LaTeX and on a terminal."""

import re

from synth_mtf.results import printing
from synth_mtf.results.printing import Grid

GRID = Grid(
  caption='Results_1.',
  headers=['Model', 'CoLA', 'SST', 'MRPC'],
  rows=[
    ['T5 (V)', '1.0', '**3±1**', '4/5'],
    ['Syn (R)', '**22.0**', '2', '-/**6**'],
  ],
  notes=['A note, 100 % long.'],
)


def test_markdown():
  assert printing.markdown(GRID).splitlines() == [
    'Results_1.',
    '',
    '| Model   |     CoLA |     SST |    MRPC |',
    '|:--------|---------:|--------:|--------:|',
    '| T5 (V)  |      1.0 | **3±1** |     4/5 |',
    '| Syn (R) | **22.0** |       2 | -/**6** |',
    '',
    'A note, 100 % long.',
  ]


def test_names_of_several_lines_or_columns():
  grid = Grid('a\nb', ['Model', 'x'], [['c\n% d|e', '1']], ['f\n\\input{g}'])
  for form in ('terminal', 'markdown', 'latex'):
    text = printing.text(grid, form)
    assert not {'b', '% d|e', '\\input{g}'} & set(text.splitlines())
  assert '| c % d\\|e |' in printing.text(grid, 'markdown')


def test_latex():
  text = printing.latex(GRID)
  assert text.splitlines()[0] == '% A note, 100 % long.'
  assert r'\caption{Results\_1.}' in text
  table = text[text.index(r'\begin{tabular}') : text.index(r'\end{tabular}')]
  lines = re.sub(' +', ' ', table).splitlines()
  assert [line.strip() for line in lines] == [
    r'\begin{tabular}{lrrr}',
    r'\toprule',
    r'Model & CoLA & SST & MRPC \\',
    r'\midrule',
    r'T5 (V) & 1.0 & \textbf{3$\pm$1} & 4/5 \\',
    r'Syn (R) & \textbf{22.0} & 2 & -/\textbf{6} \\',
    r'\bottomrule',
  ]


def test_a_terminal_gets_pieces_that_fit_with_the_models_names():
  for width in range(24, 100, 7):
    lines = printing.terminal(GRID, width, bold=False).splitlines()
    assert max(map(len, lines)) <= width
    text = '\n'.join(lines)
    for header in GRID.headers[1:]:
      assert text.count(header) == 1
    assert text.count('Syn (R)') == text.count('Model')
    assert '22.0' in text and '4/5' in text
  assert printing.terminal(GRID, 80).count('Model') == 1


def test_a_terminal_shows_what_is_best_in_bold():
  assert '\x1b[1m22.0\x1b[0m' in printing.terminal(GRID, 80)
  assert '\x1b' not in printing.terminal(GRID, 80, bold=False)


def test_columns():
  rows = [['rte', '2,490', 'a file'], ['cola', '8', '-']]
  text = printing.columns(['task', 'rows', 'from'], rows, left=(0, 2))
  assert text.splitlines() == [
    'task   rows  from',
    'rte   2,490  a file',
    'cola      8  -',
  ]
  assert printing.columns(['', 'n'], [['longer', '1']]) == (
    '        n\nlonger  1'
  )


def test_counts():
  counts = [printing.count(number) for number in (1234567, 0, None)]
  assert counts == ['1,234,567', '0', '?']
