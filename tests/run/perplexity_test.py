"""Over how many rows log perplexity is taken."""

from synth_mtf.run import perplexity


def test_says_how_many_rows_are_taken_and_how_many_there_are():
  found = perplexity.notice({'a': 56, 'b': 5_000, 'c': None}, 1_024)
  assert 'at most 1,024 rows of each task' in found
  assert found.endswith('files: a 56, b 5,000.')
  assert 'official files' not in perplexity.notice({'c': None}, 1_024)
