"""The user's own tasks, each in a YAML file that the setting `task_file` names.

docs/data.md describes such a file. Its task and mixtures are registered as soon
as gin has read the settings, for T5's main, and before a name is looked up
here; again if a file has changed.
"""

import functools
from collections.abc import Sequence
from typing import Any

import seqio
from t5.data import postprocessors
from t5.evaluation import metrics

from synth_mtf.errors import UserError, nearest_task
from synth_mtf.rows import formats, task_files, task_readers
from synth_mtf.rows.task_files import Compared
from synth_mtf.storage import filesystem
from synth_mtf.tasks import data_settings, vocabulary
from synth_mtf.tasks.files import source
from synth_mtf.tasks.registering import TOKENIZE


def _answers(text: str, is_target: bool = False, **_: Any) -> Any:
  """Makes a target a list of correct answers, as the metrics expect."""
  return [text] if is_target else text


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
  paths = task_files.paths_in(setting)
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


def _register(path: str) -> None:
  """Registers the task and the mixtures of a file."""
  defined = task_files.read(path, _known())
  if not data_settings.settings().cache_dir:  # which may have all rows
    defined.check_files()
  splits = {
    split: source.Split.of([file], defined.readers[split])
    for split, file in defined.files.items()
  }
  seqio.TaskRegistry.add(
    defined.name,
    source=source.TwoSources(
      defined.name, splits, None, defined.folder, defined.place
    ),
    preprocessors=TOKENIZE,
    postprocess_fn=_postprocessor(defined),
    metric_fns=[_metric(name, defined.labels) for name in defined.metrics],
    output_features=vocabulary.OUTPUT_FEATURES,
  )
  _registered.append(defined.name)
  for name, rates in defined.mixtures.items():
    # A part that is a mixture itself divides its rate among its own parts.
    with formats.fault_at(path, defined.lines['mixtures']):
      seqio.MixtureRegistry.add(name, [*rates.items()])
    _registered.append(name)


def _postprocessor(defined: task_files.TaskFile) -> Any:
  """Returns what converts a text to what the metrics compare."""
  if defined.compared is Compared.CLASSES:
    return functools.partial(
      postprocessors.string_label_to_class_id, label_classes=defined.labels
    )
  functions = {
    Compared.ANSWERS: _answers,
    Compared.NUMBERS: task_readers.number,
  }
  return functions.get(defined.compared)


def _metric(name: str, labels: Sequence[str]) -> Any:
  """Returns T5's function of a metric."""
  if name == 'mean_multiclass_f1':
    return metrics.mean_multiclass_f1(num_classes=len(labels))
  if name == 'mean_squared_error':
    return metrics.sklearn_metrics_wrapper(name)
  return getattr(metrics, name)
