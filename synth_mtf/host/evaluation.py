"""Reports the results of the host's evaluations to an observer.

The host only writes them as text and events, and has no hook for them. Its
functions are wrapped here, and otherwise do what they did.
"""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional, Protocol

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import dataset as transformer_dataset
from mesh_tensorflow.transformer import utils

from synth_mtf import atomic
from synth_mtf.host import events

MetricFn = Callable[[Sequence[Any], Sequence[Any]], Any]


@dataclasses.dataclass(frozen=True)
class Example:
  """An example that was evaluated.

  Attributes:
    features: as the task made them, with `inputs_pretokenized` and the like.
    written: the text that the model wrote (or the score of the target).
    read_as: what the task's postprocessing made of it.
  """

  features: Mapping[str, Any]
  written: Any
  read_as: Any


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """A task at a checkpoint, evaluated by its own metrics.

  Attributes:
    folder: where the host writes.
    task: its name.
    split: of its examples.
    step: of the checkpoint.
    examples: in their order.
    targets: what the task's postprocessing made of their targets.
    metrics: each metric function, and what it returned.
  """

  folder: str
  task: str
  split: str
  step: int
  examples: Sequence[Example]
  targets: Sequence[Any]
  metrics: Sequence[tuple[MetricFn, Mapping[str, float]]]


@dataclasses.dataclass(frozen=True)
class Perplexity:
  """A task at a checkpoint, evaluated token by token.

  Attributes:
    folder: where the host writes.
    task: its name.
    split: of its examples.
    step: of the checkpoint.
    measures: the host's, by name; `num_eval_tokens` among them.
  """

  folder: str
  task: str
  split: str
  step: int
  measures: Mapping[str, float]


class Observer(Protocol):
  """Receives progress and results of evaluations."""

  def decoded(self, step: int, examples: int) -> None:
    """Receives the number of examples decoded or scored at a checkpoint."""

  def evaluated(self, evaluation: Evaluation) -> None:
    """Receives the results of a task."""

  def measured(self, perplexity: Perplexity) -> None:
    """Receives the log perplexity of a task."""


def observe(observer: Observer) -> None:
  """Reports all further evaluations of this process to an observer."""
  noted = _Noted(observer)
  utils.get_estimator = _observed_estimators(utils.get_estimator, noted)
  utils.eval_model = _observed_evaluation(utils.eval_model, noted)


def write_text() -> None:
  """Makes the host write text as text, not `b'...'`, and files atomically."""
  utils.write_lines_to_file = _write_lines


@dataclasses.dataclass
class _Noted:
  """The checkpoint that the host is at, and the observer."""

  observer: Observer
  step: Optional[int] = None


def _observed_estimators(
  get_estimator: Callable[..., Any], noted: _Noted
) -> Callable[..., Any]:
  @functools.wraps(get_estimator)
  def observed(*args: Any, **kwargs: Any) -> Any:
    estimator = get_estimator(*args, **kwargs)
    estimator.predict = _observed_predictions(estimator.predict, noted)
    estimator.evaluate = _observed_measures(estimator, noted)
    return estimator

  return observed


def _observed_predictions(
  predict: Callable[..., Iterable[Any]], noted: _Noted
) -> Callable[..., Iterator[Any]]:
  def observed(
    input_fn: Any,
    *args: Any,
    checkpoint_path: Optional[str] = None,
    **kwargs: Any,
  ) -> Iterator[Any]:
    if checkpoint_path:
      noted.step = utils.get_step_from_checkpoint_path(checkpoint_path)
    found = predict(input_fn, *args, checkpoint_path=checkpoint_path, **kwargs)
    for number, one in enumerate(found, start=1):
      yield one
      if noted.step is not None:
        noted.observer.decoded(noted.step, number)

  return observed


