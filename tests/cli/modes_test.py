"""Everything T5's main does, with our layer and tasks, by either command."""

import importlib.util
import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.demo import samples
from tests.cli import t5_main

MODEL = (
  '--gin_file=sizes/tiny.gin',
  '--gin_file=variants/random_vanilla.gin',
  '--gin_param=num_layers = 1',
)
SMALL = (
  '--gin_file=runs/cpu.gin',
  "--gin_param=utils.run.sequence_length = {'inputs': 64, 'targets': 32}",
  '--gin_param=utils.run.batch_size = 4',
)
COLA = "--gin_param=MIXTURE_NAME = 'synth_glue_cola_v002'"


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('data')
  samples.write(folder, seed=0)
  corpus = folder / 'corpus' / 'text.txt'
  corpus.parent.mkdir()
  line = (
    'It was a bright cold day in April, and the clocks were striking {}.\n\n'
  )
  corpus.write_text(''.join(line.format(hour) for hour in range(800)))
  return folder


@pytest.fixture(
  scope='module',
  params=[
    't5_main.synth_mtf_transformer',
    pytest.param(
      't5_main.t5_mesh_transformer',
      marks=[
        pytest.mark.stock_cli,
        pytest.mark.skipif(
          not importlib.util.find_spec('torch'),
          reason='t5_mesh_transformer needs torch (extra t5-cli)',
        ),
      ],
    ),
  ],
)
def program(request, data_dir, tmp_path_factory):
  """A command, and a folder in which it has pretrained two steps."""
  command = getattr(t5_main, request.param.split('.')[1])
  folder = tmp_path_factory.mktemp('runs')

  def run(name, *words):
    assert not command(
      f'--model_dir={folder / name}',
      f'--data_dir={data_dir}',
      '--vocabulary=bytes',
      *words,
    )
    return folder / name

  pretrain(run, steps=2)
  return run


def pretrain(run, steps):
  return run(
    'pretrained',
    *MODEL,
    '--gin_file=runs/pretrain_text.gin',
    *SMALL,
    f'--gin_param=utils.run.train_steps = {steps}',
  )


def finetune(run):
  pretrained = pretrain(run, steps=4)
  return run(
    'finetuned',
    *MODEL,
    '--gin_file=runs/finetune_en_mix.gin',
    *SMALL,
    COLA,
    f"--gin_param=utils.run.init_checkpoint = '{pretrained}/model.ckpt-4'",
    '--gin_param=utils.run.train_steps = 6',
  )


def infer(run, tmp_path, *words):
  """Decodes two lines from what pretraining left; returns the outputs."""
  (tmp_path / 'inputs.txt').write_text(
    'cola sentence: A.\ncola sentence: B b.\n'
  )
  run(
    'pretrained',
    f'--gin_file={pretrain(run, 2)}/operative_config.gin',
    '--gin_file=infer.gin',
    *words,
    '--gin_param=infer_checkpoint_step = -1',
    '--gin_param=Bitransformer.decode.max_decode_length = 4',
    f"--gin_param=input_filename = '{tmp_path}/inputs.txt'",
    f"--gin_param=output_filename = '{tmp_path}/outputs.txt'",
  )
  (outputs,) = tmp_path.glob('outputs.txt-*')
  return outputs.read_text().splitlines()


def values(path) -> dict:
  reader = tf.train.load_checkpoint(str(path))
  return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}


def scalars(folder) -> dict:
  """The last value of each scalar in the event files of a folder."""
  return {
    value.tag: value.simple_value
    for path in sorted(folder.glob('events*'))
    for event in tf.train.summary_iterator(str(path))
    for value in event.summary.value
  }


def test_resumes(program):
  folder = pretrain(program, steps=4)
  before, after = (values(folder / f'model.ckpt-{n}') for n in (0, 4))
  assert after['global_step'] == 4
  table = 'encoder/block_000/layer_000/SyntheticAttention/random/R'
  assert np.any(before[table] != after[table])


def test_finetunes_all_but_embeddings_and_softmax(program):
  folder = finetune(program)
  before = values(folder.parent / 'pretrained' / 'model.ckpt-4')
  after = values(folder / 'model.ckpt-6')
  same = {
    name
    for name in after
    if '_slot_' not in name and np.array_equal(before[name], after[name])
  }
  assert same == {'shared/embedding'}


def test_evaluates_the_validation_split(program):
  finetuned = finetune(program)
  program('finetuned', *MODEL, '--gin_file=runs/eval_en_mix.gin', *SMALL, COLA)
  results = finetuned / 'validation_eval'
  assert (
    -100
    <= scalars(results)['eval/synth_glue_cola_v002/matthews_corrcoef']
    <= 100
  )
  (predictions,) = results.glob('synth_glue_cola_v002_6_predictions')
  assert len(predictions.read_text().splitlines()) == samples.DEV_ROWS


def test_measures_log_perplexity(program):
  pretrain(program, steps=2)
  folder = program(
    'pretrained',
    *MODEL,
    '--gin_file=runs/perplexity_text.gin',
    *SMALL,
    '--gin_param=utils.run.perplexity_eval_steps = 2',
  )
  (results,) = folder.glob('eval_*')
  (value,) = (
    value
    for tag, value in scalars(results).items()
    if tag.endswith('neg_log_perplexity')
  )
  assert -10 < value < 0


@pytest.mark.parametrize(
  'decoding', ['greedy_decode', 'beam_search', 'sample_decode']
)
def test_decodes(program, tmp_path, decoding):
  assert len(infer(program, tmp_path, f'--gin_file={decoding}.gin')) == 2


def test_scores_a_file(program, tmp_path):
  (tmp_path / 'inputs.txt').write_text('cola sentence: A.\ncola sentence: B.\n')
  (tmp_path / 'targets.txt').write_text('acceptable\nunacceptable\n')
  program(
    'pretrained',
    f'--gin_file={pretrain(program, 2)}/operative_config.gin',
    '--gin_file=score_from_file.gin',
    '--gin_param=utils.run.eval_checkpoint_step = -1',
    '--gin_param=save_scores.save_example_text = False',
    f"--gin_param=inputs_filename = '{tmp_path}/inputs.txt'",
    f"--gin_param=targets_filename = '{tmp_path}/targets.txt'",
    f"--gin_param=scores_filename = '{tmp_path}/out'",
  )
  scores = [float(s) for s in (tmp_path / 'out.scores').read_text().split()]
  assert len(scores) == 2
  assert max(scores) < 0


def test_exports_a_model_that_loads_again(program, tmp_path):
  program(
    'pretrained',
    f'--gin_file={pretrain(program, 2)}/operative_config.gin',
    '--gin_file=greedy_decode.gin',
    "--gin_param=utils.run.mode = 'export_infer'",
    '--gin_param=Bitransformer.decode.max_decode_length = 4',
    f"--gin_param=utils.run.export_path = '{tmp_path}'",
  )
  (exported,) = tmp_path.iterdir()
  with tf.Graph().as_default(), tf.Session() as session:
    model = tf.saved_model.load(session, ['serve'], str(exported))
    signature = model.signature_def['serving_default']
    (inputs,) = signature.inputs.values()
    outputs = session.run(
      signature.outputs['outputs'].name, {inputs.name: ['cola sentence: A.']}
    )
  assert len(outputs) == 1
