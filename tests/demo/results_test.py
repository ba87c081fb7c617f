"""The table of results."""

from synth_mtf.demo import results

GLUE = {
  'synth_glue_cola_v002/matthews_corrcoef': 10.0,
  'synth_glue_sst2_v002/accuracy': 20.0,
  'synth_glue_mrpc_v002/f1': 30.0,
  'synth_glue_mrpc_v002/accuracy': 50.0,
  'synth_glue_stsb_v002/pearson_corrcoef': None,
  'synth_glue_stsb_v002/spearman_corrcoef': 50.0,
  'synth_glue_qqp_v002/f1': 60.0,
  'synth_glue_qqp_v002/accuracy': 60.0,
  'synth_glue_mnli_matched_v002/accuracy': 70.0,
  'synth_glue_mnli_mismatched_v002/accuracy': 90.0,
  'synth_glue_qnli_v002/accuracy': 90.0,
  'synth_glue_rte_v002/accuracy': 100.0,
}


def row(metrics, **changes):
  return {
    'metrics': metrics,
    'n': {tag.rpartition('/')[0]: 71 for tag in metrics},
    'log_perplexity': 5.4321,
    'steps_per_second': 7.65,
    'parameters': 296_704,
    **changes,
  }


def test_a_column_per_task_with_both_metrics_and_the_average():
  columns = dict(results.columns({'vanilla': [row(GLUE)]}))
  assert list(columns) == [
    'Model', 'GLUE', 'CoLA', 'SST', 'MRPC', 'STSB', 'QQP', 'MNLI', 'QNLI',
    'RTE', 'Log ppl', 'Steps/s', 'Params',
  ]  # fmt: skip
  assert columns['MRPC'] == ['30.0/50.0', '71']
  assert columns['STSB'] == ['-/50.0', '71']
  # Both metrics of a task weigh as one; an undefined one counts as 0.
  average = (10 + 20 + 40 + 25 + 60 + 80 + 90 + 100) / 8
  assert columns['GLUE'] == [f'{average:.1f}', '']
  assert columns['MNLI'] == ['70.0/90.0', '71/71']
  assert columns['Log ppl'] == ['5.432', '']
  assert columns['Params'] == ['0.30M', '']


def test_some_tasks_have_no_average():
  metrics = {
    'synth_glue_cola_v002/matthews_corrcoef': 1.0,
    'synth_new/bleu': 2.0,
  }
  columns = dict(results.columns({'dense': [row(metrics)]}))
  assert 'GLUE' not in columns
  assert columns['new/bleu'] == ['2.0', '71']
  assert columns['Model'] == ['dense', 'n']


def test_several_seeds_are_mean_and_standard_deviation():
  cola = 'synth_glue_cola_v002/matthews_corrcoef'
  values = [10.0, 20.0, 60.0]
  columns = dict(
    results.columns(
      {
        'vanilla': [
          row({cola: one, 'synth_new/r': None}, log_perplexity=one / 10)
          for one in values
        ],
        'random': [row({cola: one, 'synth_new/r': 1.0}) for one in values],
      }
    )
  )
  assert columns['CoLA'] == ['30.0±26.5', '30.0±26.5', '71']
  assert columns['new/r'] == ['-', '1.0±0.0', '71']
  assert columns['Log ppl'] == ['3.000±2.646', '5.432±0.000', '']
  assert columns['Params'] == ['0.30M', '0.30M', '']


def test_without_pretraining_there_is_no_perplexity():
  one = row({'synth_new/bleu': 2.0})
  del one['log_perplexity']
  columns = dict(results.columns({'dense': [one]}))
  assert columns['Log ppl'] == ['-', '']
