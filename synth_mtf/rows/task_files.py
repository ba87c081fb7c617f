"""Task files: what a user's YAML says about a task, checked as it is read.

`tasks/task_file.py` registers what they define; docs/data.md describes them.
"""

import collections
import dataclasses
import enum
import os
import re
import string
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import yaml

from synth_mtf import paths
from synth_mtf.errors import UserError, nearest, nearest_task
from synth_mtf.rows import formats, task_readers
from synth_mtf.storage import filesystem


class Compared(enum.Enum):
  """What the metrics of a task compare."""

  TEXTS = enum.auto()
  ANSWERS = enum.auto()  # lists of them
  NUMBERS = enum.auto()
  CLASSES = enum.auto()


@dataclasses.dataclass
class TaskFile:
  """What a task file says.

  Attributes:
    path: of the file.
    name: of the task.
    files: a path or a pattern for each split, in `folder` or absolute.
    readers: of each split.
    metrics: their names in T5.
    labels: of a classification, or none.
    compared: what the metrics compare.
    mixtures: the rate of each part.
    lines: those of the fields.
  """

  path: str
  name: str
  files: Mapping[str, str]
  readers: Mapping[str, formats.Reader]
  metrics: Sequence[str]
  labels: Sequence[str]
  compared: Compared
  mixtures: Mapping[str, Mapping[str, float]]
  lines: Mapping[str, int]

  @property
  def folder(self) -> str:
    """The folder of the files."""
    return os.path.dirname(self.path) or '.'

  @property
  def place(self) -> str:
    """Where the task file names the files."""
    return f'{self.path}:{self.lines["files"]}'

  def check_files(self) -> None:
    """Refuses a path or a pattern that no file has."""
    fault = formats.fault_at(self.path, self.lines['files'])
    with fault, filesystem.named_by(self.place):
      for pattern in self.files.values():
        path = filesystem.join(self.folder, pattern)
        similar = ' or '.join(filesystem.similar(path))
        formats.expect(
          filesystem.find(self.folder, pattern),
          f'{path} does not exist',
          f'a file; there is {similar}' if similar else 'a file',
        )

  def check_headers(self) -> None:
    """Refuses files without the columns that inputs and targets need."""
    with filesystem.named_by(self.place):
      for split, pattern in self.files.items():
        for path in filesystem.find(self.folder, pattern):
          self.readers[split].read_header(path)


_REQUIRED = {
  'name': str,
  'files': dict,
  'inputs': str,
  'targets': str,
  'metrics': [str],
}
_FIELDS = {**_REQUIRED, 'labels': [str], 'mixtures': dict, 'quotes': str}
# What metrics compare: texts, lists of answers, numbers, or classes.
_METRICS = {
  Compared.TEXTS: (
    'accuracy',
    'sequence_accuracy',
    'bleu',
    'rouge',
    'edit_distance',
  ),
  Compared.ANSWERS: ('squad', 'trivia_qa'),
  Compared.NUMBERS: (
    'pearson_corrcoef',
    'spearman_corrcoef',
    'mean_squared_error',
  ),
}
_CLASS_METRICS = ('accuracy', 'sequence_accuracy', 'mean_multiclass_f1')
_TWO_CLASS_METRICS = (*_CLASS_METRICS, 'f1_score_with_invalid')
# Of any task; T5 measures it in mode 'perplexity_eval'.
_LOG_PERPLEXITY = 'log_perplexity'

_MOST_DEPTH = 10  # of lists and mappings in the YAML file
_MOST_BYTES = 1 << 20  # of the YAML file, which is parsed in Python


def paths_in(setting: str) -> list[str]:
  """Returns the paths of task files, which commas separate."""
  return [os.path.expanduser(p.strip()) for p in setting.split(',') if p]


def read(path: str, known: Collection[str] | None) -> TaskFile:
  """Reads a task file and checks all but the files that it names.

  Args:
    path: of the file.
    known: the names of all tasks and mixtures, or None if that is not known.

  Raises:
    UserError: something is wrong; the message has the line.
  """
  fields, lines = _load(path)
  _check_fields(fields, lines, path)
  with formats.fault_at(path, lines['name']):
    _check_new(fields['name'], known)
  labels = fields.get('labels', ())
  with formats.fault_at(path, lines.get('labels', 1)):
    for label, times in collections.Counter(labels).items():
      formats.expect(times == 1, f'{times} times the label {label!r}', 'once')
  quotes = fields.get('quotes')
  with formats.fault_at(path, lines.get('quotes', 1)):
    formats.expect(
      quotes in (None, *task_readers.QUOTES),
      f'quotes: {quotes!r}',
      ' or '.join(task_readers.QUOTES),
    )
  metrics = [name for name in fields['metrics'] if name != _LOG_PERPLEXITY]
  with formats.fault_at(path, lines['metrics']):
    compared = _compared(metrics, labels)
  templates = {}
  for name in ('inputs', 'targets'):
    with formats.fault_at(path, lines[name]):
      templates[name] = _template(fields[name])
  numbers = compared is Compared.NUMBERS
  readers = {}
  files = {}
  with formats.fault_at(path, lines['files']):
    for split, file in fields['files'].items():
      formats.check_json(file, str, split)
      reader = task_readers.reader_of(file, quotes)
      readers[split] = reader(templates, labels, numbers)
      files[split] = os.path.expanduser(file)
  names = None if known is None else {*known, fields['name']}
  mixtures = {}
  with formats.fault_at(path, lines.get('mixtures', 1)):
    for name, parts in fields.get('mixtures', {}).items():
      mixtures[name] = _rates(name, parts, names)
      _check_new(name, names)
      if names is not None:
        names.add(name)
  return TaskFile(
    path,
    fields['name'],
    files,
    readers,
    metrics,
    labels,
    compared,
    mixtures,
    lines,
  )


