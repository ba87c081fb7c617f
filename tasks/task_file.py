"""The user's own tasks, each in a YAML file that the setting `task_file` names.

docs/data.md describes such a file. Its task and mixtures are registered as soon
as gin has read the settings, for T5's main, and before a name is looked up
here; again if a file has changed.
"""

import collections
import functools
import os
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import seqio
import yaml
from t5.data import postprocessors
from t5.evaluation import metrics

from synth_mtf.errors import UserError, nearest, nearest_task
from synth_mtf.storage import filesystem
from synth_mtf.tasks import data_settings, task_readers, vocabulary
from synth_mtf.tasks.files import formats, source
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
_FIELDS = {**_REQUIRED, 'labels': [str], 'mixtures': dict, 'quotes': str}
# What metrics compare: texts, lists of answers, numbers, or classes.
_TEXT_METRICS = (
  'accuracy',
  'sequence_accuracy',
  'bleu',
  'rouge',
  'edit_distance',
)
_ANSWER_METRICS = ('squad', 'trivia_qa')
_NUMBER_METRICS = (
  'pearson_corrcoef',
  'spearman_corrcoef',
  'mean_squared_error',
)
_CLASS_METRICS = ('accuracy', 'sequence_accuracy', 'mean_multiclass_f1')
_TWO_CLASS_METRICS = (*_CLASS_METRICS, 'f1_score_with_invalid')
# Of any task; T5 measures it in mode 'perplexity_eval'.
_LOG_PERPLEXITY = 'log_perplexity'

_MOST_DEPTH = 10  # of lists and mappings in the YAML file
_MOST_BYTES = 1 << 20  # of the YAML file, which is parsed in Python

_registered: list[str] = []
_state = {'': ''}  # of the files when they were registered


def register() -> Sequence[str]:
  """Registers what the task files define, unless that is done.

  Returns the names. After a UserError, nothing in the files is registered.
  """
  with filesystem.named_by(data_settings.name_of('task_file')):
    return _register_all()


def _register_all() -> Sequence[str]:
  setting = data_settings.settings().task_file or ''
  paths = [os.path.expanduser(p.strip()) for p in setting.split(',') if p]
  state = {setting: filesystem.state(paths)}
  if state == _state:
    return _registered
  _remove()
  _state.update(state)  # first, since seqio may call this while it registers
  try:
    for path in paths:
      _register(path)
  except BaseException:
    _remove()
    raise
  return _registered


def _remove() -> None:
  for name in _registered:
    seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove(name)
  _registered.clear()
  _state.clear()


def get(name: str) -> seqio.dataset_providers.DatasetProviderBase:
  """Returns the task or mixture `name`; a UserError suggests similar names."""
  register()
  if not _is_known(name):
    hint = nearest_task(name, _known())
    raise UserError(f'unknown task or mixture {name!r}{hint}')
  return seqio.get_mixture_or_task(name)


def _known() -> list[str]:
  return [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]


def _is_known(name: str) -> bool:
  registries = seqio.TaskRegistry, seqio.MixtureRegistry
  return any(name in registry.names() for registry in registries)


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


def _split(
  file: Any, split: str, folder: str, quotes: str | None, *template: Any
) -> source.Split:
  """Returns a split of one file or pattern; `template` is the reader's."""
  formats.check_json(file, str, split)
  reader = task_readers.reader_of(file, quotes)
  result = source.Split.of([file], reader(*template))
  path = filesystem.join(folder, file)
  is_there = result.files(folder) or data_settings.settings().cache_dir
  similar = ' or '.join(filesystem.similar(path))
  formats.expect(
    is_there,
    f'{path} does not exist',
    f'a file; there is {similar}' if similar else 'a file',
  )
  return result


