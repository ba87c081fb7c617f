"""Which columns a table has: those of the paper's Tables 2 to 7, and others."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Optional

from synth_mtf.results.runs import Run
from synth_mtf.results.tables.columns import (
  AverageColumn,
  Column,
  FactColumn,
  Measure,
  ScoreColumn,
  TaskColumn,
  mean,
  tag_of,
)

# What plain T5 is called: with our layer, and with the host's.
VANILLA = ('T5 (V)', 'T5')


@dataclasses.dataclass(frozen=True)
class Layout:
  """What a table shows.

  Attributes:
    title: for its caption.
    columns: in their order.
    needs_scores: whether it is of no use without any score.
  """

  title: str
  columns: Sequence[Column]
  needs_scores: bool = True


def millions(number: float) -> str:
  """Shows how many parameters there are."""
  return f'{number / 1e6:.2f}M' if number < 10e6 else f'{number / 1e6:.0f}M'


def _products(number: float) -> str:
  return f'{number / 1e9:.3g}G' if number > 1e8 else f'{number / 1e6:.3g}M'


def _task(
  header: str,
  *measures: Measure,
  key: Optional[str] = None,
  meaning: str = '',
) -> TaskColumn:
  return TaskColumn(key or header, header, measures, meaning)


def _measures(task: str, **metrics: str) -> Sequence[Measure]:
  """Measures of a task: the name of each, and the host's."""
  return [
    Measure(name.replace('_', '-'), [f'{task}/{metric}'])
    for name, metric in metrics.items()
  ]


def _accuracy(header: str, task: str, key: Optional[str] = None) -> TaskColumn:
  return _task(header, *_measures(task, accuracy='accuracy'), key=key)


def _f1_accuracy(header: str, task: str) -> TaskColumn:
  return _task(header, *_measures(task, F1='f1', accuracy='accuracy'))


def _bleu(header: str, *tasks: str) -> TaskColumn:
  tags = [f'{task}/bleu' for task in tasks]
  return _task(header, Measure('BLEU', tags, '{:.2f}'.format))


def _log_perplexity(header: str, *tasks: str) -> TaskColumn:
  return _task(
    header,
    Measure(
      'log perplexity',
      [f'{task}/neg_log_perplexity' for task in tasks],
      '{:.3f}'.format,
      higher_is_better=False,
      of=lambda value: -value,
    ),
    meaning='Log ppl: log perplexity, nats per token.',
  )


def _rouge(task: str) -> Sequence[Measure]:
  """ROUGE-L of T5 is that of whole summaries, where it tells two."""
  one, two = _measures(task, ROUGE_1='rouge1', ROUGE_2='rouge2')
  return one, two, Measure('ROUGE-L', [f'{task}/rougeLsum', f'{task}/rougeL'])


