"""The columns of tables: those of the paper's Tables 2 to 7, and all others.

This is data alone. It needs neither TensorFlow nor any run, so that the command
line can name the layouts without either.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Optional

# Of tasks that this package registers; the rest of their names is T5's.
PREFIX = 'synth_'
_LOG_PERPLEXITY = 'neg_log_perplexity'
_PER_TOKEN = (_LOG_PERPLEXITY, 'token_accuracy', 'sequence_accuracy')


@dataclasses.dataclass(frozen=True)
class Measure:
  """One of the numbers of a column.

  Attributes:
    name: identifies it among the measures of the column.
    tags: T5's `<task>/<metric>` without our prefix; the first that a run has
      counts.
    shown: formats it.
    higher_is_better: None if no number is better than another.
    of: converts the metric's value.
    slope: derivative of `of`, for standard errors.
    varies: whether runs of one model may differ in it.
  """

  name: str
  tags: Sequence[str] = ()
  shown: Callable[[float], str] = '{:.1f}'.format
  higher_is_better: Optional[bool] = True
  of: Callable[[float], float] = lambda value: value
  slope: Callable[[float], float] = lambda value: 1.0
  varies: bool = True


@dataclasses.dataclass(frozen=True)
class Column:
  """A column: scores of a task, an average over tasks, or a fact about runs.

  Attributes:
    header: printed above it.
    measures: its numbers.
    key: unlike that of any other column; the header if it is left out.
    over: the columns that it averages, by T5's rule: inside each task first,
      then over tasks.
    fact: finds the number of a run, given all runs of the table.
    note: printed below the table.
    optional: whether it is left out where no run has it.
  """

  header: str
  measures: Sequence[Measure]
  key: str = ''
  over: Sequence['Column'] = ()
  fact: Optional[Callable[[Any, Sequence[Any]], Optional[float]]] = None
  note: str = ''
  optional: bool = False

  def __post_init__(self) -> None:
    object.__setattr__(self, 'key', self.key or self.header)

  @property
  def names(self) -> list[str]:
    """A name for each measure, unlike any other in a table."""
    if len(self.measures) == 1:
      return [self.key]
    return [f'{self.key} {measure.name}' for measure in self.measures]

  @property
  def tags(self) -> set[str]:
    """The tags of all measures."""
    return {tag for measure in self.measures for tag in measure.tags}


@dataclasses.dataclass(frozen=True)
class Layout:
  """The columns of a table, and whether it is of no use without any score."""

  title: str
  columns: Sequence[Column]
  needs_scores: bool = True


def millions(number: float) -> str:
  """Formats a number of parameters."""
  return f'{number / 1e6:.2f}M' if number < 10e6 else f'{number / 1e6:.0f}M'


def _products(number: float) -> str:
  return f'{number / 1e9:.3g}G' if number > 1e8 else f'{number / 1e6:.3g}M'


def _measures(task: str, **metrics: str) -> list[Measure]:
  """Measures of a task: the name of each (with _ for -), and T5's."""
  return [
    Measure(name.replace('_', '-'), [f'{task}/{metric}'])
    for name, metric in metrics.items()
  ]


def _task(header: str, task: str, key: str = '', **metrics: str) -> Column:
  metrics = metrics or {'accuracy': 'accuracy'}
  return Column(header, _measures(task, **metrics), key)


def _bleu(header: str, *tasks: str, optional: bool = False) -> Column:
  bleu = Measure('BLEU', [f'{task}/bleu' for task in tasks], '{:.2f}'.format)
  return Column(header, [bleu], optional=optional)


def _log_perplexity(header: str, *tasks: str) -> Column:
  measure = Measure(
    'log perplexity',
    [f'{task}/{_LOG_PERPLEXITY}' for task in tasks],
    '{:.3f}'.format,
    higher_is_better=False,
    of=lambda value: -value,
  )
  note = 'Log ppl: log perplexity, in nats per token.'
  return Column(header, [measure], note=note)


