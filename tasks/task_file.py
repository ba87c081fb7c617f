"""The user's own tasks, each in a YAML file that the setting `task_file` names.

docs/data.md describes such a file. Its task and mixtures are registered when a
name is looked up, here or by T5's main; again if a file changes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import seqio
import yaml
from t5.data import postprocessors
from t5.evaluation import metrics

from synth_mtf.errors import UserError, nearest
from synth_mtf.tasks import data_settings
from synth_mtf.tasks.files import formats, storage
from synth_mtf.tasks.files.formats import Items, Reader, Record, RowError, quote
from synth_mtf.tasks.files.source import Split, TwoSources
from synth_mtf.tasks.registering import PREFIX, TOKENIZE
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES


def _answers(text: str, is_target: bool = False, **_: Any) -> Any:
  """Makes a target a list of correct answers, as the metrics expect."""
  return [text] if is_target else text


_REQUIRED = ('name', 'files', 'inputs', 'targets', 'metrics')
_FIELDS = (*_REQUIRED, 'labels', 'mixtures')
_KINDS = {
  'scalar': 'a text',
  'sequence': 'a list',
  'mapping': 'a set of `name: value`',
}
_number = postprocessors.string_to_float
# The metrics that compare texts which are read in one way.
_METRICS: Mapping[Any, Sequence[str]] = {
  None: ('accuracy', 'sequence_accuracy', 'bleu', 'rouge', 'edit_distance'),
  _answers: ('squad', 'trivia_qa'),
  _number: ('pearson_corrcoef', 'spearman_corrcoef'),
}
_LABEL_METRICS = ('accuracy', 'sequence_accuracy', 'f1_score_with_invalid')
# Texts, each before the column that follows it, if any.
_Template = Sequence[tuple[str, Optional[str]]]

_registered: list[str] = []
_state = {'': ''}  # of the files when they were registered


class _TsvReader(Reader):
  """Reads a TSV file with a header, in which quotes are plain text."""

  reports_line_ends = True
  schema = dict.fromkeys(('inputs', 'targets'), formats.TEXT)

  def __init__(
    self,
    templates: Mapping[str, _Template],
    labels: Sequence[str],
    numbers: bool,
  ) -> None:
    super().__init__(templates, labels, numbers)
    self.templates, self._labels, self._numbers = templates, labels, numbers

  def read_header(self, path: str) -> tuple[Record, Sequence[str] | None]:
    return formats.tsv_header(path)

  def columns(self, path: str) -> Sequence[str]:
    """Returns the columns that a file has, by its first line."""
    return self.read_header(path)[1] or ()

  def row(self, record: Record, names: Any) -> dict[str, Any]:
    fields = record.line.split('\t')
    if len(fields) != len(names):
      raise RowError(
        f'{len(fields)} tab-separated columns: {quote(" | ".join(fields))}',
        f'{len(names)} ({", ".join(names)})',
      )
    return dict(zip(names, fields))

  def parse(self, record: Record, number: int, columns: Any) -> Items:
    row: dict[Any, str] = {None: '', **self.row(record, columns)}
    example = {
      feature: ''.join(text + row[column] for text, column in template)
      for feature, template in self.templates.items()
    }
    target = example['targets']
    with contextlib.suppress(ValueError):
      if self._numbers:
        float(target)
      elif self._labels and target not in self._labels:
        numbers = [str(i) for i in range(len(self._labels))]
        example['targets'] = self._labels[numbers.index(target)]
      return [example]
    expected = 'a number' if self._numbers else f'one of {self._labels}'
    raise RowError(f'the target {quote(target)}', expected)


class _JsonReader(_TsvReader):
  """Reads JSON lines; a column is a text, a number, or true or false."""

  def read_header(self, path: str) -> tuple[Record, Sequence[str] | None]:
    return Reader.read_header(self, path)

  def columns(self, path: str) -> Sequence[str]:
    for record in self.records(path):
      with contextlib.suppress(RowError):  # is reported with all rows
        return [*formats.json_row(record, {})]
    return ()

  def row(self, record: Record, names: Any) -> dict[str, Any]:
    used = [c for parts in self.templates.values() for _, c in parts if c]
    row = formats.json_row(record, dict.fromkeys(used, object))
    for name in used:
      if isinstance(row[name], (int, float)):
        row[name] = json.dumps(row[name])
      formats.check_json(row[name], str, repr(name))
    return row


def register() -> Sequence[str]:
  """Registers what the task files define, unless that is done.

  Returns the names. After a UserError, nothing of the files is registered.
  """
  setting = data_settings.settings().task_file or ''
  paths = [os.path.expanduser(p.strip()) for p in setting.split(',') if p]
  state = {setting: storage.state(paths)}
  if state != _state:
    with contextlib.ExitStack() as undo:
      undo.callback(_remove)
      _remove()
      for path in paths:
        _register(path)
      undo.pop_all()
    _state.update(state)
  return _registered


def _remove() -> None:
  for name in _registered:
    seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove(name)
  _registered.clear()
  _state.clear()


def _names_with_own() -> Any:
  register()
  return _names()


# T5's main looks up a name here, once gin has read the settings.
_names = seqio.MixtureRegistry.names
seqio.MixtureRegistry.names = _names_with_own


def get(name: str) -> seqio.dataset_providers.DatasetProviderBase:
  """Returns the task or mixture `name`; a UserError suggests similar names."""
  register()
  if name not in _known():
    hint = _nearest(name) or f'; did you mean {PREFIX}en_mix?'
    raise UserError(f'unknown task or mixture {name!r}{hint}')
  return seqio.get_mixture_or_task(name)


def _known() -> list[str]:
  return [*seqio.TaskRegistry.names(), *_names()]


def _nearest(name: str) -> str:
  return nearest(PREFIX + name, _known()) or nearest(name, _known())


def _fault(node: yaml.Node, message: str) -> UserError:
  mark = node.start_mark
  return UserError(f'{mark.name}:{mark.line + 1}: {message}')


def _load(path: str) -> yaml.Node:
  """Returns the syntax tree of a file, in which every scalar is a text."""
  with storage.reading(path) as stream:
    text = stream.read().decode('utf-8-sig')
  try:
    loader = yaml.BaseLoader(text)
    loader.name = path
    return loader.get_single_node() or yaml.ScalarNode(
      '', '', loader.get_mark()
    )
  except yaml.YAMLError as error:
    mark = getattr(error, 'problem_mark', None)
    raise UserError(
      f'{path}:{mark.line + 1 if mark else 1}: YAML that does not parse: '
      f'{getattr(error, "problem", error)}'
    ) from error


def _value(node: yaml.Node, what: str, kind: type[yaml.Node]) -> Any:
  """Returns what a node of this kind holds: a text, nodes, or named nodes."""
  if not isinstance(node, kind) or not node.value:
    wrong = _KINDS[node.id] if node.value else 'empty'
    raise _fault(node, f'{what} is {wrong}; expected {_KINDS[kind.id]}')
  if kind is not yaml.MappingNode:
    return node.value
  found = {}
  for key, value in node.value:
    name = _text(key, f'a name in {what}')
    if name in found:
      raise _fault(key, f'{what} has {name!r} twice')
    found[name] = value
  return found


def _text(node: yaml.Node, what: str) -> str:
  return str(_value(node, what, yaml.ScalarNode))


def _texts(node: yaml.Node, what: str) -> list[str]:
  items = _value(node, what, yaml.SequenceNode)
  return [_text(item, f'an item of {what}') for item in items]


def _template(node: yaml.Node, what: str) -> _Template:
  try:
    parts = [*string.Formatter().parse(_text(node, what))]
    if any(column == '' or spec or how for _, column, spec, how in parts):
      raise ValueError('braces that hold no column')
  except ValueError as error:
    raise _fault(node, f'{what}: {error}; expected {{column}}') from error
  return [(text, column) for text, column, *_ in parts]


def _register(path: str) -> None:
  root = _load(path)
  fields = _value(root, 'the file', yaml.MappingNode)
  for name, node in fields.items():
    if name not in _FIELDS:
      hint = nearest(name, _FIELDS) or f'; expected {", ".join(_FIELDS)}'
      raise _fault(node, f'unknown field {name!r}{hint}')
  for name in _REQUIRED:
    if name not in fields:
      raise _fault(root, f'the field {name!r} is missing')
  task = _new_name(_text(fields['name'], 'name'), fields['name'])
  names = _texts(fields['metrics'], 'metrics')
  labels, ways = [], _METRICS
  if 'labels' in fields:
    labels = _texts(fields['labels'], 'labels')
    read = functools.partial(
      postprocessors.string_label_to_class_id, label_classes=labels
    )
    ways = {read: _LABEL_METRICS[: 3 if len(labels) == 2 else 2]}
  fitting = [way for way, known in ways.items() if {*names} <= {*known}]
  if not fitting:
    raise _fault(
      fields['metrics'],
      f'metrics {", ".join(names)}; expected '
      + ', or '.join(' or '.join(known) for known in ways.values()),
    )
  templates = {n: _template(fields[n], n) for n in ('inputs', 'targets')}
  folder, splits = os.path.dirname(path), {}
  for split, node in _value(fields['files'], 'files', yaml.MappingNode).items():
    file = _text(node, split)
    jsonl = file.removesuffix('.gz').endswith('.jsonl')
    reader = (_JsonReader if jsonl else _TsvReader)(
      templates, labels, fitting[0] is _number
    )
    splits[split] = Split.of([file], reader)
    found = splits[split].files(folder)
    if not found:
      raise _fault(node, f'{os.path.join(folder, file)} does not exist')
    for data in found:
      _check_columns(data, reader, fields)
  seqio.TaskRegistry.add(
    task,
    source=TwoSources(task, splits, None, folder),
    preprocessors=TOKENIZE,
    postprocess_fn=fitting[0],
    metric_fns=[getattr(metrics, name) for name in names],
    output_features=OUTPUT_FEATURES,
  )
  _registered.append(task)
  if 'mixtures' in fields:
    _register_mixtures(_value(fields['mixtures'], 'mixtures', yaml.MappingNode))


def _check_columns(
  path: str, reader: _TsvReader, fields: Mapping[str, yaml.Node]
) -> None:
  columns = reader.columns(path)
  for name, template in reader.templates.items():
    for _, column in template if columns else ():
      if column and column not in columns:
        raise _fault(
          fields[name],
          f'{name} has the column {column!r}, but {path} has '
          f'{", ".join(columns)}{nearest(column, columns)}',
        )


def _register_mixtures(mixtures: Mapping[str, yaml.Node]) -> None:
  """Registers mixtures; a part that is a mixture shares out its rate."""
  for name, node in mixtures.items():
    rates = {}
    for part, rate in _value(node, name, yaml.MappingNode).items():
      if part not in _known():
        raise _fault(rate, f'unknown task or mixture {part!r}{_nearest(part)}')
      if not re.fullmatch(r'(?=.*[1-9])\d*\.?\d+', _text(rate, part)):
        raise _fault(rate, f'the rate {rate.value!r}; expected one such as 0.1')
      rates[part] = float(rate.value)
    try:
      seqio.MixtureRegistry.add(_new_name(name, node), [*rates.items()])
    except ValueError as error:
      reason = str(error).partition('\n')[0].rstrip(':')
      raise _fault(node, reason) from error
    _registered.append(name)


def _new_name(name: str, node: yaml.Node) -> str:
  if not re.fullmatch(r'[A-Za-z]\w*', name) or name.startswith(PREFIX):
    raise _fault(
      node,
      f'the name {name!r}; expected letters, digits and _, first a letter, and '
      f'no {PREFIX} in front',
    )
  # A table shows our tasks without the prefix.
  if {name, PREFIX + name} & {*_known()}:
    raise _fault(node, f'the name {name!r} is taken; choose another')
  return name
