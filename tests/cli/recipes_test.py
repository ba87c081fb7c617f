"""The files of gin/runs, as shipped but for size, steps, batch and lengths.

Each training run trains for two steps on small files of its own, and each
evaluation measures what its training run left.
"""

import json
import pathlib
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

import pytest

from synth_mtf.errors import UserError
from synth_mtf.host import events
from synth_mtf.paths import gin_path
from synth_mtf.results import records
from tests import official_files
from tests.cli import t5_main
from tests.tasks.folder import write

pytestmark = pytest.mark.slow

SMALL = ('--gin_file=sizes/tiny.gin', '--gin_file=variants/random_vanilla.gin')
SIZES = (
  'num_layers = 1',
  'd_model = 16',
  'd_ff = 16',
  'utils.run.batch_size = 4',
)


class Recipe(NamedTuple):
  """How a run is made small."""

  lengths: tuple[int, int] = (64, 16)  # of inputs and targets
  after: str = ''  # the run whose checkpoints it evaluates, or starts from
  tags: Sequence[str] = ()  # starts of what an evaluation must have written


PERPLEXITY = ('neg_log_perplexity', 'num_eval_tokens')
SPANS = (64, 32)
SQUARE = (64, 64)
BLEU = ['eval/synth_wmt14_ende_v003/bleu']
TRAINING = {
  'pretrain_c4': Recipe(SPANS),
  'pretrain_text': Recipe(SPANS),
  'finetune_xsum': Recipe(after='pretrain_text'),
  'finetune_web_questions': Recipe(after='pretrain_text'),
  'translate': Recipe(),
  'translate_t2t': Recipe(),
  'lm1b': Recipe(SQUARE),
  'summarize': Recipe(),
  'dialogue': Recipe(),
  'classify': Recipe(),
  'classify_encoder': Recipe(SQUARE),
}
EVALUATIONS = {
  'perplexity_c4': Recipe(SPANS, 'pretrain_c4', PERPLEXITY),
  'eval_translate': Recipe((64, 8), 'translate', BLEU),
  'eval_translate_greedy': Recipe((64, 8), 'translate', BLEU),
  'perplexity_lm1b': Recipe(SQUARE, 'lm1b', PERPLEXITY),
  'eval_summarize': Recipe(
    (64, 8), 'summarize', ['eval/synth_cnn_dailymail_v002/rouge1']
  ),
  'eval_xsum': Recipe(
    after='finetune_xsum', tags=['eval/synth_xsum_v110/rouge2']
  ),
  'eval_web_questions': Recipe(
    after='finetune_web_questions',
    tags=['eval/synth_web_questions_open_test/em'],
  ),
  'eval_translate_t2t': Recipe(
    after='translate_t2t', tags=['eval/synth_wmt_t2t_ende_v003/bleu']
  ),
  'eval_dialogue': Recipe((64, 8), 'dialogue'),
  'eval_classify': Recipe((64, 8), 'classify', ['eval/synth_ag_news/accuracy']),
  'eval_classify_encoder': Recipe(
    SQUARE, 'classify_encoder', [*PERPLEXITY, 'sequence_accuracy']
  ),
}
# Behind other runs, or stages of the demo: their own tests run them.
PARTS = {'cpu', 'devices', 'repeatable'}
PARTS |= {f'{run}_en_mix' for run in ('finetune', 'eval', 'perplexity')}
# These are other runs but for a mixture, or are included by them.
ALIKE = {
  'pretrain_c4_en32k',
  'finetune_super_glue',
  'perplexity_text',
  'translate_heads',
  'eval_translate_heads',
}
STAGES = ('common', 'evaluate', 'finetune', 'perplexity', 'pretrain')


@pytest.fixture(scope='module')
def folders(tmp_path_factory) -> pathlib.Path:
  """Has a folder for each run, and `data`: a few rows of all families."""
  root = tmp_path_factory.mktemp('recipes')
  folder = root / 'data'
  official_files.write(folder)
  dialogues, wmt = '{}_self_original_no_cands.txt', 'wmt14_en_de_tok'
  for kind, made, missing in (
    ('ag_news_csv', 'test.csv', 'train.csv'),
    ('convai2', dialogues.format('valid'), dialogues.format('train')),
    ('parallel', f'{wmt}/val.en', f'{wmt}/test.en'),
    ('parallel', f'{wmt}/val.de', f'{wmt}/test.de'),
  ):
    shutil.copy(folder / kind / made, folder / kind / missing)
  shutil.copytree(folder / 'parallel' / wmt, folder / 'parallel/wmt_t2t_en_de')
  for name, split in (('train', 'train'), ('test', 'validation')):
    summary = json.dumps({'document': 'It ran far.', 'summary': 'It ran.'})
    write(folder / f'xsum/{split}.jsonl', summary.encode())
    row = {'url': '', 'utterance': 'who ran?'}
    row['targetValue'] = '(list (description Ann))'
    path = folder / f'web_questions/webquestions.examples.{name}.json'
    write(path, json.dumps([row]).encode())
  news = folder / 'corpus/news_sentences/newstest2014.en.tok.txt'
  lines = news.read_text().splitlines()
  for split in ('train', 'validation'):
    path = folder / 'c4' / f'c4-{split}.00000-of-00001.json'
    path.parent.mkdir(exist_ok=True)
    path.write_text(''.join(f'{json.dumps({"text": x})}\n' for x in lines))
  for name, ending in (('training', '-00001'), ('heldout', '.heldout-0')):
    path = folder / 'lm1b' / f'{name}-monolingual.tokenized.shuffled'
    path.mkdir(parents=True)
    shutil.copy(news, path / f'news.en{ending}')
  return root