def _register(path: str) -> None:
  """Registers the task and the mixtures of a file."""
  fields, lines = _load(path)
  _check_fields(fields, lines, path)
  with formats.fault_at(path, lines['name']):
    task = _new_name(fields['name'])
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
  names = [name for name in fields['metrics'] if name != _LOG_PERPLEXITY]
  with formats.fault_at(path, lines['metrics']):
    postprocess = _postprocessor(names, labels)
  templates = {}
  for name in ('inputs', 'targets'):
    with formats.fault_at(path, lines[name]):
      templates[name] = _template(fields[name])
  numbers = postprocess is task_readers.number
  folder = os.path.dirname(path) or '.'
  splits = {}
  place = f'{path}:{lines["files"]}'
  with formats.fault_at(path, lines['files']), filesystem.named_by(place):
    for split, file in fields['files'].items():
      splits[split] = _split(
        file, split, folder, quotes, templates, labels, numbers
      )
  seqio.TaskRegistry.add(
    task,
    source=source.TwoSources(task, splits, None, folder, place),
    preprocessors=TOKENIZE,
    postprocess_fn=postprocess,
    metric_fns=[_metric(name, labels) for name in names],
    output_features=vocabulary.OUTPUT_FEATURES,
  )
  _registered.append(task)
  for name, parts in fields.get('mixtures', {}).items():
    with formats.fault_at(path, lines['mixtures']):
      _register_mixture(name, parts)


def _new_name(name: str) -> str:
  formats.expect(
    re.fullmatch(r'[A-Za-z]\w{,99}', name) and not name.startswith(PREFIX),
    f'the name {name!r:.200}',
    'a letter, then letters, digits or _, 100 characters at most, without '
    f'{PREFIX} in front',
  )
  # A table shows our tasks without the prefix.
  is_taken = _is_known(name) or _is_known(PREFIX + name)
  formats.expect(not is_taken, f'the name {name!r} is taken', 'another')
  return name


def _postprocessor(names: Sequence[str], labels: Sequence[str]) -> Any:
  """Returns what converts a text to what the metrics compare.

  Raises a ValueError if the metrics do not all compare the same.
  """
  if labels:
    known = _TWO_CLASS_METRICS if len(labels) == 2 else _CLASS_METRICS
    if set(names) <= set(known):
      return functools.partial(
        postprocessors.string_label_to_class_id, label_classes=labels
      )
    expected = ' or '.join(known)
  else:
    if set(names) <= set(_TEXT_METRICS):
      return None
    if set(names) <= set(_ANSWER_METRICS):
      return _answers
    if set(names) <= set(_NUMBER_METRICS):
      return task_readers.number
    groups = (_TEXT_METRICS, _ANSWER_METRICS, _NUMBER_METRICS)
    expected = ', or '.join(' or '.join(group) for group in groups)
  raise ValueError(
    f'metrics {", ".join(names)}; expected {expected}; {_LOG_PERPLEXITY} goes '
    'with any'
  )


def _metric(name: str, labels: Sequence[str]) -> Any:
  """Returns T5's function of a metric."""
  if name == 'mean_multiclass_f1':
    return metrics.mean_multiclass_f1(num_classes=len(labels))
  if name == 'mean_squared_error':
    return metrics.sklearn_metrics_wrapper(name)
  return getattr(metrics, name)


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


def _register_mixture(name: str, parts: Any) -> None:
  """Registers a mixture.

  A part that is a mixture itself divides its rate among its own parts.
  """
  formats.check_json(parts, dict, name)
  formats.expect(parts, f'the mixture {name} without parts', 'tasks and rates')
  for part, rate in parts.items():
    if not _is_known(part):
      hint = nearest_task(part, _known())
      raise ValueError(f'unknown task or mixture {part!r}{hint}')
    number = re.fullmatch(r'(?=.*[1-9])\d*\.?\d+', str(rate))
    formats.expect(number, f'the rate {rate!r}', 'a number such as 0.1')
  rates = [(part, float(rate)) for part, rate in parts.items()]
  seqio.MixtureRegistry.add(_new_name(name), rates)
  _registered.append(name)
