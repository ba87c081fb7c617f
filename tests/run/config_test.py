"""Settings of a run that have wrong values."""

import contextlib
import pathlib

import gin
import pytest
from absl import flags

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.paths import gin_path
from synth_mtf.run import checks, config, ways
from synth_mtf.tasks import vocabulary

SIZE = ('sizes/tiny.gin', 'variants/random_vanilla.gin')
FILES = (*SIZE, 'runs/pretrain_text.gin', 'runs/cpu.gin')
LM_MODE = "model_type = 'lm'\nutils.run.mode = "
LENGTHS = "utils.run.sequence_length = {'inputs': 8, 'targets': 8}"


@pytest.fixture
def read(monkeypatch):
  """Reads files and bindings as those of a command line, as checks do."""

  def read(*bindings, files=FILES, build=False):
    values = flags.FlagValues()
    flags.DEFINE_multi_string('gin_param', None, '', flag_values=values)
    values(['main', *(f'--gin_param={binding}' for binding in bindings)])
    monkeypatch.setattr(flags, 'FLAGS', values)
    gin_files.parse(files, (LENGTHS, *bindings))
    with gin.unlock_config():
      gin.bind_parameter('run.vocabulary', vocabulary.load('bytes'))
    run = config.read('folder')
    if build:
      model = checks.build(run, ways.InSession())
      assert model is not None
      checks.check_mesh(run, ways.InSession(), model)
    return run

  return read


# Examples above which a task gets no higher rate, in the runs that limit it.
RATE_LIMITS = {
  'finetune_en_mix': 1e6,
  'finetune_super_glue': 1e6,
  'finetune_web_questions': 1e6,
  'finetune_xsum': 1e6,
  'demo_finetune': 1e6,
  'translate_heads': 1e7,
  'eval_translate_heads': 1e7,
}


@pytest.mark.parametrize(
  'run', sorted(p.name for p in pathlib.Path(gin_path(), 'runs').iterdir())
)
def test_our_own_files_are_right(read, run, tmp_path):
  """With what they leave open in a file, where nobody need read it."""
  mine = tmp_path / 'mine.gin'
  mine.write_text(
    "MIXTURE_NAME = 'synth_en_mix'\n"
    "utils.run.init_checkpoint = 'model.ckpt-7'\n"
  )
  read(files=[*SIZE, f'runs/{run}', 'runs/cpu.gin', str(mine)])
  limit = gin.get_bindings('rate_num_examples').get('maximum')
  assert limit == RATE_LIMITS.get(run[: -len('.gin')])


@pytest.mark.sampled
@pytest.mark.parametrize(
  'binding',
  [
    "utils.run.batch_size = ('tokens_per_batch', 64)",
    'utils.run.sequence_length = 32',
    'utils.run.train_steps = @learning_rate_schedules.constant_learning_rate',
    'utils.run.learning_rate_schedule = [0.1, @linear_warmup]',
    'utils.run.keep_checkpoint_max = 0',
    "utils.run.mesh_shape = 'model:2,batch:4'",
    "utils.run.layout_rules = 'batch:batch,d_ff:model'",
    'mesh_eval_dataset_fn.num_eval_examples = -1',
    'LayerStack.dropout_rate = None',
    "DenseReluDense.activation = ['gelu', 'linear']",
    'd_ff = 64',
    'utils.flexible_ckpt_init_mapping.return_mapping_fn = False',
    'score_from_strings.score_postprocess_fn = @utils.save_scores',
  ],
)
def test_good_values(read, binding):
  read(binding, build=True)


