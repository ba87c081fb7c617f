"""Row counts of the released files, to check that a copy is complete.

A row is an example as TensorFlow Datasets counts it, before T5's preprocessors:
an answer in MultiRC, a query in ReCoRD, a turn in a dialogue. The counts come
from TFDS's catalogue, for the versions that T5 names; where a row is one
example, they are also T5's mixing weights (t5.data.glue_utils). The ConvAI2
counts come from ParlAI, because TFDS does not have ConvAI2.
"""

from __future__ import annotations

from synth_mtf.tasks.registering import PREFIX

_MNLI = {
  'train': 392_702,
  'validation_matched': 9_815,
  'validation_mismatched': 9_832,
  'test_matched': 9_796,
  'test_mismatched': 9_847,
}
# Rows for training, validation and test, by task name without the prefix.
_ROWS = {
  'c4_span_corruption': (364_868_892, 364_608, None),
  'c4_v220_span_corruption': (364_868_892, 364_608, None),
  'glue_cola_v002': (8_551, 1_043, 1_063),
  'glue_sst2_v002': (67_349, 872, 1_821),
  'glue_mrpc_v002': (3_668, 408, 1_725),
  'glue_stsb_v002': (5_749, 1_500, 1_379),
  'glue_qqp_v002': (363_849, 40_430, 390_965),
  'glue_mnli_matched_v002': (None, 9_815, 9_796),
  'glue_mnli_mismatched_v002': (None, 9_832, 9_847),
  'glue_qnli_v002': (104_743, 5_463, 5_463),
  'glue_rte_v002': (2_490, 277, 3_000),
  'glue_wnli_v002': (635, 71, 146),
  'super_glue_boolq_v102': (9_427, 3_270, 3_245),
  'super_glue_cb_v102': (250, 56, 250),
  'super_glue_copa_v102': (400, 100, 500),
  'super_glue_multirc_v102': (27_243, 4_848, 9_693),
  'super_glue_record_v102': (100_730, 10_000, 10_000),
  'super_glue_rte_v102': (2_490, 277, 3_000),
  'super_glue_wic_v102': (5_428, 638, 1_400),
  # T5 trains on the 259 of these 554 rows whose referent is correct.
  'super_glue_wsc_v102_simple_train': (554, None, None),
  'super_glue_wsc_v102_simple_eval': (None, 104, 146),
  'dpr_v001_simple': (1_322, None, 564),
  'squad_v010_allanswers': (87_599, 10_570, None),
  'web_questions_open': (3_417, 361, 2_032),
  'web_questions_open_test': (3_778, 2_032, None),
  # Training rows are the total of all WMT files.
  'wmt14_ende_v003': (4_508_785, 3_000, 3_003),
  'wmt14_enfr_v003': (40_836_715, 3_000, 3_003),
  'wmt16_enro_v003': (610_320, 1_999, 1_999),
  'wmt_t2t_ende_v003': (4_592_289, 3_000, 3_003),
  'lm1b': (30_301_028, None, 306_688),
  # Excludes the 114 stories without an article.
  'cnn_dailymail_v002': (287_113, 13_368, 11_490),
  'xsum_v110': (203_577, 11_305, 11_301),
  'personachat': (131_438, 7_801, None),
  'ag_news': (120_000, None, 7_600),
  'ag_news_class': (120_000, None, 7_600),
  'imdb_reviews': (25_000, None, 25_000),
  'imdb_reviews_class': (25_000, None, 25_000),
}
_SPLITS = ('train', 'validation', 'test')
ROWS = {
  'glue_mnli_v002': _MNLI,
  **{
    name: {split: n for split, n in zip(_SPLITS, counts) if n}
    for name, counts in _ROWS.items()
  },
}


def rows(task_name: str, split: str) -> int | None:
  """Returns the number of rows in the released files, or None if unknown."""
  return ROWS.get(task_name.removeprefix(PREFIX), {}).get(split)


def compared(task_name: str, split: str, count: int | None) -> str:
  """Compares a row count with the released one; '' if one is unknown."""
  expected = rows(task_name, split)
  if count is None or expected is None:
    return ''
  if count == expected:
    return 'as released'
  difference = abs(expected - count)
  return f'{difference:,} {"missing" if count < expected else "more"}'
