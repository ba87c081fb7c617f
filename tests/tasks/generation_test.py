"""CNN/DailyMail as T5 has it, and PersonaChat in ParlAI's format."""

import hashlib
import shutil

import gin
import pytest
import tensorflow_datasets as tfds

from synth_mtf import tasks
from tests.tasks import comparison
from tests.tasks.rows import run


@pytest.mark.parametrize('with_lists', [False, True])
def test_summaries_are_those_of_t5(
  with_lists, official_data, tmp_path, prepared
):
  root = tmp_path / 'cnn_dailymail'
  shutil.copytree(official_data / 'cnn_dailymail', root)
  stories = sorted((root / 'cnn/stories').iterdir())
  train = [s for s in stories if s.name[0] not in '0f']
  if with_lists:
    # A story is named by the hash of its address: make addresses of our own.
    lists = root / 'url_lists'
    lists.mkdir()
    urls = [f'http://example.com/{i}' for i in range(len(stories))]
    for url, story in zip(urls, stories):
      digest = hashlib.sha1(url.encode()).hexdigest()
      story.rename(story.with_name(f'{digest}.story'))
    (lists / 'all_train.txt').write_text('\n'.join(urls[:5]) + '\n')
    train = [
      root / 'cnn/stories' / f'{hashlib.sha1(u.encode()).hexdigest()}.story'
      for u in urls[:5]
    ]
  parse = tfds.summarization.cnn_dailymail._get_art_abs  # noqa: SLF001
  rows = [
    dict(zip(('article', 'highlights'), parse(str(path))), id='', publisher='')
    for path in train
  ]
  prepared('cnn_dailymail:3.4.0', train=rows)
  found = comparison.three_ways(
    'synth_cnn_dailymail_v002', 'train', tmp_path, 'cnn_dailymail_v002'
  )
  assert sum(found.values()) == len(train)


def test_personachat_turns(official_data):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(official_data))
  task = tasks.get('synth_personachat')
  file = official_data / 'convai2/valid_self_original_no_cands.txt'
  lines = file.read_text(encoding='utf-8').splitlines()
  assert task.num_input_examples('validation') == sum(
    '\t' in line for line in lines
  )
  rows = run(
    lambda: task.get_dataset(comparison.LENGTHS, 'validation', shuffle=False),
    limit=2,
  )
  persona = [line.split(': ', 1)[1] for line in lines[:4]]
  (said, answered), (then, response) = (
    line.split(' ', 1)[1].split('\t') for line in lines[4:6]
  )
  words = ['personachat persona:', *persona, 'dialogue:', said, answered, then]
  assert rows[1]['inputs_pretokenized'].decode() == ' '.join(words)
  assert rows[1]['targets_pretokenized'].decode() == response