@pytest.mark.parametrize(
  ('binding', 'message'),
  [
    ("utils.run.train_steps = 'many'", "'many': expected a whole number"),
    ('utils.run.train_steps = 1e5', '100000.0: expected a whole'),
    ('utils.run.train_steps = -5', 'train_steps = -5: .*at least 1'),
    ('utils.run.train_steps = True', 'train_steps = True: expected a whole'),
    ('utils.run.batch_size = 0', 'batch_size = 0: .*at least 1'),
    ("utils.run.batch_size = ('tokens', 9)", r"\('tokens', 9\): expected"),
    (
      "utils.run.batch_size = ('tokens_per_batch', 0)",
      r"\('tokens_per_batch', 0\): expected",
    ),
    ("utils.run.batch_size = ('tokens_per_batch', 64, 1)", r', 1\): expected'),
    ("utils.run.keep_checkpoint_max = '5'", "'5': expected a whole number"),
    ('utils.run.total_run_steps = 1.5', '1.5: expected a whole number'),
    ("utils.run.variable_filter = '('", r"'\(': expected a regular expres"),
    ('utils.run.variable_filter = 3', '3: expected a regular expression'),
    ("utils.run.mesh_devices = 'cpu:0'", 'expected a list of names'),
    ("utils.run.mesh_shape = 'batch=2'", "'batch=2': expected a mesh such"),
    ("utils.run.mesh_shape = 'batch:0'", "'batch:0': expected a mesh such"),
    ("utils.run.layout_rules = 'x'", "'x': expected rules such as"),
    (
      "utils.run.layout_rules = 'batch:batch,batch:model'",
      'expected rules such as .*, one for each dimension',
    ),
    ("mesh_train_dataset_fn.seed = 'x'", "'x': expected a whole number of 64"),
    ('mesh_train_dataset_fn.seed = 1.5', 'expected a whole number of 64 bits'),
    (f'mesh_eval_dataset_fn.seed = {2**63}', 'expected a whole number of 64'),
    ('mesh_train_dataset_fn.mixture_or_task_name = 3', 'expected a string'),
    ('get_vocabulary.mixture_or_task_name = ("a",)', 'expected a string'),
    (
      'utils.run.batch_size = %NOTHING',
      'nothing sets the macro %NOTHING.*--gin_param="NOTHING = ..."',
    ),
    ("utils.run.sequence_length = '32'", "'32': expected"),
    ("train_with_progress.seed = 'often'", 'a whole number of 64 bits'),
    ("utils.run.sequence_length = {'inputs': 0, 'targets': 8}", 'expected'),
    ('utils.run.sequence_length = {}', 'expected'),
    (
      "utils.run.sequence_length = {'inputs': 1, 'targets': 1}",
      'inputs of one token hold only the end',
    ),
    ("utils.run.mode = 'trian'", "did you mean 'train'"),
    ("utils.run.model_type = 'transformer'", "mean 'bitransformer'"),
    ("utils.run.learning_rate_schedule = '0.1'", "'0.1': expected a number"),
    ('utils.run.learning_rate_schedule = -1', '-1: expected a number'),
    ('utils.run.learning_rate_schedule = [None]', 'a list of such'),
    ("utils.run.optimizer = 'adam'", "'adam': expected a class of optimizers"),
    (
      'utils.run.optimizer = @synth_mtf.Random',
      '= @synth_mtf.Random: expected a class of optimizers',
    ),
    ('utils.run.learning_rate_schedule = []', r'\[\]: expected a number'),
    (
      'utils.run.learning_rate_schedule = @synth_mtf.Random',
      '@synth_mtf.Random: expected a number, .* a schedule',
    ),
    (
      "utils.run.layout_rules = [('batch', 'batch'), ('batch', 'model')]",
      'expected rules such as .*, one for each dimension',
    ),
    ('utils.run.mesh_devices = [0]', r'\[0\]: expected a list of names'),
    (
      "utils.run.batch_size = ('tokens_per_batch', 'x')",
      r"or a pair such as \('tokens_per_batch', 65536\)\.\Z",
    ),
    (f'utils.run.train_steps = {2**63}', 'expected a whole number, at least'),
    ('utils.run.train_dataset_fn = 5', '= 5: expected a function or class'),
    ("utils.run.train_model_fn = 'x'", "'x': expected a function or class"),
    ('utils.run.eval_summary_dir = 5', '= 5: expected the path of a folder'),
    ('synth_mtf.self_attention.layer = None', 'None: expected a function'),
    ('synth_mtf.cross_attention.layer = 5', '= 5: expected a function or'),
    ("Unitransformer.loss_fn = 'x'", "'x': expected a function or class"),
    (
      'encoder/make_layer_stack.layers = [@synth_mtf.feed_forward, 5]',
      r'\[@synth_mtf.feed_forward, 5\]: expected a list of functions or',
    ),
    ('LayerStack.sublayers_final = 5', '= 5: expected a list of functions'),
    ("Random.max_length = 'x'", "max_length = 'x': expected a whole number"),
    ('Random.max_length = 2.5', 'max_length = 2.5: expected a whole number'),
    ("Unitransformer.ensemble = 'x'", "'x': expected a whole number"),
    ('num_heads = 2.5', r'2.5 \(through num_heads = 2.5\): expected a whole'),
    ('d_model = 6.5', r'd_model = 6.5\): expected a whole number\.\Z'),
    (
      'serialize_num_microbatches.tokens_per_microbatch_per_replica = 0',
      'replica = 0: expected a whole number, at least 1',
    ),
    ("get_variable_dtype.master_dtype = 'int32'", "expected a type such as 'f"),
    ("dropout_rate = 'x'", r'\A[^:]*: expected a number from 0 to below 1\.\Z'),
    ('SelfAttention.num_heads = %NONE', 'nothing sets the macro %NONE'),
    ('utils.run.init_checkpoint = 5', 'init_checkpoint = 5: expected the path'),
    ("FactorizedRandom.rank = 'k'", "rank = 'k': expected a whole number"),
    ('dropout_rate = 1.5', 'expected a number from 0 to below 1'),
    ('dropout_rate = 1', 'expected a number from 0 to below 1'),
    ('num_layer = 3', "nothing reads num_layer; did you mean 'num_layers'"),
    ('rate_of_mine = 3', 'nothing reads rate_of_mine; what is read: .*d_kv'),
  ],
)
def test_a_wrong_value(read, binding, message):
  with pytest.raises(UserError, match=f'(?s){message}'):
    read(binding)


