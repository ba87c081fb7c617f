"""Everything T5's main does, with our layer and tasks, by either command."""

import contextlib
import json
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import events
from synth_mtf.results import records
from synth_mtf.tasks import vocabulary
from tests import checkout, forks, official_files
from tests.cli import t5_main

pytestmark = pytest.mark.slow  # trains

SMALL = (
  'num_layers = 1',
  "utils.run.sequence_length = {'inputs': 64, 'targets': 32}",
  'utils.run.batch_size = 4',
)
COLA = "MIXTURE_NAME = 'synth_glue_cola_v002'"
SHORT = 'Bitransformer.decode.max_decode_length = 4'


def files(run):
  """The files of a run that is made small."""
  sizes = ['sizes/tiny.gin', 'variants/random_vanilla.gin']
  return [*sizes, f'runs/{run}.gin', 'runs/cpu.gin']


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('data')
  official_files.write_samples(folder)
  return official_files.write_text(folder, 800)


def ours(folder):
  return contextlib.nullcontext(t5_main.synth_mtf_transformer)


@pytest.fixture(
  scope='module',
  params=[
    pytest.param(ours, id='synth-mtf'),
    pytest.param(t5_main.t5_mesh_transformer, id='stock', marks=t5_main.STOCK),
  ],
)
def program(request, data_dir, tmp_path_factory):
  """Runs a command with gin files and bindings on a folder of that name."""
  folder = tmp_path_factory.mktemp('runs')
  with request.param(folder) as command:

    def run(name, gin_files, *bindings, vocabulary='bytes', flags=()):
      assert not command(
        *flags,
        f'--model_dir={folder / name}',
        f'--data_dir={data_dir}',
        f'--vocabulary={vocabulary}',
        *(f'--gin_file={file}' for file in gin_files),
        *(f'--gin_param={binding}' for binding in bindings),
      )
      return folder / name

    yield run


@pytest.fixture(scope='module')
def pretrained(program) -> pathlib.Path:
  """A folder with checkpoints of steps 0, 2 and, after a resume, 4."""
  words = 'pretrained', files('pretrain_text'), *SMALL
  program(*words, 'utils.run.train_steps = 2')
  return program(*words, 'utils.run.train_steps = 4')


@pytest.fixture(scope='module')
def finetuned(program, pretrained) -> pathlib.Path:
  return program(
    'finetuned',
    files('finetune_en_mix'),
    *SMALL,
    COLA,
    f"utils.run.init_checkpoint = '{pretrained}/model.ckpt-4'",
    'utils.run.train_steps = 6',
  )


def test_resumes(pretrained):
  before, after = (Checkpoint(f'{pretrained}/model.ckpt-{n}') for n in (0, 4))
  assert (pretrained / 'model.ckpt-2.index').exists(), 'where it was stopped'
  assert after['global_step'] == 4
  assert (pretrained / 'vocabulary.json').exists()
  table = 'encoder/block_000/layer_000/SyntheticAttention/random/R'
  assert np.any(before[table] != after[table])


def test_finetunes_all_but_embeddings_and_softmax(pretrained, finetuned):
  before = Checkpoint(f'{pretrained}/model.ckpt-4')
  after = Checkpoint(f'{finetuned}/model.ckpt-6')
  same = {
    name
    for name in after.variables
    if '_slot_' not in name and np.array_equal(before[name], after[name])
  }
  assert same == {'shared/embedding'}


def test_evaluates_each_checkpoint_on_the_validation_split(program, finetuned):
  program('finetuned', files('eval_en_mix'), *SMALL, COLA, SHORT)
  results = finetuned / 'validation_eval'
  found = records.read(str(results))
  rows = official_files.VALIDATION_ROWS
  assert [(one.step, one.n) for one, _ in found] == [(4, rows), (6, rows)]
  tag = 'eval/synth_glue_cola_v002/matthews_corrcoef'
  value = events.read(str(results))[tag][6]
  assert found[-1][0].value == pytest.approx(value, abs=1e-4)
  made_with = found[0][1]
  assert 'SyntheticAttention.synthesizers' in made_with['gin']
  assert made_with['versions']['tensorflow'] == tf.__version__
  lines = (results / records.PREDICTIONS).read_text().splitlines()
  for step in (4, 6):
    examples = [one for one in map(json.loads, lines) if one['step'] == step]
    for name, key in ((f'{step}_predictions', 'read_as'), ('inputs', 'input')):
      path = results / f'synth_glue_cola_v002_{name}'
      written = path.read_text().splitlines()
      assert written == [str(example[key]) for example in examples]


