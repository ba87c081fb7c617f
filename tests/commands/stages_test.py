"""What the commands of the day's work stand for, word by word."""

import json
import os

import pytest

from synth_mtf.commands import run_folder, stages
from synth_mtf.commands.stages import Given
from synth_mtf.errors import UserError
from synth_mtf.results import records
from tests.commands import made
from tests.commands.made import FINETUNED, PRETRAINED

ONE_CORE = "utils.run.mesh_shape = 'model:1,batch:1'"


@pytest.fixture
def run(tmp_path, monkeypatch):
  """Makes the folder of a run, of which nothing but names is read."""
  monkeypatch.chdir(tmp_path)

  def make(*args, **settings):
    made.run('run', *args, **settings)
    found = run_folder.find('run')
    assert found
    return found

  return make


def parts(command):
  """The gin files, the bindings, and all other words of a command."""
  by_kind: dict[str, list[str]] = {'gin_file': [], 'gin_param': []}
  others = []
  for word in command.words:
    name, _, value = word.removeprefix('--').partition('=')
    if name in by_kind:
      by_kind[name].append(value)
    else:
      others.append(word)
  return *by_kind.values(), others


def test_pretraining_on_a_laptop_trains_a_vocabulary_first(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  given = Given(settings={'text': 'my.txt'})
  vocabulary, training = stages.pretrain('new', 'tiny', 'random', 7, given)
  path = 'new/vocabulary.model'
  assert vocabulary.words == [
    *('vocabulary', '--text=my.txt', f'--out={path}', '--size=1948')
  ]
  files, bindings, others = parts(training)
  assert files == [
    *('sizes/tiny.gin', 'variants/random.gin'),
    *('runs/pretrain_text.gin', 'runs/cpu.gin'),
  ]
  assert bindings == ['utils.run.train_steps = 7', 'utils.run.batch_size = 8']
  assert others == [
    *('transformer', f'--vocabulary={path}', '--text=my.txt'),
    '--model_dir=new',
  ]
  (larger, _) = stages.pretrain('new', 'base', 'random', 7, given)
  assert larger.words[-1] == '--size=32000'
  (larger, _) = stages.pretrain('new', 'tiny', 'random', 7, given, 99)
  assert larger.words[-1] == '--size=99'
  os.mkdir('new')
  open(path, 'w').close()
  assert stages.pretrain('new', 'tiny', 'random', 7, given) == [training]


def test_what_is_given_overrides_what_is_known(tmp_path):
  given = Given(
    settings={'vocabulary': 'bytes', 'text': None},
    device='gpu',
    gin_files=['mine.gin'],
    gin_params=['d_ff = 9'],
    modules=['mine'],
    learning_rate=0.5,
    seed=0,
  )
  (training,) = stages.pretrain('new', 'tiny', 'random', 7, given)
  files, bindings, others = parts(training)
  assert files[2:] == [
    *('runs/pretrain_text.gin', 'runs/repeatable.gin', 'mine.gin')
  ]
  assert bindings == [
    'utils.run.train_steps = 7',
    'learning_rate = 0.5',
    'mesh_train_dataset_fn.seed = 0',
    'synth_mtf.train_with_progress.seed = 0',
    'd_ff = 9',
  ]
  assert others == [
    *('transformer', '--device=gpu', '--vocabulary=bytes'),
    *('--module_import=mine', '--model_dir=new'),
  ]


START = "run.init_checkpoint = 'other/model.ckpt-4'\n"


@pytest.mark.parametrize(
  ('config', 'steps', 'last'),
  [('', None, 9), ('', 5, 5), ('', 8, 8), (START, 1, 5), (START, 3, 7)],
)
def test_a_run_is_continued_up_to_a_step(run, config, steps, last):
  (training,) = stages.resume(run(FINETUNED + config), steps, Given())
  files, bindings, _ = parts(training)
  assert files == ['run/operative_config.gin']
  assert bindings == [ONE_CORE, f'utils.run.train_steps = {last}']


@pytest.mark.parametrize(
  ('config', 'steps', 'trained'), [('', 4, 5), (START, 0, 1)]
)
def test_fewer_steps_than_were_trained_are_refused(run, config, steps, trained):
  message = f'has trained {trained} steps: .* of which {steps} are fewer'
  with pytest.raises(UserError, match=message):
    stages.resume(run(FINETUNED + config), steps, Given())


@pytest.mark.parametrize(
  'mesh',
  ["run.mesh_shape = ''", "tpu_mesh_shape.tpu_topology = 'v3-8'"],
)
def test_a_mesh_that_is_set_is_kept(run, mesh):
  (training,) = stages.resume(run(FINETUNED + mesh), 5, Given(batch_size=2))
  assert parts(training)[1] == [
    *('utils.run.train_steps = 5', 'utils.run.batch_size = 2')
  ]


def test_on_devices_no_mesh_is_set(run):
  (training,) = stages.resume(run(), 5, Given(device='cpu'))
  assert parts(training)[1] == ['utils.run.train_steps = 5']


@pytest.mark.parametrize(
  ('most', 'lengths'),
  [
    (None, None),
    (512, None),
    (511, {'inputs': 511, 'targets': 114}),
    (64, {'inputs': 64, 'targets': 64}),
  ],
)
def test_finetuning_starts_from_a_checkpoint_with_its_data(run, most, lengths):
  command = 'synth-mtf transformer --data_dir=/d --text=/t --vocabulary=bytes'
  source = run(
    f'decoder/Unitransformer.max_length = {most}\n',
    steps=(2, 5),
    command=command,
  )
  (training,) = stages.finetune('new', source, None, 'cola', 3, Given())
  files, bindings, others = parts(training)
  assert files == [
    *('run/operative_config.gin', 'runs/finetune_en_mix.gin', 'runs/cpu.gin')
  ]
  assert bindings[:5] == [
    "MIXTURE_NAME = 'cola'",
    "utils.run.init_checkpoint = 'run/model.ckpt-5'",
    'utils.run.seen_data_init_step = 5',
    'utils.run.train_steps = 8',
    'utils.run.batch_size = 8',
  ]
  expected = [f'utils.run.sequence_length = {lengths}'] if lengths else []
  assert bindings[5:] == expected
  assert others == [
    *('transformer', '--vocabulary=bytes', '--data_dir=/d', '--model_dir=new')
  ]
  (training,) = stages.finetune('new', source, 2, 'cola', 3, Given())
  assert 'utils.run.train_steps = 5' in parts(training)[1]


@pytest.mark.parametrize(
  ('config', 'task', 'asked', 'is_perplexity'),
  [
    (FINETUNED, None, False, False),
    (FINETUNED, None, True, True),
    (PRETRAINED, None, False, True),
    (PRETRAINED, 'cola', False, False),
  ],
)
def test_what_is_measured(run, config, task, asked, is_perplexity):
  (evaluation,) = stages.evaluate(
    run(config), None, task, 'test', asked, Given(batch_size=2)
  )
  files, bindings, _ = parts(evaluation)
  modes = ['eval.gin', 'greedy_decode.gin']
  if is_perplexity:
    modes = ['perplexity_eval.gin']
  assert files[1:] == modes
  assert bindings == [
    ONE_CORE,
    *([f'MIXTURE_NAME = {task!r}'] if task else []),
    'eval_checkpoint_step = -1',
    "utils.run.dataset_split = 'test'",
    'utils.run.batch_size = 2',
    *(['mesh_eval_dataset_fn.seed = 0'] if is_perplexity else []),
  ]


@pytest.mark.parametrize('step', [2, 'all'])
def test_a_checkpoint_that_is_evaluated(run, step):
  source = run(steps=(2, 5))
  (found,) = stages.evaluate(source, step, None, 'test', False, Given())
  bindings = parts(found)[1]
  assert f'eval_checkpoint_step = {step!r}' in bindings
  assert 'utils.run.batch_size = 3' in bindings  # that of the run
  with pytest.raises(UserError, match='no checkpoint of step 3; there are'):
    stages.evaluate(source, 3, None, 'test', False, Given())


@pytest.mark.parametrize(
  ('lengths', 'most', 'expected'),
  [
    ('', None, 512),
    ("run.sequence_length = {'inputs': 32, 'targets': 8}", None, 32),
    ("run.sequence_length = {'inputs': 32, 'targets': 8}", 5, 5),
  ],
)
def test_a_target_is_as_long_as_inputs_or_as_asked(
  run, lengths, most, expected
):
  (prediction,) = stages.predict(
    run(FINETUNED + lengths), None, 'in.txt', 'out', 4, most, Given()
  )
  files, bindings, _ = parts(prediction)
  assert files[1:] == ['infer.gin']
  assert bindings == [
    ONE_CORE,
    'infer_checkpoint_step = 5',
    "input_filename = 'in.txt'",
    "output_filename = 'out'",
    'Bitransformer.decode.beam_size = 4',
    f'Bitransformer.decode.max_decode_length = {expected}',
    'Bitransformer.decode.decode_length_multiplier = 0.0',
    f'Bitransformer.decode.decode_length_constant = {expected}.0',
    'utils.run.batch_size = 8',
  ]


def test_a_prediction_needs_no_task_file(run):
  command = 'synth-mtf transformer --task_file=/a.yaml --vocabulary=bytes'
  source = run(command=command)
  (found,) = stages.predict(source, 5, 'in', 'out', 1, None, Given())
  _, bindings, others = parts(found)
  assert "MIXTURE_NAME = 'synth_text_span_corruption'" in bindings
  assert others == ['transformer', '--vocabulary=bytes', '--model_dir=run']


@pytest.mark.parametrize(
  ('size', 'variant', 'message'),
  [
    ('tiny', 'random_vanilla', None),
    (None, None, None),
    ('base', None, 'holds a model of --size=tiny, not base'),
    ('tiny', 'random', r'holds a model of --variant=R\+V, not R'),
  ],
)
def test_another_model_is_refused(run, size, variant, message):
  files = 'sizes/tiny.gin', 'variants/random_vanilla.gin'
  words = ' '.join(f'--gin_file={file}' for file in files)
  source = run(command=f'synth-mtf transformer {words}')
  if message is None:
    stages.check_same(source, size, variant)
    return
  with pytest.raises(UserError, match=message):
    stages.check_same(source, size, variant)


def test_a_model_of_which_nothing_is_known_is_continued(run):
  stages.check_same(run(), 'base', 'random')


def test_what_is_no_run(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'file').touch()
  (tmp_path / 'notes').mkdir()
  (tmp_path / 'notes' / 'model.ckpt-1.index').touch()
  assert run_folder.find('missing') is None
  assert run_folder.find('notes') is None
  with pytest.raises(UserError, match='file is a file; expected the folder'):
    run_folder.find('file')
  with pytest.raises(UserError, match='notes is not the folder of a run, whi'):
    run_folder.get('notes')


def test_settings_are_those_of_the_last_command_from_here(run, tmp_path):
  source = run(
    command='synth-mtf transformer --task_file=a.yaml,~/b.yaml --skip_bad_rows '
    '--text=gs://a/b --data_dir=data --vocabulary=elsewhere/my.model'
  )
  there = tmp_path / 'there'
  (there / 'data').mkdir(parents=True)
  (tmp_path / 'run' / 'my.model').touch()
  (origin,) = json.loads((tmp_path / 'run' / records.ORIGINS).read_text())
  origin.update(folder=str(there), environment={'SYNTH_MTF_CACHE_DIR': '/c'})
  earlier = {**origin, 'command': 'synth-mtf transformer --data_dir=other'}
  path = tmp_path / 'run' / records.ORIGINS
  path.write_text(json.dumps([earlier, origin]))
  assert source.settings == {
    'data_dir': f'{there}/data',
    'text': 'gs://a/b',
    'vocabulary': 'run/my.model',  # it has moved with the run
    'task_file': f'{there}/a.yaml,~/b.yaml',
    'cache_dir': '/c',
    'skip_bad_rows': '1',
  }


def test_a_run_without_checkpoints_is_not_read(run):
  source = run(steps=())
  assert source.last_step is None
  with pytest.raises(UserError, match='has no checkpoint yet: train first'):
    source.checkpoint()