_GLUE = (
  _task('CoLA', *_measures('glue_cola_v002', Matthews='matthews_corrcoef')),
  _accuracy('SST', 'glue_sst2_v002'),
  _f1_accuracy('MRPC', 'glue_mrpc_v002'),
  _task(
    'STSB',
    *_measures(
      'glue_stsb_v002', Pearson='pearson_corrcoef', Spearman='spearman_corrcoef'
    ),
  ),
  _f1_accuracy('QQP', 'glue_qqp_v002'),
  _task(
    'MNLI',
    *_measures('glue_mnli_matched_v002', matched='accuracy'),
    *_measures('glue_mnli_mismatched_v002', mismatched='accuracy'),
  ),
  _accuracy('QNLI', 'glue_qnli_v002'),
  _accuracy('RTE', 'glue_rte_v002', key='GLUE RTE'),
)
_SUPER_GLUE = (
  _accuracy('BoolQ', 'super_glue_boolq_v102'),
  _task(
    'CB',
    *_measures('super_glue_cb_v102', F1='mean_3class_f1', accuracy='accuracy'),
  ),
  _accuracy('CoPA', 'super_glue_copa_v102'),
  _task(
    'MultiRC',
    *_measures('super_glue_multirc_v102', F1a='f1', EM='exact_match'),
  ),
  _task('ReCoRD', *_measures('super_glue_record_v102', F1='f1', EM='em')),
  _accuracy('RTE', 'super_glue_rte_v102', key='SuperGLUE RTE'),
  _accuracy('WiC', 'super_glue_wic_v102'),
  _accuracy('WSC', 'super_glue_wsc_v102_simple_eval'),
)
_AVERAGES = (
  AverageColumn('GLUE', 'GLUE', _GLUE),
  AverageColumn('SuperGLUE', 'SuperGLUE', _SUPER_GLUE),
)
_SQUAD = _task(
  'SQuAD',
  *(
    Measure(
      metric.upper(),
      [
        f'squad_v010_allanswers/{metric}',
        f'squad_v010_allanswers_span/{metric}',
        f'squad_v010/{metric}',
      ],
    )
    for metric in ('em', 'f1')
  ),
)
_SUMMARIES = _task('CNN/DM', *_rouge('cnn_dailymail_v002'))
_DIALOGUE = tuple(
  _task(name, Measure(name, [f'personachat/{metric}']), key=f'dialogue {name}')
  for name, metric in {
    'BLEU-1': 'bleu_1',
    'BLEU-4': 'bleu_4',
    'ROUGE-L': 'rouge_l',
    'METEOR': 'meteor',
    'CIDEr': 'cider',
    'Emb': 'embedding_similarity',
  }.items()
)
_TRANSLATION = (
  _bleu('En-De', 'wmt14_ende_v003', 'wmt_t2t_ende_v003'),
  _bleu('En-Fr', 'wmt14_enfr_v003', 'wmt15_enfr_v003'),
)
_ROMANIAN = _bleu('En-Ro', 'wmt16_enro_v003')
_LM1B = (
  _task(
    'LM1B',
    Measure(
      'perplexity',
      ['lm1b/neg_log_perplexity'],
      '{:.2f}'.format,
      higher_is_better=False,
      of=lambda value: math.exp(-value),
      slope=lambda value: -math.exp(-value),
    ),
  ),
  _log_perplexity('Log ppl', 'lm1b'),
)
_LOG_PERPLEXITY = 'neg_log_perplexity'
_PRETRAINING = _log_perplexity(
  'Log ppl',
  'c4_span_corruption',
  'c4_v220_span_corruption',
  'c4_v220_unsupervised',
  'text_span_corruption',
)
_ENCODERS = tuple(
  _task(
    header,
    Measure(
      'accuracy',
      [f'{task}/sequence_accuracy'],
      of=lambda value: 100 * value,
      slope=lambda value: 100,
    ),
  )
  for header, task in {
    'AG News': 'ag_news_class',
    'IMDB': 'imdb_reviews_class',
  }.items()
)
_CLASS_WORDS = (
  _accuracy('AG News, as text', 'ag_news'),
  _accuracy('IMDB, as text', 'imdb_reviews'),
)
_PARAMETERS = FactColumn(
  'Params',
  'Params',
  lambda run: run.parameters,
  Measure('parameters', (), millions, higher_is_better=None, varies=False),
  'Params: the numbers that training changes.',
)
_PRODUCTS = FactColumn(
  'Products',
  'Products',
  lambda run: run.products,
  Measure('products', (), _products, higher_is_better=None, varies=False),
  'Products: multiplications of a forward pass over one pair of sequences.',
)
_SPEED = FactColumn(
  'Steps/s',
  'Steps/s',
  lambda run: run.steps_per_second,
  Measure('steps per second'),
  'Steps/s: the median of the first training.',
)
# Those of the whole overview, in T5's order.
_KNOWN: Sequence[ScoreColumn] = (
  _AVERAGES[0],
  *_GLUE,
  _SUMMARIES,
  _SQUAD,
  _AVERAGES[1],
  *_SUPER_GLUE,
  _accuracy('DPR', 'dpr_v001_simple'),
  *_TRANSLATION,
  _ROMANIAN,
  *_DIALOGUE,
  *_ENCODERS,
  *_CLASS_WORDS,
)
_BY_TOKEN = (_LOG_PERPLEXITY, 'token_accuracy', 'sequence_accuracy')


