"""Writes metrics.json and predictions.jsonl at each evaluation of T5's main.

T5 writes results only as text and events, and has no hook for them, so its
functions are wrapped; their behavior is otherwise unchanged. docs/runs.md
describes both files.
"""

import functools
import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gin
import numpy as np
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils
from mesh_tensorflow.transformer.dataset import EvalDataset

from synth_mtf import paths, tasks
from synth_mtf.checkpoints.folder import step_of
from synth_mtf.errors import UserError
from synth_mtf.host import patches
from synth_mtf.host.run_config import RunConfig
from synth_mtf.results import layouts, records, standard_error
from synth_mtf.run import current, origin, output, words
from synth_mtf.storage import atomic, filesystem
from synth_mtf.tasks import cache_record


def recorded(estimator: Any) -> Any:
  """Makes an estimator show progress and record perplexities; returns it."""
  patches.replace_methods(
    estimator,
    predict=functools.partial(_predict, estimator.predict),
    evaluate=functools.partial(_evaluate, estimator, estimator.evaluate),
    export_saved_model=functools.partial(_export, estimator.export_saved_model),
  )
  return estimator


def counted(lines: list[str]) -> list[str]:
  """Notes how many lines are to decode; returns them."""
  repeats = gin.get_bindings(utils.decode_from_file).get('repeats', 1)
  current.run().evaluation.total = len(lines) * repeats
  return lines


def _export(export: Callable[..., bytes], *args: Any, **kwargs: Any) -> bytes:
  path = export(*args, **kwargs)
  current.run().outcome.add_written(os.fsdecode(path))
  return path


def _predict(
  predict: Callable[..., Iterable[Any]],
  *args: Any,
  checkpoint_path: str,
  **kwargs: Any,
) -> Iterator[Any]:
  evaluation = current.run().evaluation
  evaluation.step = step_of(checkpoint_path)
  console = output.console_beside_log()
  console.start(f'decode, step {evaluation.step}')
  predictions = predict(*args, checkpoint_path=checkpoint_path, **kwargs)
  for number, prediction in enumerate(predictions, start=1):
    yield prediction
    total = evaluation.total
    if total:  # the last batch is filled up
      console.update(f'{min(number, total)} of {total} examples')
    else:
      console.update(f'{number} examples')


def _evaluate(
  estimator: Any, evaluate: Callable[..., Any], **kwargs: Any
) -> Any:
  folder = estimator.eval_dir(kwargs['name'])
  _show_missing_lock(folder)
  patches.keep_graph_from_events(folder)  # megabytes per task
  step = step_of(kwargs['checkpoint_path'])
  console = output.console_beside_log()
  console.start(f'perplexity, step {step}', f'{kwargs["steps"]} batches ...')
  measured = evaluate(**kwargs)
  values = {
    metric: float(measured[metric])
    for metric in ('neg_log_perplexity', 'token_accuracy')
  }
  dataset = kwargs['input_fn'].keywords['eval_dataset']
  config = RunConfig()
  record = functools.partial(
    _record,
    folder,
    errors={},
    reasons={},
    task=dataset.name,
    split=config.dataset_split,
    step=step,
  )
  record(values, n=round(float(measured['num_eval_tokens'])), unit='token')
  if config.model_type == 'lm':
    name = kwargs['name']
    known = current.run().evaluation.word_counts
    if name not in known:  # the same at each checkpoint
      known[name] = words.count(dataset, config.examples * kwargs['steps'])
    counts = known[name]
    if counts:
      per_token = values[layouts.LOG_PERPLEXITY]
      per_word = {
        layouts.LOG_PERPLEXITY_PER_WORD: per_token * counts.tokens_per_word
      }
      record(per_word, n=counts.words, unit='word')
  return measured


def _show_missing_lock(folder: str) -> None:
  """Says once, of results in a bucket, that nothing protects them.

  TensorFlow's file systems can neither lock an object nor replace it only if
  it has not changed.
  """
  evaluation = current.run().evaluation
  if filesystem.is_bucket(folder) and not evaluation.has_named_bucket:
    evaluation.has_named_bucket = True
    output.console_beside_log().line(
      f'{folder}: a bucket has no locks; run no other evaluation with '
      'results there at the same time (utils.run.eval_dir_suffix separates '
      'them)'
    )