def _observed_measures(estimator: Any, noted: _Noted) -> Callable[..., Any]:
  evaluate = estimator.evaluate

  def observed(input_fn: Any, *args: Any, **kwargs: Any) -> Any:
    name, path = kwargs.get('name'), kwargs.get('checkpoint_path')
    folder = estimator.eval_dir(name)
    events.without_graph(folder)  # megabytes, for each task
    found = evaluate(input_fn, *args, **kwargs)
    # The host's own call binds the data set to its input function.
    dataset = getattr(input_fn, 'keywords', {}).get('eval_dataset')
    if dataset is not None and path and name:
      noted.observer.measured(
        Perplexity(
          folder=folder,
          task=dataset.name,
          split=gin.get_bindings(utils.run).get('dataset_split', 'train'),
          step=utils.get_step_from_checkpoint_path(path),
          measures={
            key: float(value)
            for key, value in found.items()
            if key != 'global_step'
          },
        )
      )
    return found

  return observed


def _observed_evaluation(
  eval_model: Callable[..., None], noted: _Noted
) -> Callable[..., None]:
  @functools.wraps(eval_model)
  def observed(*args: Any, **kwargs: Any) -> None:
    call = inspect.signature(eval_model).bind(*args, **kwargs)
    call.apply_defaults()
    asked = call.arguments
    folder = asked['eval_summary_dir'] or os.path.join(
      asked['model_dir'], f'{asked["dataset_split"]}_eval'
    )
    if asked['eval_dir_suffix'] is not None:
      folder += f'_{asked["eval_dir_suffix"]}'
    split, datasets = asked['dataset_split'], asked['eval_dataset_fn']

    def observed_datasets(**kwargs: Any) -> list[Any]:
      return [
        _ObservedTask(
          transformer_dataset.EvalDataset(*dataset), folder, split, noted
        ).dataset
        for dataset in datasets(**kwargs)
      ]

    if datasets is not None:
      asked['eval_dataset_fn'] = observed_datasets
    eval_model(*call.args, **call.kwargs)

  return observed


class _ObservedTask:
  """Wraps the postprocessing and the metrics of a task.

  At each checkpoint, the host calls the postprocessing of every example, then
  the metrics.
  """

  def __init__(
    self, dataset: Any, folder: str, split: str, noted: _Noted
  ) -> None:
    self._original = dataset
    self._folder = folder
    self._split = split
    self._noted = noted
    self._examples: list[Example] = []
    self._metrics: list[tuple[MetricFn, Mapping[str, float]]] = []

  @property
  def dataset(self) -> Any:
    """The task's data set for the host, with wrapped functions."""
    return self._original._replace(
      postprocess_fn=self._postprocess,
      metric_fns=[
        functools.partial(self._measure, metric_fn)
        for metric_fn in self._original.metric_fns or []
      ],
    )

  def _postprocess(
    self, written: Any, example: Any = None, is_target: bool = False
  ) -> Any:
    read_as = self._original.postprocess_fn(
      written, example=example, **({'is_target': True} if is_target else {})
    )
    if not is_target:
      self._examples.append(Example(example, written, read_as))
    return read_as

  def _measure(
    self,
    metric_fn: MetricFn,
    targets: Sequence[Any],
    predictions: Sequence[Any],
  ) -> Any:
    found = metric_fn(targets, predictions)
    self._metrics.append((metric_fn, _scalars(found)))
    if len(self._metrics) == len(self._original.metric_fns):
      self._noted.observer.evaluated(
        Evaluation(
          folder=self._folder,
          task=self._original.name,
          split=self._split,
          step=self._noted.step or 0,
          examples=self._examples,
          targets=targets,
          metrics=self._metrics,
        )
      )
      self._examples, self._metrics = [], []
    return found


def _scalars(found: Any) -> dict[str, float]:
  if isinstance(found, tf.Summary):
    return {value.tag: value.simple_value for value in found.value}
  return {name: float(value) for name, value in found.items()}


def _write_lines(lines: Iterable[Any], filename: str) -> None:
  """Writes each line, as the host's function of this name does.

  Line breaks inside a text (a carriage return, U+2028) become spaces, so that
  it stays one line for any reader.

  Args:
    lines: bytes are text in UTF-8.
    filename: replaced if it is there.
  """
  tf.io.gfile.makedirs(os.path.dirname(filename))
  with atomic.writing(filename) as stream:
    for line in lines:
      text = (
        line.decode('utf-8', 'replace')
        if isinstance(line, bytes)
        else str(line)
      )
      stream.write(' '.join(text.splitlines()) + '\n')
