"""Translation: T5's examples from parallel files, and its BLEU."""

import itertools

import gin
import pytest
import sacrebleu

from synth_mtf import tasks
from synth_mtf.errors import UserError
from tests.tasks import comparison

ROWS = 40


def copy_lines(source, target, lines=ROWS):
  """Copies the first lines of a file, and returns their text."""
  target.parent.mkdir(parents=True, exist_ok=True)
  with source.open('rb') as stream:
    kept = list(itertools.islice(stream, lines))
  target.write_bytes(b''.join(kept))
  return [line.decode().rstrip('\n') for line in kept]


@pytest.mark.parametrize(
  'task, config, source, names',
  [
    ('wmt14_ende_v003', 'wmt14_translate/de-en', 'wmt14_en_de_tok', 'train'),
    ('wmt14_enfr_v003', 'wmt14_translate/fr-en', 'multi30k', 'train'),
    ('wmt16_enro_v003', 'wmt16_translate/ro-en', 'wmt16_en_ro', 'newsdev2016'),
  ],
)
def test_examples_are_those_of_t5(
  task, config, source, names, official_data, tmp_path, prepared
):
  pair = task.split('_')[1]
  folder = f'{task[:5]}_{pair[:2]}_{pair[2:]}_sample'
  languages = pair[:2], pair[2:]
  sentences = [
    copy_lines(
      official_data / 'parallel' / source / f'{names}.{language}',
      tmp_path / 'parallel' / folder / f'train.{language}',
    )
    for language in languages
  ]
  prepared(
    f'{config}:1.0.0',
    train=[dict(zip(languages, row)) for row in zip(*sentences)],
  )
  rows = comparison.three_ways(f'synth_{task}', 'train', tmp_path, task)
  assert sum(rows.values()) == ROWS


def test_bleu_is_sacrebleus(official_data):
  german = (
    (official_data / 'parallel/wmt14_en_de_tok/val.de')
    .read_text(encoding='utf-8')
    .splitlines()
  )
  predictions = [line[: len(line) * 2 // 3] for line in german]
  (metric,) = tasks.get('synth_wmt14_ende_v003').metric_fns
  expected = sacrebleu.corpus_bleu(
    predictions, [german], tokenize='intl', smooth_value=0.0, force=False
  )
  assert 0 < expected.score < 99
  assert metric(german, predictions)['bleu'] == pytest.approx(expected.score)


@pytest.fixture
def folder(tmp_path):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(tmp_path))
  path = tmp_path / 'parallel' / 'wmt14_en_de'
  path.mkdir(parents=True)
  return path


def test_files_of_different_length(folder):
  (folder / 'train.en').write_text('One.\nTwo.\n')
  (folder / 'train.de').write_text('Eins.\n')
  with pytest.raises(UserError, match=r'train.en:2: a line of the file .en on'):
    tasks.check(['synth_wmt14_ende_v003'], ['train'])


def test_a_file_without_its_partner(folder):
  (folder / 'train.en').write_text('One.\n')
  with pytest.raises(UserError, match='train.de'):
    tasks.check(['synth_wmt14_ende_v003'], ['train'])
