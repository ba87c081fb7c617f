"""Writes the tables of docs/results.md from benchmarks/results/*.json.

    python -m benchmarks.tables

replaces the rows of the table below each `<!-- table: ... -->` comment. The
files have more rows than the tables, which show the paper's systems.
"""

import collections
import functools
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent / 'docs' / 'results.md'
_LETTERS = {
  'fixed_random': 'Fix',
  'factorized_random': 'FR',
  'factorized_dense': 'FD',
  'random': 'R',
  'dense': 'D',
  'vanilla': 'V',
}
_SYSTEMS = (
  r'((Fix|FR|FD|R|D|V)\+?)+|SelfAttention|[Ll]informer|LightConv|DyConv'
  '|mtf (random|factorized|dense_minus|random_plus_alpha|dense_plus_alpha)'
)


def table(marker: str, header: str) -> str:
  """Returns a table: its header, and rows from the files.

  Args:
    marker: text of the comment: files with a section (`model.model`), each
      followed by the formats of its columns; `rows=PATTERN` selects rows by
      name, and `in_a_line=N` puts N rows on a line.
    header: the first two lines of the table.
  """
  file, columns, pattern, in_a_line = '', [], '.*', 1
  for word in marker.split():
    if word.startswith('{'):
      columns.append((file, word))
    elif word.startswith('rows='):
      pattern = word[5:].replace('SYSTEMS', _SYSTEMS)
    elif word.startswith('in_a_line='):
      in_a_line = int(word[10:])
    else:
      file = word
  lines = []
  for name in dict.fromkeys(n for file, _ in columns for n in entries(file)):
    if re.fullmatch(pattern, label(name)):
      found = [(entries(file).get(name), form) for file, form in columns]
      cells = [form.format_map(entry) if entry else '' for entry, form in found]
      lines.append([label(name), *cells])
  height = -(-len(lines) // in_a_line)
  lines += [[''] * (1 + len(columns))] * (height * in_a_line - len(lines))
  return header + ''.join(
    f'| {" | ".join(sum(lines[i::height], []))} |\n' for i in range(height)
  )


@functools.cache
def entries(file: str) -> Mapping[str, Mapping[str, Any]]:
  """Returns the rows in a section of a file (`model.model`) by name."""
  name, _, section = file.partition('.')
  found = json.loads((HERE / 'results' / f'{name}.json').read_text())[section]
  rows: dict[str, dict[str, Any]] = collections.defaultdict(
    lambda: collections.defaultdict(str)
  )
  if section == 'rows':  # from claims.py: a row per task and model
    for row in found:
      entry = rows[row['model']]
      for key, value in row.items():
        is_list = isinstance(value, list)
        spread = ' ± '.join(f'{x:.3f}' for x in value) if is_list else ''
        entry[key] = spread or value or ''
      entry[row['task']] = entry['value']
    return rows
  for row, entry in found.items():
    rows[row].update({k: '' if v is None else v for k, v in entry.items()})
    if 'speed' in entry:
      median, *quartiles = (f'{x:.2f}' for x in entry['speed'])
      spread = f' ({"-".join(quartiles)})' if quartiles else ''
      rows[row] |= {'x': median, 'speed': median + spread}
    if 'seconds' in entry:
      rows[row]['ms'] = 1e3 * entry['seconds']
    for other, x in entry.get('over', {}).items():
      rows[row][f'over_{other.split()[0].strip(":")}'] = f'{x:.2f}'
    for length, point in entry.items():
      if length.isdigit():
        rows[row][f's_{length}'] = point['seconds']
        rows[row][f'mb_{length}'] = point['bytes'] / 1e6
  return rows


def label(name: str) -> str:
  """Returns the paper's letters for a variant, or `name` if it has none."""
  name, comma, beside = name.partition(', ')
  letters = re.findall('|'.join(_LETTERS), name)
  if '_'.join(letters) == name:
    name = '+'.join(_LETTERS[letter] for letter in letters)
  return name + comma + beside


def updated(document: str) -> str:
  """Returns the document with the rows of its tables regenerated."""
  return re.sub(
    r'(<!-- table: (.*) -->\n)((?:\|.*\n){2})(?:\|.*\n)*',
    lambda match: match[1] + table(match[2], match[3]),
    document,
  )


if __name__ == '__main__':
  DOCUMENT.write_text(updated(DOCUMENT.read_text()))
