"""Writes metrics.json and predictions.jsonl at each evaluation of T5's main.

T5 writes results only as text and events, and has no hook for them, so its
functions are wrapped; their behavior is otherwise unchanged. docs/runs.md
describes both files.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils
from mesh_tensorflow.transformer.dataset import EvalDataset

from synth_mtf import atomic, paths, tasks
from synth_mtf.checkpoints import folder as checkpoints
from synth_mtf.host import events
from synth_mtf.host.run_config import RunConfig
from synth_mtf.results import layouts, records, standard_error
from synth_mtf.run import origin, output


class Recorder:
  """Wraps T5's evaluation functions."""

  def __init__(self) -> None:
    self._get_estimator = utils.get_estimator
    self._eval_model = utils.eval_model
    self._step = 0  # of the checkpoint being evaluated

  def get_estimator(self, *args: Any, **kwargs: Any) -> Any:
    """Returns an estimator that shows progress and records perplexities."""
    estimator = self._get_estimator(*args, **kwargs)
    estimator.predict = functools.partial(self._predict, estimator.predict)
    estimator.evaluate = functools.partial(
      self._evaluate, estimator, estimator.evaluate
    )
    return estimator

  def _predict(
    self,
    predict: Callable[..., Iterable[Any]],
    *args: Any,
    checkpoint_path: str,
    **kwargs: Any,
  ) -> Iterator[Any]:
    self._step = checkpoints.step_of(checkpoint_path)
    console = output.console_beside_log()
    console.start(f'decode, step {self._step}')
    found = predict(*args, checkpoint_path=checkpoint_path, **kwargs)
    for number, one in enumerate(found, start=1):
      yield one
      console.update(f'{number} examples')

  def _evaluate(
    self, estimator: Any, evaluate: Callable[..., Any], **kwargs: Any
  ) -> Any:
    folder = estimator.eval_dir(kwargs['name'])
    events.without_graph(folder)  # which takes megabytes per task
    found = evaluate(**kwargs)
    _record(
      folder,
      {
        metric: float(found[metric])
        for metric in ('neg_log_perplexity', 'token_accuracy')
      },
      {},
      task=kwargs['input_fn'].keywords['eval_dataset'].name,
      split=RunConfig().dataset_split,
      n=round(float(found['num_eval_tokens'])),
      unit='token',
      step=checkpoints.step_of(kwargs['checkpoint_path']),
    )
    return found

  def eval_model(self, *args: Any, **kwargs: Any) -> None:
    """Runs the host's evaluation on tasks that record their results."""
    call = inspect.signature(self._eval_model).bind(*args, **kwargs)
    call.apply_defaults()
    asked = call.arguments
    folder = asked['eval_summary_dir'] or os.path.join(
      asked['model_dir'], f'{asked["dataset_split"]}_eval'
    )
    if asked['eval_dir_suffix'] is not None:
      folder += f'_{asked["eval_dir_suffix"]}'
    make_datasets = asked['eval_dataset_fn']

    def recorded_datasets(**kwargs: Any) -> list[EvalDataset]:
      split, keeps = asked['dataset_split'], asked['output_eval_examples']
      return [
        self._recorded(EvalDataset(*dataset), folder, split, keeps)
        for dataset in make_datasets(**kwargs)
      ]

    if make_datasets is not None:
      asked['eval_dataset_fn'] = recorded_datasets
    self._eval_model(*call.args, **call.kwargs)

  def _recorded(
    self, dataset: EvalDataset, folder: str, split: str, keep_examples: bool
  ) -> EvalDataset:
    """Returns a task whose functions record their arguments and results.

    At each checkpoint, the host postprocesses every example, then calls each
    metric.
    """
    examples: list[dict[str, Any]] = []
    values: dict[str, float] = {}
    errors: dict[str, float | None] = {}

    def postprocess(text: Any, example: Any = None, **kwargs: Any) -> Any:
      read_as = dataset.postprocess_fn(text, example=example, **kwargs)
      if not kwargs.get('is_target'):
        examples.append(
          {
            'input': example.get('inputs_pretokenized'),
            'target': example.get('targets_pretokenized'),
            'prediction': text,
            'read_as': read_as,
          }
        )
      return read_as

    def measure(metric_fn: Any, is_last: bool, targets: Any, found: Any) -> Any:
      scores = metric_fn(targets, found)
      if isinstance(scores, tf.Summary):
        values.update({v.tag: v.simple_value for v in scores.value})
      else:
        values.update({name: float(v) for name, v in scores.items()})
      spread = standard_error.spread(metric_fn, targets, found)
      errors.update(spread.errors)
      # `alone` is empty if the metric is not a mean over units.
      for unit, scores_of_unit in zip(
        standard_error.units(targets), spread.alone, strict=False
      ):
        for index in unit:
          examples[index].setdefault('scores', {}).update(scores_of_unit)
      if is_last:
        place = {'task': dataset.name, 'split': split, 'step': self._step}
        _record(
          folder,
          values,
          errors,
          n=len(standard_error.units(targets)),
          unit=standard_error.unit(targets),
          **place,
        )
        if keep_examples:
          for example, target in zip(examples, targets, strict=True):
            example['target_read_as'] = target
          records.add_predictions(folder, examples=examples, **place)
        for noted in (examples, values, errors):
          noted.clear()
      return scores

    metric_fns = dataset.metric_fns or []
    return dataset._replace(
      postprocess_fn=postprocess,
      metric_fns=[
        functools.partial(measure, metric_fn, number == len(metric_fns))
        for number, metric_fn in enumerate(metric_fns, start=1)
      ],
    )


def _record(
  folder: str,
  values: Mapping[str, float],
  errors: Mapping[str, float | None],
  **place: Any,
) -> None:
  """Writes results with the versions and configuration used; shows them."""
  is_ours = place['task'].startswith(layouts.PREFIX)
  data_dir = tasks.settings().data_dir_of(place['task']) if is_ours else None
  data = paths.GENERATED if paths.holds_samples(data_dir) else ''
  digest = tasks.inspection.digest(place['task'], place['split'])
  results = [
    records.Result(
      metric=metric,
      value=value,
      standard_error=errors.get(metric),
      data=data,
      digest=digest,
      **place,
    )
    for metric, value in values.items()
  ]
  vocabulary = RunConfig().vocabulary
  made_with = {**origin.here(vocabulary), 'gin': gin.operative_config_str()}
  records.add_results(folder, results, made_with)
  note = f'  ({data})' if data else ''
  console = output.console_beside_log()
  for result in results:
    error = result.standard_error
    spread = '' if error is None else f' +- {error:.2g}'
    console.line(
      f'{result.step}  {result.task.removeprefix(layouts.PREFIX)}  '
      f'{result.metric} {result.value:.4g}{spread}  n = {result.n}{note}'
    )


def write_lines(lines: Iterable[Any], filename: str) -> None:
  """Writes one text per line, replacing the host's function.

  The host writes bytes as `b'...'`, and not atomically. Line breaks inside a
  text (a carriage return, U+2028) become spaces, so that every reader sees one
  line.
  """
  tf.io.gfile.makedirs(os.path.dirname(filename))
  with atomic.writing(filename) as stream:
    for line in lines:
      if isinstance(line, bytes):
        line = line.decode('utf-8', 'replace')
      stream.write(' '.join(str(line).splitlines()) + '\n')
