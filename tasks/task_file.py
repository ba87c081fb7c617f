"""The user's own tasks, each in a YAML file that the setting `task_file` names.

docs/data.md describes such a file. Its task and mixtures are registered as soon
as gin has read the settings, for T5's main, and before a name is looked up
here; again if a file has changed.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import gin
import seqio
import yaml
from t5.data import postprocessors
from t5.evaluation import metrics

from synth_mtf.errors import UserError, nearest
from synth_mtf.tasks import data_settings, vocabulary
from synth_mtf.tasks.files import formats, source, storage
from synth_mtf.tasks.registering import PREFIX, TOKENIZE


def _answers(text: str, is_target: bool = False, **_: Any) -> Any:
  """Makes a target a list of correct answers, as the metrics expect."""
  return [text] if is_target else text


_REQUIRED = {
  'name': str,
  'files': dict,
  'inputs': str,
  'targets': str,
  'metrics': [str],
}
_FIELDS = {**_REQUIRED, 'labels': [str], 'mixtures': dict}
_number = postprocessors.string_to_float
# The metrics that compare texts which are read in one way.
_METRICS: Mapping[Any, Sequence[str]] = {
  None: ('accuracy', 'sequence_accuracy', 'bleu', 'rouge', 'edit_distance'),
  _answers: ('squad', 'trivia_qa'),
  _number: ('pearson_corrcoef', 'spearman_corrcoef'),
}
_LABEL_METRICS = ('accuracy', 'sequence_accuracy', 'f1_score_with_invalid')
# Texts, each before the column that follows it, if any.
_Template = Sequence[tuple[str, str | None]]

_registered: list[str] = []
_state = {'': ''}  # of the files when they were registered


@dataclasses.dataclass(eq=False)
class _TsvReader(formats.TsvReader):
  """Reads a TSV file with a header."""

  templates: Mapping[str, _Template]
  labels: Sequence[str]
  numbers: bool

  schema = dict.fromkeys(('inputs', 'targets'), formats.TEXT)
  exact = True

  def __post_init__(self) -> None:
    parts = [part for parts in self.templates.values() for part in parts]
    self.columns = [column for _, column in parts if column]

  def parse(self, record: formats.Record) -> formats.Items:
    row: dict[Any, str] = {None: '', **self.row(record)}
    example = {
      feature: ''.join(text + row[column] for text, column in template)
      for feature, template in self.templates.items()
    }
    target = example['targets']
    if self.labels:
      example['targets'] = self.labels[formats.class_of(target, self.labels)]
    elif self.numbers:
      found = f'the target {formats.quote(target)}'
      number = _number(target, math.nan)
      formats.expect(math.isfinite(number), found, 'a number')
    yield example


class _JsonReader(_TsvReader):
  """Reads JSON lines; a column is a text, a number, or true or false."""

  read_header = formats.Reader.read_header
  records = formats.Reader.records

  def row(self, record: formats.Record) -> dict[str, Any]:
    row = formats.json_row(record, dict.fromkeys(self.columns, object))
    for name in self.columns:
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


@gin.config.register_finalize_hook
def _register_when_configured(_config: Any) -> None:
  register()


def get(name: str) -> seqio.dataset_providers.DatasetProviderBase:
  """Returns the task or mixture `name`; a UserError suggests similar names."""
  register()
  if name not in _known():
    raise UserError(f'unknown task or mixture {name!r}{_nearest(name)}')
  return seqio.get_mixture_or_task(name)


def _known() -> list[str]:
  return [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]


def _nearest(name: str) -> str:
  return nearest(PREFIX + name, _known()) or nearest(name, _known())


def _load(path: str) -> tuple[dict[str, Any], dict[str, int]]:
  """Returns the fields of a file, whose scalars are texts, and their lines."""
  with storage.reading(path) as stream:
    text = stream.read().decode('utf-8-sig')
  try:
    tree = yaml.compose(text, yaml.BaseLoader)
    fields = yaml.load(text, yaml.BaseLoader)
  except yaml.YAMLError as error:
    mark = getattr(error, 'problem_mark', None)
    raise UserError(
      f'{path}:{mark.line + 1 if mark else 1}: YAML that does not parse: '
      f'{getattr(error, "problem", error)}'
    ) from error
  with formats.fault_at(path, 1):
    formats.check_json(fields, dict, 'the file')
  _check_names(tree, path)
  return fields, {key.value: key.start_mark.line + 1 for key, _ in tree.value}


def _check_names(node: Any, path: str) -> None:
  """Rejects a name that a mapping has twice; YAML takes the last."""
  if isinstance(node, yaml.MappingNode):
    names = [key.value for key, _ in node.value]
    for key, value in node.value:
      with formats.fault_at(path, key.start_mark.line + 1):
        once = names.count(key.value) == 1
        formats.expect(once, f'{key.value!r} twice', 'it once')
      _check_names(value, path)


def _register(path: str) -> None:
  fields, lines = _load(path)
  for name, value in fields.items():
    with formats.fault_at(path, lines[name]):
      if name not in _FIELDS:
        hint = nearest(name, _FIELDS) or f'; expected {", ".join(_FIELDS)}'
        raise ValueError(f'unknown field {name!r}{hint}')
      formats.check_json(value, _FIELDS[name], name)
      formats.expect(value, f'{name} is empty', 'a value')
  with formats.fault_at(path, 1):
    formats.check_json(fields, dict.fromkeys(_REQUIRED, object), 'the file')
  with formats.fault_at(path, lines['name']):
    task = _new_name(fields['name'])
  labels = fields.get('labels', ())
  with formats.fault_at(path, lines['metrics']):
    read = _postprocessor(fields['metrics'], labels)
  templates = {}
  for name in ('inputs', 'targets'):
    with formats.fault_at(path, lines[name]):
      templates[name] = _template(fields[name])
  folder, splits = os.path.dirname(path) or '.', {}
  for split, file in fields['files'].items():
    with formats.fault_at(path, lines['files']):
      formats.check_json(file, str, split)
      jsonl = file.removesuffix('.gz').endswith('.jsonl')
      reader = _JsonReader if jsonl else _TsvReader
      splits[split] = source.Split.of(
        [file], reader(templates, labels, read is _number)
      )
      formats.expect(
        splits[split].files(folder),
        f'{os.path.join(folder, file)} does not exist',
        'a file',
      )
  seqio.TaskRegistry.add(
    task,
    source=source.TwoSources(task, splits, None, folder),
    preprocessors=TOKENIZE,
    postprocess_fn=read,
    metric_fns=[getattr(metrics, name) for name in fields['metrics']],
    output_features=vocabulary.OUTPUT_FEATURES,
  )
  _registered.append(task)
  for name, parts in fields.get('mixtures', {}).items():
    with formats.fault_at(path, lines['mixtures']):
      _register_mixture(name, parts)


def _new_name(name: str) -> str:
  formats.expect(
    re.fullmatch(r'[A-Za-z]\w*', name) and not name.startswith(PREFIX),
    f'the name {name!r}',
    f'letters, digits and _, first a letter, and no {PREFIX} in front',
  )
  # A table shows our tasks without the prefix.
  taken = {name, PREFIX + name} & {*_known()}
  formats.expect(not taken, f'the name {name!r} is taken', 'another')
  return name


def _postprocessor(names: Sequence[str], labels: Sequence[str]) -> Any:
  """Returns how the metrics read texts, the same way for all of them."""
  ways = _METRICS
  if labels:
    read = functools.partial(
      postprocessors.string_label_to_class_id, label_classes=labels
    )
    ways = {read: _LABEL_METRICS[: 3 if len(labels) == 2 else 2]}
  for way, known in ways.items():
    if {*names} <= {*known}:
      return way
  expected = ', or '.join(' or '.join(known) for known in ways.values())
  raise ValueError(f'metrics {", ".join(names)}; expected {expected}')


def _template(text: str) -> _Template:
  parts = [*string.Formatter().parse(text)]
  other = any(column == '' or spec or how for _, column, spec, how in parts)
  formats.expect(not other, 'braces that hold no column', '{column}')
  formats.expect(
    any(column for _, column, *_ in parts),
    f'no column in {formats.quote(text)}',
    "a column in braces and quotes, such as '{sentence}'",
  )
  return [(text, column) for text, column, *_ in parts]


def _register_mixture(name: str, parts: Any) -> None:
  """Registers a mixture; a part that is a mixture shares out its rate."""
  formats.check_json(parts, dict, name)
  formats.expect(parts, f'the mixture {name} without parts', 'tasks and rates')
  for part, rate in parts.items():
    if part not in _known():
      raise ValueError(f'unknown task or mixture {part!r}{_nearest(part)}')
    number = re.fullmatch(r'(?=.*[1-9])\d*\.?\d+', str(rate))
    formats.expect(number, f'the rate {rate!r}', 'one such as 0.1')
  rates = [(part, float(rate)) for part, rate in parts.items()]
  seqio.MixtureRegistry.add(_new_name(name), rates)
  _registered.append(name)
