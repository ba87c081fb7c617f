"""The columns of tables: those of the paper's Tables 2 to 7, and all others.

This is data alone. It needs neither TensorFlow nor any run, so that the command
line can name the layouts without either.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

# Of tasks that this package registers; the rest of their names is T5's.
PREFIX = 'synth_'
VANILLA = ('T5 (V)', 'T5')  # plain T5: with our layer, and with the host's
LOG_PERPLEXITY = 'neg_log_perplexity'
PER_TOKEN = (LOG_PERPLEXITY, 'token_accuracy', 'sequence_accuracy')


@dataclasses.dataclass(frozen=True)
class Measure:
  """One of the numbers of a column.

  Attributes:
    name: identifies it within the column.
    tags: of `scores.frame`; the first that a run has counts.
    shown: formats it.
    better: 1 if higher numbers are better, -1 if lower ones are, or else 0.
    scale: multiplies the metric's value and standard error.
    of: then converts the value, of metrics that have no standard error.
    varies: whether runs of one model may differ in it.
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
    header: printed above it.
    measures: its numbers.
    key: unlike that of any other column.
    over: the columns that it averages, by T5's rule: inside each task first,
      then over tasks.
    note: printed below the table.
    optional: whether it is left out where no run has it.
  """

  header: str
  measures: Sequence[Measure]
  key: str
  over: Sequence['Column'] = ()
  note: str = ''
  optional: bool = False

  @property
  def names(self) -> list[str]:
    """A name for each measure, unlike any other in a table."""
    if len(self.measures) == 1:
      return [self.key]
    return [f'{self.key} {measure.name}' for measure in self.measures]

  @property
  def tags(self) -> set[str]:
    return {tag for measure in self.measures for tag in measure.tags}


class Layout(NamedTuple):
  """The columns of a table, and whether it is of no use without any score."""

  title: str
  columns: Sequence[Column]
  needs_scores: bool = True


def millions(number: float) -> str:
  """Formats a number of parameters."""
  return f'{number / 1e6:.2f}M' if number < 10e6 else f'{number / 1e6:.0f}M'


def _products(number: float) -> str:
  return f'{number / 1e9:.3g}G' if number > 1e8 else f'{number / 1e6:.3g}M'


def _column(
  header: str,
  *measures: str,
  key: str = '',
  over: Sequence[Column] = (),
  note: str = '',
  optional: bool = False,
  **looks: Any,
) -> Column:
  """Makes a column whose measures are '<name>=<tag>|<tag>', alike in looks."""
  parsed = [measure.split('=') for measure in measures]
  made = [Measure(name, tags.split('|'), **looks) for name, tags in parsed]
  return Column(header, made, key or header, over, note, optional)


def _log_perplexity(header: str, *tasks: str) -> Column:
  return _column(
    header,
    'log perplexity=' + '|'.join(f'{task}/{LOG_PERPLEXITY}' for task in tasks),
    note='Log ppl: log perplexity, in nats per token.',
    shown='{:.3f}'.format,
    better=-1,
    scale=-1,
  )


def _optional(columns: Iterable[Column]) -> list[Column]:
  return [dataclasses.replace(column, optional=True) for column in columns]


_GLUE = (
  _column('CoLA', 'Matthews=glue_cola_v002/matthews_corrcoef'),
  _column('SST', 'accuracy=glue_sst2_v002/accuracy'),
  _column('MRPC', 'F1=glue_mrpc_v002/f1', 'accuracy=glue_mrpc_v002/accuracy'),
  _column(
    'STSB',
    'Pearson=glue_stsb_v002/pearson_corrcoef',
    'Spearman=glue_stsb_v002/spearman_corrcoef',
  ),
  _column('QQP', 'F1=glue_qqp_v002/f1', 'accuracy=glue_qqp_v002/accuracy'),
  _column(
    'MNLI',
    'matched=glue_mnli_matched_v002/accuracy',
    'mismatched=glue_mnli_mismatched_v002/accuracy',
  ),
  _column('QNLI', 'accuracy=glue_qnli_v002/accuracy'),
  _column('RTE', 'accuracy=glue_rte_v002/accuracy', key='GLUE RTE'),
)
_SUPER_GLUE = (
  _column('BoolQ', 'accuracy=super_glue_boolq_v102/accuracy'),
  _column(
    'CB',
    'F1=super_glue_cb_v102/mean_3class_f1',
    'accuracy=super_glue_cb_v102/accuracy',
  ),
  _column('CoPA', 'accuracy=super_glue_copa_v102/accuracy'),
  _column(
    'MultiRC',
    'F1a=super_glue_multirc_v102/f1',
    'EM=super_glue_multirc_v102/exact_match',
  ),
  _column(
    'ReCoRD', 'F1=super_glue_record_v102/f1', 'EM=super_glue_record_v102/em'
  ),
  _column('RTE', 'accuracy=super_glue_rte_v102/accuracy', key='SuperGLUE RTE'),
  _column('WiC', 'accuracy=super_glue_wic_v102/accuracy'),
  _column('WSC', 'accuracy=super_glue_wsc_v102_simple_eval/accuracy'),
)
_T5S_RULE = (
  "Averages are T5's: over the metrics of each task, then over tasks. A "
  'correlation is not defined if all answers are alike: it is shown as "-" and '
  'counts as 0.'
)
_GLUE_AVERAGE = _column('GLUE', 'average=', over=_GLUE, note=_T5S_RULE)
_SUPER_GLUE_AVERAGE = _column(
  'SuperGLUE', 'average=', over=_SUPER_GLUE, note=_T5S_RULE
)
_SQUAD = _column(
  'SQuAD',
  'EM=squad_v010_allanswers/em|squad_v010_allanswers_span/em|squad_v010/em',
  'F1=squad_v010_allanswers/f1|squad_v010_allanswers_span/f1|squad_v010/f1',
)
_SUMMARIES = _column(
  'CNN/DM',
  'ROUGE-1=cnn_dailymail_v002/rouge1',
  'ROUGE-2=cnn_dailymail_v002/rouge2',
  # T5's ROUGE-L is that of whole summaries, where it has both.
  'ROUGE-L=cnn_dailymail_v002/rougeLsum|cnn_dailymail_v002/rougeL',
)
_DIALOGUE = tuple(
  _column(name, f'{name}=personachat/{metric}', key=f'dialogue {name}')
  for name, metric in {
    'BLEU-1': 'bleu_1',
    'BLEU-4': 'bleu_4',
    'ROUGE-L': 'rouge_l',
    'METEOR': 'meteor',
    'CIDEr': 'cider',
    'Emb': 'embedding_similarity',
  }.items()
)
_TRANSLATION = tuple(
  _column(
    header,
    'BLEU=' + '|'.join(f'{task}/bleu' for task in tasks),
    shown='{:.2f}'.format,
    optional=header == 'En-Ro',
  )
  for header, *tasks in (
    ('En-De', 'wmt14_ende_v003', 'wmt_t2t_ende_v003'),
    ('En-Fr', 'wmt14_enfr_v003', 'wmt15_enfr_v003'),
    ('En-Ro', 'wmt16_enro_v003'),
  )
)
_LM1B = (
  _column(
    'LM1B',
    f'perplexity=lm1b/{LOG_PERPLEXITY}',
    shown='{:.2f}'.format,
    better=-1,
    scale=-1,
    of=math.exp,
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
_ENCODERS = (
  _column('AG News', 'accuracy=ag_news_class/sequence_accuracy', scale=100),
  _column('IMDB', 'accuracy=imdb_reviews_class/sequence_accuracy', scale=100),
)
_CLASS_WORDS = _optional(
  (
    _column('AG News, as text', 'accuracy=ag_news/accuracy'),
    _column('IMDB, as text', 'accuracy=imdb_reviews/accuracy'),
  )
)
_PARAMETERS = _column(
  'Params',
  'parameters=parameters',
  note='Params: the numbers that training changes.',
  shown=millions,
  better=0,
  varies=False,
)
_PRODUCTS = _column(
  'Products',
  'products=products',
  note='Products: multiplications in a forward pass over a pair of sequences.',
  shown=_products,
  better=0,
  varies=False,
)
_SPEED = _column(
  'Steps/s',
  'steps per second=steps_per_second',
  note='Steps/s: the median of the first training.',
)
_RELATIVE_SPEED = _column(
  'x T5', 'speed over T5=speed_over_t5', shown='{:.2f}'.format, optional=True
)
# All columns of scores, in T5's order.
_KNOWN = (
  _GLUE_AVERAGE,
  *_GLUE,
  _SUMMARIES,
  _SQUAD,
  _SUPER_GLUE_AVERAGE,
  *_SUPER_GLUE,
  _column('DPR', 'accuracy=dpr_v001_simple/accuracy'),
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


def overview(tags: Iterable[str]) -> Layout:
  """The layout for whatever runs have: all of these tags."""
  known = {tag for column in _KNOWN for tag in column.tags}
  others: list[Column] = []
  perplexities: list[str] = []
  for tag in sorted(set(tags) - known):
    task, _, metric = tag.rpartition('/')
    if metric == LOG_PERPLEXITY:
      perplexities.append(task)
    elif task and metric not in PER_TOKEN:
      others.append(Column(tag, [Measure(metric, [tag], better=0)], tag))
  several = len(perplexities) > 1
  log_perplexities = [
    _log_perplexity(f'Log ppl {task}' if several else 'Log ppl', task)
    for task in perplexities
  ]
  columns = [*_optional(_KNOWN), *others, *log_perplexities]
  return Layout('Results', [*columns, _SPEED, _PARAMETERS], needs_scores=False)