def eval_model(
  host_eval_model: Callable[..., None], *args: Any, **kwargs: Any
) -> None:
  """Runs the host's evaluation on tasks that record their results."""
  call = inspect.signature(host_eval_model).bind(*args, **kwargs)
  call.apply_defaults()
  arguments = call.arguments
  split = arguments['dataset_split']
  folder = arguments['eval_summary_dir'] or os.path.join(
    arguments['model_dir'], f'{split}_eval'
  )
  if arguments['eval_dir_suffix'] is not None:
    folder += f'_{arguments["eval_dir_suffix"]}'
  _show_missing_lock(folder)
  keep_examples = arguments['output_eval_examples']
  make_datasets = arguments['eval_dataset_fn']
  evaluation = current.run().evaluation

  def recorded_datasets(**kwargs: Any) -> list[EvalDataset]:
    datasets = []
    for fields in make_datasets(**kwargs):
      dataset = EvalDataset(*fields)
      task = _RecordedTask(evaluation, dataset, folder, split, keep_examples)
      datasets.append(task.dataset())
    return datasets

  evaluation.total = 0
  if make_datasets is not None:
    arguments['eval_dataset_fn'] = recorded_datasets
  host_eval_model(*call.args, **call.kwargs)


class _RecordedTask:
  """A task whose functions record their arguments and results.

  At each checkpoint, the host postprocesses every example, then calls each
  metric.
  """

  def __init__(
    self,
    evaluation: current.Evaluation,
    dataset: EvalDataset,
    folder: str,
    split: str,
    keep_examples: bool,
  ) -> None:
    self._evaluation = evaluation
    self._dataset = dataset
    self._folder = folder
    self._split = split
    self._keep_examples = keep_examples
    self._examples: list[dict[str, Any]] = []
    self._values: dict[str, float] = {}
    self._errors: dict[str, float | None] = {}
    self._reasons: dict[str, str] = {}

  def dataset(self) -> EvalDataset:
    """Returns the host's description of the task, with these functions."""
    metric_fns = self._dataset.metric_fns or []
    recorded = []
    for number, metric_fn in enumerate(metric_fns, start=1):
      is_last = number == len(metric_fns)
      recorded.append(functools.partial(self._measure, metric_fn, is_last))
    return self._dataset._replace(
      postprocess_fn=self._postprocess, metric_fns=recorded
    )

  def _postprocess(self, text: Any, example: Any = None, **kwargs: Any) -> Any:
    read_as = self._dataset.postprocess_fn(text, example=example, **kwargs)
    if kwargs.get('is_target'):
      self._evaluation.total += 1
    else:
      self._examples.append(
        {
          'input': example.get('inputs_pretokenized'),
          'target': example.get('targets_pretokenized'),
          'prediction': text,
          'read_as': read_as,
        }
      )
    return read_as

  def _measure(
    self, metric_fn: Any, is_last: bool, targets: Any, predictions: Any
  ) -> Any:
    scores, values = _scores(
      metric_fn, self._dataset.name, targets, predictions
    )
    self._values.update(values)
    for name, value in values.items():
      if not math.isfinite(value):
        self._reasons[name] = why_undefined(targets, predictions)
    spread = standard_error.spread(metric_fn, targets, predictions)
    self._errors.update(spread.errors)
    if spread.alone:
      self._add_scores(standard_error.units(targets), spread.alone)
    if is_last:
      self._write(targets)
    return scores

  def _add_scores(
    self,
    units: Sequence[Sequence[int]],
    scores: Sequence[Mapping[str, float]],
  ) -> None:
    """Adds each unit's scores to its examples."""
    for unit, scores_of_unit in zip(units, scores, strict=True):
      for index in unit:
        example = self._examples[index]
        example.setdefault('scores', {}).update(scores_of_unit)

  def _write(self, targets: Any) -> None:
    """Writes what the functions recorded, and starts anew."""
    task, step = self._dataset.name, self._evaluation.step
    _record(
      self._folder,
      self._values,
      self._errors,
      self._reasons,
      task=task,
      split=self._split,
      n=len(standard_error.units(targets)),
      unit=standard_error.unit(targets),
      step=step,
    )
    if self._keep_examples:
      for example, target in zip(self._examples, targets, strict=True):
        example['target_read_as'] = target
      records.add_predictions(
        self._folder, task, self._split, step, self._examples
      )
    self._examples.clear()
    self._values.clear()
    self._errors.clear()
    self._reasons.clear()