def _load(path: str) -> tuple[dict[str, Any], dict[str, int]]:
  """Returns the fields of a file, whose scalars are texts, and their lines."""
  with filesystem.explained(path):
    text = filesystem.read(path, _MOST_BYTES).decode('utf-8-sig')
  try:
    _check_depth(text, path)
    tree = yaml.compose(text, yaml.BaseLoader)
    fields = yaml.load(text, yaml.BaseLoader)
  except yaml.YAMLError as error:
    mark = getattr(error, 'problem_mark', None)
    line = mark.line + 1 if mark else 1
    problem = getattr(error, 'problem', error)
    raise UserError(
      f'{path}:{line}: YAML that does not parse: {problem}'
    ) from error
  with formats.fault_at(path, 1):
    formats.check_json(fields, dict, 'the file')
  _check_names(tree, path)
  return fields, {key.value: key.start_mark.line + 1 for key, _ in tree.value}


def _check_depth(text: str, path: str) -> None:
  """Rejects aliases, which may stand for any amount of text, and depth."""
  depth = 0
  for event in yaml.parse(text, yaml.BaseLoader):
    with formats.fault_at(path, event.start_mark.line + 1):
      is_alias = isinstance(event, yaml.AliasEvent)
      formats.expect(not is_alias, 'an alias (*)', 'what it stands for')
      depth += isinstance(event, yaml.CollectionStartEvent)
      depth -= isinstance(event, yaml.CollectionEndEvent)
      formats.expect(
        depth <= _MOST_DEPTH, f'{depth} levels', f'at most {_MOST_DEPTH}'
      )


def _check_names(node: Any, path: str) -> None:
  """Rejects a name that a mapping has twice; YAML takes the last."""
  if not isinstance(node, yaml.MappingNode):
    return
  names = collections.Counter(key.value for key, _ in node.value)
  for key, value in node.value:
    with formats.fault_at(path, key.start_mark.line + 1):
      formats.expect(
        names[key.value] == 1, f'{key.value!r} appears twice', 'it once'
      )
    _check_names(value, path)


def _check_fields(
  fields: Mapping[str, Any], lines: Mapping[str, int], path: str
) -> None:
  """Rejects unknown and missing fields, and values of another type."""
  for name, value in fields.items():
    with formats.fault_at(path, lines[name]):
      if name not in _FIELDS:
        hint = nearest(name, _FIELDS) or f'; expected {", ".join(_FIELDS)}'
        raise ValueError(f'unknown field {name!r}{hint}')
      formats.check_json(value, _FIELDS[name], name)
      formats.expect(value, f'{name} is empty', 'a value')
  with formats.fault_at(path, 1):
    formats.check_json(fields, dict.fromkeys(_REQUIRED, object), 'the file')


def _check_new(name: str, known: Collection[str] | None) -> None:
  """Refuses a name that is not one, or that another task has."""
  formats.expect(
    re.fullmatch(r'[A-Za-z]\w{,99}', name)
    and not name.startswith(paths.PREFIX),
    f'the name {name!r:.200}',
    'a letter, then letters, digits or _, 100 characters at most, without '
    f'{paths.PREFIX} in front',
  )
  # A table shows our tasks without the prefix.
  is_taken = known and not {name, paths.PREFIX + name}.isdisjoint(known)
  formats.expect(not is_taken, f'the name {name!r} is taken', 'another')


def _compared(names: Sequence[str], labels: Sequence[str]) -> Compared:
  """Returns what metrics compare; a ValueError if not all do the same."""
  if labels:
    known = _TWO_CLASS_METRICS if len(labels) == 2 else _CLASS_METRICS
    if set(names) <= set(known):
      return Compared.CLASSES
    expected = ' or '.join(known)
  else:
    for compared, group in _METRICS.items():
      if set(names) <= set(group):
        return compared
    expected = ', or '.join(' or '.join(group) for group in _METRICS.values())
  raise ValueError(
    f'metrics {", ".join(names)}; expected {expected}; {_LOG_PERPLEXITY} goes '
    'with any'
  )


def _template(text: str) -> task_readers.Template:
  """Parses a text with columns in braces."""
  template = []
  for before, column, spec, conversion in string.Formatter().parse(text):
    formats.expect(
      column != '' and not spec and not conversion,
      'braces that hold no column',
      '{column}',
    )
    template.append((before, column))
  formats.expect(
    any(column for _, column in template),
    f'no column in {formats.quote(text)}',
    "a column in braces and quotes, such as '{sentence}'",
  )
  return template


def _rates(
  name: str, parts: Any, known: Collection[str] | None
) -> Mapping[str, float]:
  """Returns the rates of the parts of a mixture."""
  formats.check_json(parts, dict, name)
  formats.expect(parts, f'the mixture {name} without parts', 'tasks and rates')
  for part, rate in parts.items():
    if known is not None and part not in known:
      hint = nearest_task(part, known)
      raise ValueError(f'unknown task or mixture {part!r}{hint}')
    number = re.fullmatch(r'(?=.*[1-9])\d*\.?\d+', str(rate))
    formats.expect(
      number, f'the rate {rate!r}', 'a number above 0, such as 0.1'
    )
  return {part: float(rate) for part, rate in parts.items()}