_BOTH = {'F1': 'f1', 'accuracy': 'accuracy'}
_GLUE = (
  _task('CoLA', 'glue_cola_v002', Matthews='matthews_corrcoef'),
  _task('SST', 'glue_sst2_v002'),
  _task('MRPC', 'glue_mrpc_v002', **_BOTH),
  _task(
    'STSB',
    'glue_stsb_v002',
    Pearson='pearson_corrcoef',
    Spearman='spearman_corrcoef',
  ),
  _task('QQP', 'glue_qqp_v002', **_BOTH),
  Column(
    'MNLI',
    [
      *_measures('glue_mnli_matched_v002', matched='accuracy'),
      *_measures('glue_mnli_mismatched_v002', mismatched='accuracy'),
    ],
  ),
  _task('QNLI', 'glue_qnli_v002'),
  _task('RTE', 'glue_rte_v002', key='GLUE RTE'),
)
_SUPER_GLUE = (
  _task('BoolQ', 'super_glue_boolq_v102'),
  _task('CB', 'super_glue_cb_v102', F1='mean_3class_f1', accuracy='accuracy'),
  _task('CoPA', 'super_glue_copa_v102'),
  _task('MultiRC', 'super_glue_multirc_v102', F1a='f1', EM='exact_match'),
  _task('ReCoRD', 'super_glue_record_v102', F1='f1', EM='em'),
  _task('RTE', 'super_glue_rte_v102', key='SuperGLUE RTE'),
  _task('WiC', 'super_glue_wic_v102'),
  _task('WSC', 'super_glue_wsc_v102_simple_eval'),
)
_AVERAGE = (Measure('average'),)
_GLUE_AVERAGE = Column('GLUE', _AVERAGE, over=_GLUE)
_SUPER_GLUE_AVERAGE = Column('SuperGLUE', _AVERAGE, over=_SUPER_GLUE)
_SQUAD = Column(
  'SQuAD',
  [
    Measure(
      metric.upper(),
      [
        f'squad_v010_allanswers/{metric}',
        f'squad_v010_allanswers_span/{metric}',
        f'squad_v010/{metric}',
      ],
    )
    for metric in ('em', 'f1')
  ],
)
_SUMMARIES = Column(
  'CNN/DM',
  [
    *_measures('cnn_dailymail_v002', ROUGE_1='rouge1', ROUGE_2='rouge2'),
    # T5's ROUGE-L is that of whole summaries, where it has both.
    Measure(
      'ROUGE-L', ['cnn_dailymail_v002/rougeLsum', 'cnn_dailymail_v002/rougeL']
    ),
  ],
)
_DIALOGUE = tuple(
  _task(name, 'personachat', f'dialogue {name}', **{name: metric})
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
  _bleu('En-Ro', 'wmt16_enro_v003', optional=True),
)
_LM1B = (
  Column(
    'LM1B',
    [
      Measure(
        'perplexity',
        [f'lm1b/{_LOG_PERPLEXITY}'],
        '{:.2f}'.format,
        higher_is_better=False,
        of=lambda value: math.exp(-value),
        slope=lambda value: -math.exp(-value),
      )
    ],
  ),
  _log_perplexity('Log ppl', 'lm1b'),
)
_PRETRAINING = _log_perplexity(
  'Log ppl',
  'c4_span_corruption',
  'c4_v220_span_corruption',
  'c4_v220_unsupervised',
  'text_span_corruption',
)
_ENCODERS = tuple(
  Column(
    header,
    [
      Measure(
        'accuracy',
        [f'{task}/sequence_accuracy'],
        of=lambda value: 100 * value,
        slope=lambda value: 100,
      )
    ],
  )
  for header, task in {
    'AG News': 'ag_news_class',
    'IMDB': 'imdb_reviews_class',
  }.items()
)
_CLASS_WORDS = tuple(
  dataclasses.replace(_task(f'{name}, as text', task), optional=True)
  for name, task in {'AG News': 'ag_news', 'IMDB': 'imdb_reviews'}.items()
)
_PARAMETERS = Column(
  'Params',
  [Measure('parameters', (), millions, higher_is_better=None, varies=False)],
  fact=lambda run, runs: run.parameters,
  note='Params: the numbers that training changes.',
)
_PRODUCTS = Column(
  'Products',
  [Measure('products', (), _products, higher_is_better=None, varies=False)],
  fact=lambda run, runs: run.products,
  note='Products: multiplications in a forward pass over a pair of sequences.',
)
_SPEED = Column(
  'Steps/s',
  [Measure('steps per second')],
  fact=lambda run, runs: run.steps_per_second,
  note='Steps/s: the median of the first training.',
)
VANILLA = ('T5 (V)', 'T5')  # plain T5: with our layer, and with the host's