def overview(runs: Sequence[Run]) -> Layout:
  """Whatever the runs have: the layout where none is asked for."""
  there = {tag_of(result): result for run in runs for result in run.results}
  known = _present(_KNOWN, runs)
  shown = {
    tag
    for column in _KNOWN
    for measure in column.measures
    for tag in measure.tags
  }
  others = [
    TaskColumn(tag, tag, [Measure(result.metric, [tag], higher_is_better=None)])
    for tag, result in sorted(there.items())
    if tag not in shown and result.metric not in _BY_TOKEN
  ]
  measured = sorted(
    tag.rpartition('/')[0] for tag in there if tag.endswith(_LOG_PERPLEXITY)
  )
  perplexities = [
    _log_perplexity(
      'Log ppl' if len(measured) == 1 else f'Log ppl {task}', task
    )
    for task in measured
  ]
  return Layout(
    'Results', [*known, *others, *perplexities, _SPEED, _PARAMETERS], False
  )


def _glue(runs: Sequence[Run]) -> Layout:
  """Table 5."""
  del runs
  return Layout('GLUE, as in Table 5', [_AVERAGES[0], *_GLUE])


def _super_glue(runs: Sequence[Run]) -> Layout:
  """Table 6."""
  del runs
  return Layout('SuperGLUE, as in Table 6', [_AVERAGES[1], *_SUPER_GLUE])


def _translation(runs: Sequence[Run]) -> Layout:
  """The left half of Table 2."""
  return Layout(
    'Translation, as in Table 2',
    [_PARAMETERS, *_TRANSLATION, *_present([_ROMANIAN], runs)],
  )


def _language_modelling(runs: Sequence[Run]) -> Layout:
  """The right half of Table 2."""
  del runs
  return Layout('Language modelling, as in Table 2', [_PARAMETERS, *_LM1B])


def _generation(runs: Sequence[Run]) -> Layout:
  """Table 3."""
  del runs
  return Layout(
    'Summaries and dialogue, as in Table 3', [_SUMMARIES, *_DIALOGUE]
  )


def _speed(runs: Sequence[Run]) -> Layout:
  """Table 4."""
  return Layout(
    'Pretraining, as in Table 4',
    [_PRETRAINING, _PARAMETERS, _PRODUCTS, _SPEED, *_over_vanilla(runs)],
    needs_scores=False,
  )


def _classification(runs: Sequence[Run]) -> Layout:
  """Table 7."""
  return Layout(
    'Encoders that classify, as in Table 7',
    [*_ENCODERS, *_present(_CLASS_WORDS, runs), _PARAMETERS, _SPEED],
  )


LAYOUTS: Mapping[str, Callable[[Sequence[Run]], Layout]] = {
  'glue': _glue,
  'superglue': _super_glue,
  'translation': _translation,
  'generation': _generation,
  'lm': _language_modelling,
  'classification': _classification,
  'speed': _speed,
}


def _present(
  columns: Iterable[ScoreColumn], runs: Sequence[Run]
) -> list[ScoreColumn]:
  return [one for one in columns if any(one.is_in(run) for run in runs)]


def _over_vanilla(runs: Sequence[Run]) -> Sequence[FactColumn]:
  """Steps/s over those of T5, if it is among the runs."""
  speeds = [
    run.steps_per_second
    for run in runs
    if run.label in VANILLA and run.steps_per_second
  ]
  if not speeds:
    return ()

  def ratio(run: Run) -> Optional[float]:
    speed = run.steps_per_second
    return None if speed is None else speed / mean(speeds)

  shown = Measure('speed over T5', shown='{:.2f}'.format)
  return [FactColumn('x T5', 'x T5', ratio, shown)]
