"""Layouts of result tables: those of the paper, and an overview.

This module holds only data. It needs neither TensorFlow nor runs, so the
command line can list the layouts without them.
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

# Precedes T5's name for a task in the tasks that this package registers.
PREFIX = 'synth_'
VANILLA = ('T5 (V)', 'T5')  # plain T5: with our layer, and with the host's
LOG_PERPLEXITY = 'neg_log_perplexity'
PER_TOKEN = (LOG_PERPLEXITY, 'token_accuracy', 'sequence_accuracy')


@dataclasses.dataclass(frozen=True)
class Measure:
  """A number in a column.

  Attributes:
    name: unique within the column.
    tags: tags in `scores.frame`; the first one that a run has is used.
    shown: formats the number.
    better: 1 if higher is better, -1 if lower is better, 0 if neither.
    scale: multiplies the metric's value and standard error.
    of: converts the scaled value; only for metrics without a standard error.
    varies: whether the number may differ between runs of one model.
  """

  name: str
  tags: Sequence[str]
  shown: Callable[[float], str] = '{:.1f}'.format
  better: int = 1
  scale: float = 1.0
  of: Callable[[float], float] = float
  varies: bool = True


@dataclasses.dataclass(frozen=True)
class Column:
  """A column: scores of a task, an average over tasks, or a fact about runs.

  Attributes:
    header: printed above the column.
    measures: the numbers in the column.
    key: unique among all columns.
    over: the columns to average.
    note: printed below the table.
    optional: whether the column is left out if no run has it.
  """

  header: str
  measures: Sequence[Measure]
  key: str
  over: Sequence['Column'] = ()
  note: str = ''
  optional: bool = False

  @property
  def named(self) -> dict[str, Measure]:
    """The measures, by names that are unique in a table."""
    if len(self.measures) == 1:
      return {self.key: self.measures[0]}
    return {f'{self.key} {measure.name}': measure for measure in self.measures}

  def average(self, numbers: Mapping[str, float]) -> Optional[float]:
    """Returns the paper's average, which is T5's, of the columns in `over`.

    The numbers of each column are averaged first, so that MNLI counts once. The
    average is NaN if one of them is, and None if one is missing.
    """
    try:
      return statistics.fmean(
        statistics.fmean(numbers[name] for name in column.named)
        for column in self.over
      )
    except KeyError:
      return None

  @property
  def tags(self) -> set[str]:
    return {tag for measure in self.measures for tag in measure.tags}


class Layout(NamedTuple):
  """A table's columns, whether it needs a score, and whose table it is."""

  title: str
  columns: Sequence[Column]
  needs_scores: bool = True
  source: str = 'the paper'


def millions(number: float) -> str:
  """Formats a parameter count in millions."""
  return f'{number / 1e6:.2f}M' if number < 10e6 else f'{number / 1e6:.0f}M'


def _products(number: float) -> str:
  return f'{number / 1e9:.3g}G' if number > 1e8 else f'{number / 1e6:.3g}M'


def _column(
  header: str,
  tasks: str,
  metrics: str,
  key: str = '',
  note: str = '',
  **looks: Any,
) -> Column:
  """Makes a column of scores whose measures share their formatting.

  `tasks` is '<task>|<task>', `metrics` is '<name>=<metric>|<metric>, ...'. Of
  several alternatives, the first that a run has is used.
  """
  measures = []
  for pair in metrics.split(', '):
    name, _, alternatives = pair.partition('=')
    tags = itertools.product(tasks.split('|'), alternatives.split('|'))
    measures.append(Measure(name, list(map('/'.join, tags)), **looks))
  return Column(header, measures, key or header, note=note)


def _log_perplexity(header: str, tasks: str) -> Column:
  return _column(
    header,
    tasks,
    f'log perplexity={LOG_PERPLEXITY}',
    note='Log ppl: log perplexity, in nats per token.',
    shown='{:.3f}'.format,
    better=-1,
    scale=-1,
  )


def _optional(*columns: Column) -> list[Column]:
  return [dataclasses.replace(column, optional=True) for column in columns]