def _relative_speed(run: Any, runs: Sequence[Any]) -> Optional[float]:
  """Steps per second, divided by the mean of T5's if it is in the table."""
  speeds = [
    one.steps_per_second
    for one in runs
    if one.label in VANILLA and one.steps_per_second
  ]
  if not speeds or run.steps_per_second is None:
    return None
  return run.steps_per_second * len(speeds) / sum(speeds)


_RELATIVE_SPEED = Column(
  'x T5',
  [Measure('speed over T5', shown='{:.2f}'.format)],
  fact=_relative_speed,
  optional=True,
)
# All columns of scores, in T5's order.
_KNOWN = (
  _GLUE_AVERAGE,
  *_GLUE,
  _SUMMARIES,
  _SQUAD,
  _SUPER_GLUE_AVERAGE,
  *_SUPER_GLUE,
  _task('DPR', 'dpr_v001_simple'),
  *_TRANSLATION,
  *_DIALOGUE,
  *_ENCODERS,
  *_CLASS_WORDS,
)

LAYOUTS: dict[str, Layout] = {
  'glue': Layout('GLUE, as in Table 5', [_GLUE_AVERAGE, *_GLUE]),
  'superglue': Layout(
    'SuperGLUE, as in Table 6', [_SUPER_GLUE_AVERAGE, *_SUPER_GLUE]
  ),
  'translation': Layout(
    'Translation, as in Table 2', [_PARAMETERS, *_TRANSLATION]
  ),
  'generation': Layout(
    'Summaries and dialogue, as in Table 3', [_SUMMARIES, *_DIALOGUE]
  ),
  'lm': Layout('Language modelling, as in Table 2', [_PARAMETERS, *_LM1B]),
  'classification': Layout(
    'Encoders that classify, as in Table 7',
    [*_ENCODERS, *_CLASS_WORDS, _PARAMETERS, _SPEED],
  ),
  'speed': Layout(
    'Pretraining, as in Table 4',
    [_PRETRAINING, _PARAMETERS, _PRODUCTS, _SPEED, _RELATIVE_SPEED],
    needs_scores=False,
  ),
}


def overview(tags: Sequence[str]) -> Layout:
  """The layout for whatever runs have, where no other is asked for.

  Args:
    tags: of all their scores.
  """
  known = {tag for column in _KNOWN for tag in column.tags}
  others = []
  perplexities = []
  for tag in sorted(set(tags) - known):
    task, _, metric = tag.rpartition('/')
    if metric == _LOG_PERPLEXITY:
      perplexities.append(task)
    elif metric not in _PER_TOKEN:
      others.append(
        Column(tag, [Measure(metric, [tag], higher_is_better=None)])
      )
  several = len(perplexities) > 1
  return Layout(
    'Results',
    [
      *(dataclasses.replace(column, optional=True) for column in _KNOWN),
      *others,
      *(
        _log_perplexity(f'Log ppl {task}' if several else 'Log ppl', task)
        for task in perplexities
      ),
      _SPEED,
      _PARAMETERS,
    ],
    needs_scores=False,
  )
