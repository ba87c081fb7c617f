"""A table in Markdown, in LaTeX and on a terminal."""

import io
import re
import sys

from synth_mtf.results import printing
from synth_mtf.results.printing import Grid
from synth_mtf.run import output

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


def test_the_best_without_bold():
  text = printing.markdown(printing.without_bold(GRID))
  assert '**' not in text
  assert '| Syn (R) | 22.0 |' in re.sub(' +', ' ', text)


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


def test_a_name_cannot_pass_as_our_own_bold(monkeypatch):
  stream = io.StringIO()
  monkeypatch.setattr(stream, 'isatty', lambda: True)
  monkeypatch.setattr(sys, 'stdout', stream)
  rows = [['**Syn**', '**1.0**'], ['\x1b[1mT5\x1b[0m \udce9', '2.0']]
  grid = printing.Grid('\x1b[0mTable', ['Model', 'score'], rows)
  print(printing.text(grid), file=output.Printable(stream))
  shown = stream.getvalue()
  assert shown.count('\x1b') == 2 and '\x1b[1m1.0\x1b[0m' in shown
  assert '**Syn**' in shown and r'\u001b[1mT5\u001b[0m \udce9' in shown
  print(printing.text(grid, 'markdown'), file=output.Printable(stream))
  assert stream.getvalue().count('\x1b') == 2


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


def test_a_name_in_markdown_makes_nothing_else():
  assert printing.code('glue_v002') == '`glue_v002`'
  name = 'a` b\n# [c](https://x.org) | ![d](e)\x1b[1m'
  code = printing.code(name)
  assert code.count('`') == 2 and code[0] == code[-1] == '`'
  assert not set('\n|\x1b') & set(code)