def test_refuses_another_vocabulary(program, finetuned, tmp_path):
  model = tmp_path / 'other.model'
  vocabulary.train([f'a bird sang {i}' for i in range(99)], model, 26)
  words = 'finetuned', files('eval_en_mix'), *SMALL, COLA
  with pytest.raises((UserError, forks.Failed), match='has 384 rows; .* 128'):
    program(*words, vocabulary=model)


def test_measures_log_perplexity(program, finetuned):
  words = 'finetuned', files('perplexity_en_mix'), *SMALL, COLA
  program(*words, 'utils.run.perplexity_eval_steps = 2')
  (results,) = finetuned.glob('eval_synth_glue_cola_v002_validation_*')
  assert sum(path.stat().st_size for path in results.iterdir()) < 100_000
  scalars = events.read(str(results))
  (tag,) = (tag for tag in scalars if tag.endswith('neg_log_perplexity'))
  _, one = (
    one
    for one, _ in records.read(str(results))
    if one.metric == 'neg_log_perplexity'
  )  # of steps 4 and 6
  assert -10 < scalars[tag][6] < 0
  assert one.value == pytest.approx(scalars[tag][6], rel=1e-5)
  assert (one.step, one.unit, one.task) == (6, 'token', 'synth_glue_cola_v002')
  assert (one.n or 0) > official_files.VALIDATION_ROWS


@pytest.mark.parametrize(
  'decoding', ['greedy_decode', 'beam_search', 'sample_decode']
)
def test_decodes(program, pretrained, tmp_path, decoding):
  lines = 'cola sentence: A.\ncola sentence: B b.\n'
  (tmp_path / 'inputs.txt').write_text(lines)
  program(
    'pretrained',
    [f'{pretrained}/operative_config.gin', 'infer.gin', f'{decoding}.gin'],
    'infer_checkpoint_step = -1',
    SHORT,
    f"input_filename = '{tmp_path}/inputs.txt'",
    f"output_filename = '{tmp_path}/outputs.txt'",
  )
  (path,) = tmp_path.glob('outputs.txt-*')
  outputs = path.read_text().splitlines()
  assert len(outputs) == 2
  assert not any(line.startswith(("b'", 'b"')) for line in outputs)


def test_scores_a_file(program, pretrained, tmp_path):
  (tmp_path / 'inputs.txt').write_text('cola sentence: A.\ncola sentence: B.\n')
  (tmp_path / 'targets.txt').write_text('acceptable\nunacceptable\n')
  program(
    'pretrained',
    [f'{pretrained}/operative_config.gin', 'score_from_file.gin'],
    'utils.run.eval_checkpoint_step = -1',
    'save_scores.save_example_text = False',
    f"inputs_filename = '{tmp_path}/inputs.txt'",
    f"targets_filename = '{tmp_path}/targets.txt'",
    f"scores_filename = '{tmp_path}/out'",
  )
  scores = [float(s) for s in (tmp_path / 'out.scores').read_text().split()]
  assert len(scores) == 2
  assert max(scores) < 0


def test_exports_a_model_that_loads_again(program, pretrained, tmp_path):
  program(
    'pretrained',
    [f'{pretrained}/operative_config.gin', 'greedy_decode.gin'],
    "utils.run.mode = 'export_infer'",
    SHORT,
    f"utils.run.export_path = '{tmp_path}/my_exported'",
  )
  tutorial = checkout.CHECKOUT / 'docs/tutorial.md'
  (code,) = re.findall(r'```python\n(.*?)```', tutorial.read_text(), re.S)
  printed = checkout.run(sys.executable, '-c', code, cwd=tmp_path).stdout
  assert re.search(r'shape=\(1,\), dtype=string\)', printed)