def _record(
  folder: str,
  values: Mapping[str, float],
  errors: Mapping[str, float | None],
  reasons: Mapping[str, str],
  *,
  task: str,
  split: str,
  n: int,
  unit: str,
  step: int,
) -> None:
  """Writes results with the versions and configuration used; shows them.

  Values, standard errors and reasons are by metric; the other arguments are
  fields of `records.Result`.
  """
  is_ours = task.startswith(layouts.PREFIX)
  has_samples = is_ours and tasks.settings().has_samples(task)
  data = paths.GENERATED if has_samples else ''
  cached = cache_record.of_task(task)
  if cached:
    data = cached.data
  digest = tasks.inspection.digest(task, split)
  results = []
  for metric, value in values.items():
    results.append(
      records.Result(
        task=task,
        split=split,
        metric=metric,
        value=value,
        n=n,
        unit=unit,
        standard_error=errors.get(metric),
        step=step,
        data=data,
        digest=digest,
        reason=reasons.get(metric, ''),
      )
    )
  run = current.run()
  here = origin.here(RunConfig().vocabulary, run.started)
  made_with = {**here, 'gin': gin.operative_config_str()}
  records.add_results(folder, results, made_with)
  console = output.console_beside_log()
  for result in results:
    console.line(_shown(result))
    run.outcome.result = _shown(result)
  run.outcome.add_written(os.path.join(folder, records.METRICS))


def _scores(
  metric_fn: Any, task: str, targets: Any, predictions: Any
) -> tuple[Any, dict[str, float]]:
  """Returns what a metric returns, which T5 writes, and the numbers in it."""
  try:
    scores = metric_fn(targets, predictions)
    if isinstance(scores, tf.Summary):
      return scores, {v.tag: v.simple_value for v in scores.value}
    return scores, {name: float(v) for name, v in scores.items()}
  except (UserError, MemoryError):
    raise
  except Exception as error:  # the metric may be a user's own
    name = getattr(metric_fn, '__name__', metric_fn)
    raise UserError(
      f'the metric {name} of {task} fails: {type(error).__name__}: {error}. '
      "Expected a dict of numbers, such as {'accuracy': 50.0}."
    ) from error


def why_undefined(targets: Any, predictions: Any) -> str:
  """Returns why a metric is not a number, or '' if that is unknown."""
  for name, answers in (('targets', targets), ('predictions', predictions)):
    numbers = [x for x in answers if isinstance(x, (float, np.floating))]
    undefined = len(numbers) - sum(map(math.isfinite, numbers))
    if undefined:
      return f'{undefined} of {len(answers)} {name} read as NaN or infinity'
  for name, answers in (('predictions', predictions), ('targets', targets)):
    if len(answers) and all(answer == answers[0] for answer in answers):
      return f'all {name} are alike'
  return ''


def _shown(result: records.Result) -> str:
  """Returns a result as a line of text."""
  task = result.task.removeprefix(layouts.PREFIX)
  text = f'{result.step}  {task}  {result.metric} {result.value:.4g}'
  if result.standard_error is not None:
    text += f' +- {result.standard_error:.2g}'
  text += f'  n = {result.n}'
  if result.reason:
    text += f'  ({result.reason})'
  return f'{text}  ({result.data})' if result.data else text


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
  current.run().outcome.add_written(filename)