_GLUE = (
  _column('CoLA', 'glue_cola_v002', 'Matthews=matthews_corrcoef'),
  _column('SST', 'glue_sst2_v002', 'accuracy=accuracy'),
  _column('MRPC', 'glue_mrpc_v002', 'F1=f1, accuracy=accuracy'),
  _column(
    'STSB',
    'glue_stsb_v002',
    'Pearson=pearson_corrcoef, Spearman=spearman_corrcoef',
  ),
  _column('QQP', 'glue_qqp_v002', 'F1=f1, accuracy=accuracy'),
  Column(
    'MNLI',
    [
      Measure('matched', ['glue_mnli_matched_v002/accuracy']),
      Measure('mismatched', ['glue_mnli_mismatched_v002/accuracy']),
    ],
    'MNLI',
  ),
  _column('QNLI', 'glue_qnli_v002', 'accuracy=accuracy'),
  _column('GLUE RTE', 'glue_rte_v002', 'accuracy=accuracy'),
)
_SUPER_GLUE = (
  _column('BoolQ', 'super_glue_boolq_v102', 'accuracy=accuracy'),
  _column('CB', 'super_glue_cb_v102', 'F1=mean_3class_f1, accuracy=accuracy'),
  _column('CoPA', 'super_glue_copa_v102', 'accuracy=accuracy'),
  _column('MultiRC', 'super_glue_multirc_v102', 'F1a=f1, EM=exact_match'),
  _column('ReCoRD', 'super_glue_record_v102', 'F1=f1, EM=em'),
  _column('SuperGLUE RTE', 'super_glue_rte_v102', 'accuracy=accuracy'),
  _column('WiC', 'super_glue_wic_v102', 'accuracy=accuracy'),
  _column('WSC', 'super_glue_wsc_v102_simple_eval', 'accuracy=accuracy'),
)
_RULE = (
  "Averages are the paper's: over the metrics of each task, then over tasks. A "
  'correlation is not defined if all answers are alike: it is shown as "-", as '
  'is an average that needs it.'
)
_AVERAGE = (Measure('average', ()),)
_GLUE_AVERAGE = Column('GLUE', _AVERAGE, 'GLUE', _GLUE, _RULE)
_SUPER_GLUE_AVERAGE = Column(
  'SuperGLUE', _AVERAGE, 'SuperGLUE', _SUPER_GLUE, _RULE
)
_SQUAD = _column(
  'SQuAD',
  'squad_v010_allanswers|squad_v010_allanswers_span|squad_v010',
  'EM=em, F1=f1',
)
# T5 reports ROUGE-L over whole summaries (rougeLsum) where it computes both.
_ROUGE = 'ROUGE-1=rouge1, ROUGE-2=rouge2, ROUGE-L=rougeLsum|rougeL'
_SUMMARIES = _column('CNN/DM', 'cnn_dailymail_v002', _ROUGE)
_DIALOGUE = tuple(
  _column(name, 'personachat', f'{name}={metric}', f'dialogue {name}')
  for name, metric in {
    'BLEU-1': 'bleu_1',
    'BLEU-4': 'bleu_4',
    'ROUGE-L': 'rouge_l',
    'METEOR': 'meteor',
    'CIDEr': 'cider',
    'Emb': 'embedding_similarity',
  }.items()
)
_EN_DE, _EN_FR, _EN_RO, _EN_DE_T2T = (
  _column(header, tasks, 'BLEU=bleu', shown='{:.2f}'.format)
  for header, tasks in (
    ('En-De', 'wmt14_ende_v003|wmt_t2t_ende_v003'),
    ('En-Fr', 'wmt14_enfr_v003|wmt15_enfr_v003'),
    ('En-Ro', 'wmt16_enro_v003'),
    ('En-De T2T', 'wmt_t2t_ende_v003'),
  )
)
_XSUM = _column('XSum', 'xsum_v110', _ROUGE, shown='{:.2f}'.format)
_WEB_QUESTIONS = _column(
  'WebQ', 'web_questions_open_test|web_questions_open', 'EM=em, F1=f1'
)
_TRANSLATION = (_EN_DE, _EN_FR, *_optional(_EN_RO))
# The same scores; version 1 has its study of heads on the development sets.
_DEVELOPMENT = tuple(
  dataclasses.replace(column, key=f'{column.key} dev')
  for column in (_EN_DE, _EN_FR, _EN_RO)
)
_LM1B = _column(
  'LM1B',
  'lm1b',
  f'perplexity={LOG_PERPLEXITY}',
  shown='{:.2f}'.format,
  better=-1,
  scale=-1,
  of=math.exp,
)
_C4 = (
  'c4_span_corruption|c4_v220_span_corruption|c4_v220_unsupervised|'
  'text_span_corruption'
)
_C4_LOG_PERPLEXITY = _log_perplexity('Log ppl', _C4)
_ONE_TOKEN = 'accuracy=sequence_accuracy'
_CLASSES = (
  _column('AG News', 'ag_news_class', _ONE_TOKEN, scale=100),
  _column('IMDB', 'imdb_reviews_class', _ONE_TOKEN, scale=100),
  *_optional(
    _column('AG News, as text', 'ag_news', 'accuracy=accuracy'),
    _column('IMDB, as text', 'imdb_reviews', 'accuracy=accuracy'),
  ),
)
_PARAMETERS = Column(
  'Params',
  [Measure('parameters', ['parameters'], millions, 0, varies=False)],
  'Params',
  note='Params: the numbers that training changes.',
)
_PRODUCTS = Column(
  'Products',
  [Measure('products', ['products'], _products, 0, varies=False)],
  'Products',
  note='Products: multiplications in a forward pass over a pair of sequences.',
)
_SPEED = Column(
  'Steps/s',
  [Measure('steps per second', ['steps_per_second'])],
  'Steps/s',
  note='Steps/s: the median of the first training.',
)
_RELATIVE_SPEED = Column(
  'x T5',
  [Measure('speed over T5', ['speed_over_t5'], '{:.2f}'.format)],
  'x T5',
  optional=True,
)
# All score columns, in T5's order.
_KNOWN = (
  _GLUE_AVERAGE,
  *_GLUE,
  _SUMMARIES,
  _SQUAD,
  _SUPER_GLUE_AVERAGE,
  *_SUPER_GLUE,
  _column('DPR', 'dpr_v001_simple', 'accuracy=accuracy'),
  *_TRANSLATION,
  _XSUM,
  _WEB_QUESTIONS,
  *_DIALOGUE,
  *_CLASSES,
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
  'lm': Layout(
    'Language modelling, as in Table 2',
    [_PARAMETERS, _LM1B, _log_perplexity('Log ppl', 'lm1b')],
  ),
  'classification': Layout(
    'Encoders that classify, as in Table 7',
    [*_CLASSES, _PARAMETERS, _SPEED],
  ),
  'speed': Layout(
    'Pretraining, as in Table 4',
    [
      _C4_LOG_PERPLEXITY,
      *(_PARAMETERS, _PRODUCTS, _SPEED, _RELATIVE_SPEED),
    ],
    needs_scores=False,
  ),
  'heads': Layout('Number of heads, as in Table 6 of version 1', _DEVELOPMENT),
  'study': Layout(
    'C4 models, as in Tables 1 and 2 of arXiv 2102.11972',
    [
      *(_PARAMETERS, _SPEED, _C4_LOG_PERPLEXITY, _SUPER_GLUE_AVERAGE),
      *(_XSUM, _WEB_QUESTIONS, _EN_DE_T2T),
    ],
    needs_scores=False,
    source='the study',
  ),
}


def overview(tags: Iterable[str]) -> Layout:
  """Returns a layout for all the tags that runs have."""
  known = {tag for column in _KNOWN for tag in column.tags}
  unknown = {tag: tag.rpartition('/') for tag in sorted(set(tags) - known)}
  others = [
    Column(tag, [Measure(metric, [tag], better=0)], tag)
    for tag, (task, _, metric) in unknown.items()
    if task and metric not in PER_TOKEN
  ]
  tasks = [t for t, _, metric in unknown.values() if metric == LOG_PERPLEXITY]
  header = 'Log ppl {}' if len(tasks) > 1 else 'Log ppl'
  log_perplexities = [_log_perplexity(header.format(t), t) for t in tasks]
  columns = [*_optional(*_KNOWN), *others, *log_perplexities]
  return Layout('Results', [*columns, _SPEED, _PARAMETERS], needs_scores=False)