@pytest.mark.parametrize(
  ('binding', 'message'),
  [
    ('num_layers = 0', r'no layers: .* 0: [^,]*num_layers = 0 [^,]*\.$'),
    ('encoder/Unitransformer.max_length = -1', 'Random.max_length = -1'),
    ('SelfAttention.key_value_size = 0', 'SelfAttention.key_value_size = 0'),
    ('num_heads = 0', 'SelfAttention.num_heads = 0'),
    ('d_ff = 0', r'd_ff.*hidden_size = 0 \(through'),
    ('d_ff = 2.5', 'DenseReluDense.*hidden_size = 2.5'),
    ("d_model = 'wide'", r"d_model = 'wide' \(through"),
    ('d_model = -8', r'at:\n  transformer.Unitransformer.d_model = -8 .*\Z'),
    (
      'synth_mtf.self_attention.layer = @synth_mtf.Random',
      'self_attention.layer = .*expected a class of layers',
    ),
    (
      'synth_mtf.feed_forward.layer = @transformer_layers.DenseReluDense()',
      'feed_forward.layer = .*expected a class of layers, .* without ()',
    ),
    (
      'SyntheticAttention.synthesizers = [@utils.run]',
      r'required positional arguments: [^\n]*\nSettings .* = \[@utils.run\]',
    ),
    (
      'make_layer_stack.layer_stack_cls = @synth_mtf.Random',
      'the model cannot be built',
    ),
    ("get_variable_dtype.master_dtype = 'flaot'", "master_dtype = 'flaot'"),
    (
      "DenseReluDense.activation = 'rleu'",
      "(?s)In the layer encoder/block_000/layer_001/DenseReluDense.*'rleu'",
    ),
    ('utils.run.batch_size = 1_000_000_000', 'out of memory: .*1000000000'),
    (
      'serialize_num_microbatches.tokens_per_microbatch_per_replica = "x"',
      'tokens_per_microbatch_per_replica = .x.',
    ),
  ],
)
def test_a_value_that_no_model_can_have(read, binding, message):
  with pytest.raises(UserError, match=f'(?s){message}') as caught:
    read(binding, build=True)
  assert 'In call to configurable' not in str(caught.value)


@pytest.mark.parametrize(
  ('run', 'lengths', 'message'),
  [
    ("model_type = 'lm'", {'targets': 8}, None),
    ("mode = 'eval'", None, None),
    ("mode = 'score_eval'", None, None),
    ("mode = 'train'", None, "= None: mode 'train' needs the length"),
    ("mode = 'perplexity_eval'", None, "length of 'inputs' and 'targets'"),
    ("mode = 'train'", {'inputs': 8}, "length of 'targets'"),
    (
      "mode = 'train'",
      {'input': 8, 'targets': 8},
      "length of 'inputs'; did you mean 'input'",
    ),
    ("model_type = 'aligned'", {'targets': 8}, "length of 'inputs'"),
    (LM_MODE + "'score_from_strings'", {'targets': 8}, None),
    (LM_MODE + "'infer'", {'targets': 8}, "length of 'inputs'"),
    (LM_MODE + "'score_eval'", {'targets': 8}, "length of 'inputs'"),
    ("model_type = 'lm'", {'inputs': 8}, "needs the length of 'targets'"),
  ],
)
def test_lengths_of_both_sides(read, run, lengths, message):
  with (
    pytest.raises(UserError, match=message)
    if message
    else contextlib.nullcontext()
  ):
    read(f'utils.run.{run}', f'utils.run.sequence_length = {lengths}')
