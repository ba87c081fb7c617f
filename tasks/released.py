"""The number of rows in the released files, for checking complete copies.

A row is an example as TensorFlow Datasets counts it, before T5's preprocessors:
an answer in MultiRC, a query in ReCoRD, a turn in a dialogue. The figures are
from TFDS's catalogue for the versions that T5 names; where a row is one example
they are also T5's mixing weights (t5.data.glue_utils). Those of ConvAI2, which
TFDS does not have, are from ParlAI.
"""

from __future__ import annotations

from collections.abc import Mapping

from synth_mtf.tasks.registering import PREFIX

_C4 = {'train': 364_868_892, 'validation': 364_608}
_AG_NEWS = {'train': 120_000, 'test': 7_600}
_IMDB = {'train': 25_000, 'test': 25_000}


def _splits(train: int, validation: int, test: int) -> dict[str, int]:
  return {'train': train, 'validation': validation, 'test': test}


# By task, without the prefix.
ROWS: Mapping[str, Mapping[str, int]] = {
  'c4_span_corruption': _C4,
  'c4_v220_span_corruption': _C4,
  'glue_cola_v002': _splits(8_551, 1_043, 1_063),
  'glue_sst2_v002': _splits(67_349, 872, 1_821),
  'glue_mrpc_v002': _splits(3_668, 408, 1_725),
  'glue_stsb_v002': _splits(5_749, 1_500, 1_379),
  'glue_qqp_v002': _splits(363_849, 40_430, 390_965),
  'glue_mnli_v002': {
    'train': 392_702,
    'validation_matched': 9_815,
    'validation_mismatched': 9_832,
    'test_matched': 9_796,
    'test_mismatched': 9_847,
  },
  'glue_mnli_matched_v002': {'validation': 9_815, 'test': 9_796},
  'glue_mnli_mismatched_v002': {'validation': 9_832, 'test': 9_847},
  'glue_qnli_v002': _splits(104_743, 5_463, 5_463),
  'glue_rte_v002': _splits(2_490, 277, 3_000),
  'glue_wnli_v002': _splits(635, 71, 146),
  'super_glue_boolq_v102': _splits(9_427, 3_270, 3_245),
  'super_glue_cb_v102': _splits(250, 56, 250),
  'super_glue_copa_v102': _splits(400, 100, 500),
  'super_glue_multirc_v102': _splits(27_243, 4_848, 9_693),
  'super_glue_record_v102': _splits(100_730, 10_000, 10_000),
  'super_glue_rte_v102': _splits(2_490, 277, 3_000),
  'super_glue_wic_v102': _splits(5_428, 638, 1_400),
  # T5 takes the 259 of these 554 rows whose referent is correct.
  'super_glue_wsc_v102_simple_train': {'train': 554},
  'super_glue_wsc_v102_simple_eval': {'validation': 104, 'test': 146},
  'dpr_v001_simple': {'train': 1_322, 'test': 564},
  'squad_v010_allanswers': {'train': 87_599, 'validation': 10_570},
  # The training rows of all of WMT's files together.
  'wmt14_ende_v003': _splits(4_508_785, 3_000, 3_003),
  'wmt14_enfr_v003': _splits(40_836_715, 3_000, 3_003),
  'wmt16_enro_v003': _splits(610_320, 1_999, 1_999),
  'lm1b': {'train': 30_301_028, 'test': 306_688},
  # Without the 114 stories that have no article.
  'cnn_dailymail_v002': _splits(287_113, 13_368, 11_490),
  'personachat': {'train': 131_438, 'validation': 7_801},
  'ag_news': _AG_NEWS,
  'ag_news_class': _AG_NEWS,
  'imdb_reviews': _IMDB,
  'imdb_reviews_class': _IMDB,
}

# Row counts of other releases of a file, and what they are called.
_OTHERWISE: Mapping[tuple[str, str], Mapping[int, str]] = {
  ('glue_qqp_v002', 'train'): {363_846: 'QQP-clean.zip'},
  ('glue_qnli_v002', 'train'): {108_436: 'QNLI, version 1'},
  ('glue_qnli_v002', 'validation'): {5_732: 'QNLI, version 1'},
  ('wmt14_ende_v003', 'test'): {2_737: 'newstest2014, first release'},
}


def rows(task_name: str, split: str) -> int | None:
  """Returns the number of rows in the released files, None if unknown."""
  return ROWS.get(task_name[len(PREFIX) :], {}).get(split)


def compared(task_name: str, split: str, count: int) -> str:
  """Compares a row count with the released files; '' if that is not known."""
  expected = rows(task_name, split)
  if expected is None:
    return ''
  if count == expected:
    return 'as released'
  other = _OTHERWISE.get((task_name[len(PREFIX) :], split), {}).get(count)
  if other:
    return f'as released ({other})'
  difference = abs(expected - count)
  return f'{difference:,} {"missing" if count < expected else "more"}'