def command(run: str, folders: pathlib.Path) -> None:
  """Runs the command of the README, small."""
  recipe = {**TRAINING, **EVALUATIONS}[run]
  inputs, targets = recipe.lengths
  lengths = {'inputs': inputs, 'targets': targets}
  if 'encoder' in run:
    lengths['targets_segmentation'] = targets
  bindings = [f'utils.run.sequence_length = {lengths}']
  folder = folders / run
  if run in EVALUATIONS:
    folder = folders / recipe.after
    bindings.append(f'Bitransformer.decode.max_decode_length = {targets}')
    bindings.append('utils.run.perplexity_eval_steps = 2')
  elif recipe.after:
    start = folders / recipe.after / 'model.ckpt-2'
    bindings.append(f"utils.run.init_checkpoint = '{start}'")
    bindings.append('utils.run.train_steps = 4')
  else:
    bindings.append('utils.run.train_steps = 2')
  assert not t5_main.synth_mtf_transformer(
    f'--model_dir={folder}',
    f'--data_dir={folders / "data"}',
    f'--index_dir={folders / "index"}',
    '--vocabulary=bytes',
    *SMALL,
    f'--gin_file=runs/{run}.gin',
    '--gin_file=runs/cpu.gin',
    *(f'--gin_param={binding}' for binding in (*SIZES, *bindings)),
  )


def trained(run: str, folders: pathlib.Path) -> pathlib.Path:
  """The folder of a training run, which is done once."""
  if TRAINING[run].after:
    trained(TRAINING[run].after, folders)
  if not (folders / run / 'checkpoint').exists():
    command(run, folders)
  return folders / run


def test_no_run_is_without_a_recipe():
  found = {path.stem for path in pathlib.Path(gin_path(), 'runs').glob('*.gin')}
  demo = {f'demo_{stage}' for stage in STAGES}
  assert found == {*TRAINING, *EVALUATIONS, *ALIKE, *PARTS, *demo}


@pytest.mark.parametrize('run', TRAINING)
def test_trains(run, folders):
  folder = trained(run, folders)
  steps = 4 if TRAINING[run].after else 2
  assert (folder / f'model.ckpt-{steps}.index').exists()


@pytest.mark.parametrize('run', EVALUATIONS)
def test_evaluates(run, folders):
  recipe = EVALUATIONS[run]
  folder = trained(recipe.after, folders)
  if run == 'eval_dialogue' and not find_spec('pycocoevalcap'):
    with pytest.raises(UserError, match='scored without its metrics: pip'):
      command(run, folders)
    return
  before = {path for path in folder.rglob('*') if path.is_dir()}
  command(run, folders)
  new = {path for path in folder.rglob('*') if path.is_dir()} - before
  assert new
  written = {tag for path in new for tag in events.read(str(path))}
  for tag in recipe.tags:
    assert any(name.startswith(tag) for name in written), (tag, written)


def test_perplexity_per_word_is_that_per_token_times_tokens_per_word(folders):
  folder = trained('lm1b', folders)
  command('perplexity_lm1b', folders)
  (path,) = folder.glob('*lm1b*/metrics.json')
  scores = {each.metric: each for each, _ in records.read(str(path.parent))}
  per_word = scores['neg_log_perplexity_per_word']
  news = next((folders / 'data/lm1b').glob('heldout*/*')).read_bytes()
  texts = [text for text in news.split(b'\n') if text][:8]  # two batches
  words = sum(len(text.split(b' ')) + 1 for text in texts)
  tokens = sum(len(text) + 1 for text in texts)  # they are bytes
  assert (per_word.n, per_word.unit) == (words, 'word')
  per_token = scores['neg_log_perplexity'].value
  assert per_token is not None
  assert per_word.value == pytest.approx(per_token * tokens / words)
