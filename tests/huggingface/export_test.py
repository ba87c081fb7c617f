"""Exported models in PyTorch: logits, gradients, decoding, and the way back."""

import json
import os
import re

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as models
from synth_mtf.huggingface import layout
from synth_mtf.run import model_dir
from tests import harness, model
from tests.cli.command import run
from tests.huggingface.exports import export, exported

torch = pytest.importorskip('torch', reason='needs the extra [hf]')
transformers = pytest.importorskip('transformers', minversion='5')
safetensors = pytest.importorskip('safetensors.numpy')
dispatch = pytest.importorskip('torch.utils._python_dispatch')

torch.set_num_threads(1)  # the models are tiny
pytestmark = [pytest.mark.hf, pytest.mark.slow]

FLOAT32 = mtf.VariableDType(tf.float32, tf.float32, tf.float32)
COMMON = ('dropout_rate = 0.0', 'Unitransformer.z_loss = 0.0')
CASES = {
  # Every function, and both feed-forward layers.
  'T5 1.1': (
    None,
    (
      'DenseReluDense.activation = ["gelu", "linear"]',
      'Unitransformer.shared_embedding_and_softmax_weights = False',
    ),
  ),
  'R, 2 x 12, LayerNorm, positions': (
    'random+../common/layer_norm+../common/learned_positions',
    (
      'SyntheticAttention.num_heads = 2',
      'SyntheticAttention.key_value_size = 12',
      'SyntheticAttention.relative_attention_type = "bias_shared"',
    ),
  ),
  'Fix, a bias per layer': (
    'fixed_random',
    ('SelfAttention.relative_attention_type = "bias"',),
  ),
  'FR+V': ('factorized_random_vanilla', ('SyntheticAttention.index_by="row"',)),
  'D, tiles': (
    'dense+../common/fast_cpu',
    ('Dense.tile_length = 5', 'Dense.use_bias = True'),
  ),
  'FD': (
    'factorized_dense',
    (
      'FactorizedDense.use_bias = True',
      'SyntheticAttention.mixing = "layer_softmax"',
      'SelfAttention.fold_scaling_into_initializer = False',
    ),
  ),
  'R+D+V by layer, cross FR+D': (
    'random_dense_vanilla+cross_factorized_random_dense',
    (
      'SyntheticAttention.mixing = "layer_softmax"',
      'decoder/Unitransformer.max_length = 12',
      'encoder/Unitransformer.positional_embedding = True',
      'decoder/Unitransformer.positional_embedding = True',
    ),
  ),
  'original D+V': ('as_original_dense_plus_alpha+cross_random_vanilla', ()),
  'GLU, not folded': (
    'glu',
    ('SelfAttention.fold_scaling_into_initializer = False',),
  ),
  'bottleneck': ('bottleneck_dense+cross_dense', ()),
}


def rows(count=3, length=13, seed=3):
  """Token ids of different lengths, padded on the right."""
  rng = np.random.RandomState(seed)
  ids = rng.randint(2, model.VOCAB, [count, length])
  return ids * (np.arange(length) < rng.randint(1, length + 1, [count, 1]))


def back(folder, out):
  return run('checkpoint', 'import', '--from=hf', folder, out)[::2]


def test_the_names_of_public_checkpoints(tmp_path, pieces):
  path, _ = exported(tmp_path, pieces, None)
  public = model.with_public_names(Checkpoint(path), tmp_path / 'public', True)
  status, err = export(public, tmp_path / 'again', pieces)
  assert status == 0, err
  weights, again = (
    safetensors.load_file(tmp_path / name / 'model.safetensors')
    for name in ('out', 'again')
  )
  assert weights.keys() == again.keys()
  for name, value in weights.items():
    np.testing.assert_array_equal(again[name], value)


def loaded(folder, plain=False):
  found, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
    folder, trust_remote_code=not plain, output_loading_info=True
  )
  assert not any(report.values()), report
  return found.eval()


def of_mesh(path, variant, bindings, build):
  """What `build` makes of the mesh and the model, with stored weights."""
  checkpoint = Checkpoint(path)
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  rules, shape = mtf.convert_to_layout_rules(''), mtf.convert_to_shape('')
  made = utils.build_model(
    'bitransformer',
    model.VOCAB,
    model.VOCAB,
    rules,
    shape,  # as in a run
  )
  return harness.evaluate(
    lambda mesh: build(mesh, made), weights=lambda name, shape: checkpoint[name]
  )


@pytest.mark.parametrize('case', CASES)
def test_logits_gradients_and_the_way_back(case, tmp_path, pieces):
  variant, bindings = CASES[case]
  bindings = (*COMMON, *bindings)
  path, out = exported(tmp_path, pieces, variant, bindings)
  inputs, targets = rows(), rows(length=9, seed=4)

  def build(mesh, made):
    ids = [harness.constant(mesh, x, 'batch length') for x in (inputs, targets)]
    logits, _ = made.call_simple(*ids, False, 'eval', FLOAT32)
    _, loss = made.call_simple(*ids, True, 'train', FLOAT32)
    variables = mesh.graph.trainable_variables
    gradients = mtf.gradients([loss], [v.outputs[0] for v in variables])
    names = [v.name for v in variables]
    return {
      'logits': logits,
      'gradients': dict(zip(names, gradients, strict=True)),
    }

  expected = of_mesh(path, variant, bindings, build)
  found = loaded(out, plain=case.startswith('T5'))
  assert (out / 'modeling_synthesizer.py').exists() != case.startswith('T5')
  ids, labels = torch.tensor(inputs), torch.tensor(targets)
  logits = found(
    input_ids=ids,
    attention_mask=(ids != 0).long(),
    decoder_input_ids=found.prepare_decoder_input_ids_from_labels(labels),
  ).logits
  real = targets != 0
  harness.assert_close(logits.detach().numpy()[real], expected['logits'][real])
  loss = torch.nn.functional.cross_entropy(
    logits.flatten(0, 1), labels.flatten(), ignore_index=0, reduction='sum'
  )
  (loss / labels.numel()).backward()
  weights = dict(found.named_parameters())
  assert len(weights) == len(expected['gradients'])
  for name, gradient in expected['gradients'].items():
    gradient = layout.weight_of(name, gradient)
    ours = weights[layout.name_of(name)].grad.numpy()
    error = np.abs(ours - gradient).max()
    # Where large terms cancel, float32 rounds to 1.2e-4 on some processors.
    assert error <= 1e-3 * np.abs(gradient).max() + 1e-9, name

  found.save_pretrained(tmp_path / 'saved')  # as after finetuning
  assert back(tmp_path / 'saved', tmp_path / 'back') == (0, '')
  before, after = Checkpoint(path), Checkpoint(str(tmp_path / 'back'))
  assert after.variables == before.variables and after.step == 7
  for variable in before.variables:
    np.testing.assert_array_equal(before[variable], after[variable])


@pytest.mark.parametrize(
  'variant, prefilter, count',
  [
    (None, 2, 200),
    ('dense', 2, 24),
    # With 2, the host may return beams that it starts at -1e7 to ignore them.
    ('random_vanilla+cross_factorized_random', 0, 200),
  ],
)
def test_decoding(variant, prefilter, count, tmp_path, pieces):
  """Greedy and beam search in batches give the same tokens."""
  length = 12
  bindings = (*COMMON, f'beam_search.num_prefilter = {prefilter}')
  path, out = exported(tmp_path, pieces, variant, bindings)
  inputs = rows(count)

  def build(mesh, made):
    ids = harness.constant(mesh, inputs, 'batch length')
    size = {'max_decode_length': length, 'variable_dtype': FLOAT32}
    return {
      1: made.decode(ids, **size),
      4: made.decode(ids, beam_size=4, **size),
    }

  expected = of_mesh(path, variant, bindings, build)
  found = loaded(out)
  if not variant:  # T5's own beam search has another length penalty
    from synth_mtf.huggingface import modeling_synthesizer as modeling

    found = modeling.SynthesizerForConditionalGeneration.from_pretrained(out)
  with torch.no_grad():
    for beams, sequences in expected.items():
      same = ended = 0
      for batch in np.split(np.arange(count), 4):
        ids = torch.tensor(inputs[batch])
        got = found.generate(
          input_ids=ids,
          attention_mask=(ids != 0).long(),
          num_beams=beams,
          max_new_tokens=length,
        ).numpy()[:, 1:]
        for ours, theirs in zip(got, sequences[batch].astype(int), strict=True):
          end = [*theirs, 1].index(1) + 1
          ended += end <= length
          same += [*ours[:end]] == [*theirs[:end]]
      assert (same, ended > count // 10) == (count, True), (beams, same, ended)


class Shapes(dispatch.TorchDispatchMode):  # type: ignore[name-defined]
  """Records the shapes of all tensors that are made."""

  def __init__(self):
    super().__init__()
    self.seen = set()

  def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    made = func(*args, **(kwargs or {}))
    self.seen |= {(*x.shape,) for x in [made] if isinstance(x, torch.Tensor)}
    return made


@pytest.mark.parametrize('variant', ['random', 'dense_vanilla+cross_random'])
def test_one_graph_and_logits_once_for_all_examples(variant, tmp_path, pieces):
  _, out = exported(tmp_path, pieces, variant, COMMON)
  found = loaded(out)
  ids = torch.tensor(rows())
  given = {'input_ids': ids, 'attention_mask': (ids != 0).long()}
  whole = {**given, 'decoder_input_ids': ids[:, :9], 'use_cache': False}
  compiled = torch.compile(found, fullgraph=True, backend='aot_eager')
  with torch.no_grad():
    torch.testing.assert_close(compiled(**whole).logits, found(**whole).logits)
    with Shapes() as shapes:
      found.encoder(**given)
  usual = found.generate(**given, max_new_tokens=9)
  static = {'cache_implementation': 'static', 'disable_compile': True}
  found.set_attn_implementation('eager')
  again = found.generate(**given, max_new_tokens=9, **static)
  torch.testing.assert_close(again, usual)
  each = (len(ids), 3, ids.shape[1], ids.shape[1])
  assert (each in shapes.seen) == (variant != 'random')
  with pytest.raises(ValueError, match='15 tokens, but the model takes'):
    found(input_ids=torch.ones([1, 15]).long(), decoder_input_ids=ids[:1])


UNTIED = {'tie_word_embeddings': False}
GATED = (
  'DenseReluDense.activation = ["gelu", "linear"]',
  'Unitransformer.shared_embedding_and_softmax_weights = False',
)


@pytest.mark.parametrize(
  'kind, settings, bindings',
  [
    ('T5', {}, ()),
    ('T5', {'feed_forward_proj': 'gated-gelu', **UNTIED}, GATED),
    ('MT5', {}, GATED),
  ],
  ids=['t5', 't5 1.1', 'mt5'],
)
def test_any_t5_becomes_a_checkpoint(kind, settings, bindings, tmp_path):
  """In the layout of t5-small, and of T5 1.1 and mT5 as transformers has them.

  Releases from 5.0 tie the weights of the logits to the embedding in each of
  them, and their files have no copy.
  """
  config = getattr(transformers, f'{kind}Config')(
    vocab_size=128,
    d_model=24,
    d_kv=8,
    d_ff=20,
    num_layers=2,
    num_heads=3,
    decoder_start_token_id=0,
    **settings,
  )
  made = getattr(transformers, f'{kind}ForConditionalGeneration')
  theirs = made(config).eval()
  theirs.save_pretrained(tmp_path / 'hf')
  bindings = *model.TINY, *bindings
  words = [f'--gin_param={binding}' for binding in bindings]
  status, out, err = run(
    *('checkpoint', 'import', '--from=hf', tmp_path / 'hf', tmp_path / 'ours'),
    *('--gin_file=sizes/tiny.gin', *words),
  )
  assert status == 0 and 'model.ckpt-0' in out, err
  inputs, targets = rows(), rows(length=9, seed=4)

  def build(mesh, made):
    ids = [harness.constant(mesh, x, 'batch length') for x in (inputs, targets)]
    return made.call_simple(*ids, False, 'eval', FLOAT32)[0]

  expected = of_mesh(str(tmp_path / 'ours'), None, bindings, build)
  ids = torch.tensor(inputs)
  found = theirs(
    input_ids=ids,
    attention_mask=(ids != 0).long(),
    labels=torch.tensor(targets),
  ).logits.detach()
  real = targets != 0
  harness.assert_close(found.numpy()[real], expected[real])


def test_a_vocabulary_of_another_size_can_be_resized(tmp_path):
  config = transformers.T5Config(
    vocab_size=101,
    d_model=24,
    d_kv=8,
    d_ff=20,
    num_layers=2,
    num_heads=3,
    decoder_start_token_id=0,
  )
  theirs = transformers.T5ForConditionalGeneration(config)
  theirs.save_pretrained(tmp_path / 'hf')
  words = [f'--gin_param={binding}' for binding in model.TINY]
  words += ['--gin_file=sizes/tiny.gin']
  command = 'checkpoint', 'import', '--from=hf', tmp_path / 'hf'
  status, _, err = run(*command, tmp_path / 'ours', *words)
  advice = 'model.resize_token_embeddings(128) and model.save_pretrained'
  assert status == 2 and 'vocabulary of 101 rows' in err and advice in err, err
  theirs.resize_token_embeddings(128)
  theirs.save_pretrained(tmp_path / 'hf')
  status, _, err = run(*command, tmp_path / 'ours', *words)
  assert status == 0, err
  embedding = Checkpoint(str(tmp_path / 'ours'))['shared/embedding']
  np.testing.assert_array_equal(embedding, theirs.shared.weight.detach())


def test_an_encoder_alone_is_refused_by_name(tmp_path, pieces):
  config = transformers.T5Config(vocab_size=128, d_model=24, num_layers=2)
  theirs = transformers.T5EncoderModel(config)
  theirs.save_pretrained(tmp_path / 'hf')
  words = [f'--gin_param={binding}' for binding in model.TINY]
  status, _, err = run(
    *('checkpoint', 'import', '--from=hf', tmp_path / 'hf', tmp_path / 'ours'),
    *('--gin_file=sizes/tiny.gin', *words),
  )
  assert status == 2 and 'has only an encoder (T5EncoderModel)' in err, err
  aligned = ['utils.run.model_type = "aligned"']
  path = model.write(tmp_path / 'run', None, aligned)
  status, err = export(path, tmp_path / 'out', pieces, None, aligned)
  assert status == 2 and 'a model of one stack (a language model or an' in err


def test_a_folder_of_version_1_0_0(tmp_path, pieces):
  """It has T5's name for the activation, and no initial values."""
  path, out = exported(tmp_path, pieces, 'random')
  config = json.loads((out / 'config.json').read_text())
  config['feed_forward_proj'] = config.pop('feed_forward')
  for attention in config['attention'].values():
    for function in attention['synthesizers']:
      function.pop('stddev', None)
      function.pop('uniform', None)
  (out / 'config.json').write_text(json.dumps(config))
  loaded(out)
  assert back(out, tmp_path / 'back') == (0, '')
  before, after = Checkpoint(path), Checkpoint(str(tmp_path / 'back'))
  np.testing.assert_array_equal(
    before['shared/embedding'], after['shared/embedding']
  )


@pytest.mark.parametrize(
  'variant, binding, message',
  [
    ('lightconv', '', 'LightConv'),
    ('linformer', '', 'Linformer'),
    ('mlp_mixer', '', 'MLP-Mixer'),
    ('fixed_patterns', '', 'FixedPatterns'),
    ('original_random', '', 'mtf random'),
    (None, 'SelfAttention.relative_attention_type="contextual"', 'contextual'),
    (None, 'SelfAttention.num_memory_heads = 1', 'num_memory_heads'),
    (None, 'SelfAttention.combine_dims = False', 'SelfAttention/q'),
    (None, 'DenseReluDense.activation = "sigmoid"', 'sigmoid'),
    (
      None,
      'VocabEmbedding.scale_variable_like_classifier_weights = 1',
      'scale',
    ),
    (None, 'make_layer_stack.block_scope = False', 'encoder/layer_000'),
    (None, 'utils.run.model_type = "lm"', 'one stack'),
    ('random', 'SyntheticAttention.value_bias = True', r'\.value_bias'),
  ],
)
def test_what_cannot_be_exported_is_named(variant, binding, message):
  bindings = [binding] if binding else []
  gin_files.parse(model.files(variant), [*model.TINY, *bindings])
  built = models.build(model.VOCAB)
  with pytest.raises(UserError, match=f'({message}).* cannot be exported'):
    layout.config(built)


def test_a_name_makes_nothing_in_the_model_card(tmp_path, pieces):
  name = 'x | y\\n# Title\\n[link](https://x.org) ![image](z)'
  exported(
    *(tmp_path, pieces, 'random'),
    bindings=[f'get_vocabulary.mixture_or_task_name = "{name}"'],
  )
  card = (tmp_path / 'out' / 'README.md').read_text()
  code = r'`x \u007c y # Title [link](https://x.org) ![image](z)`'
  assert f'| data | {code} |\n' in card


def test_what_is_wrong_is_one_message(tmp_path, pieces):
  path, out = exported(tmp_path, pieces, 'random')
  weights = safetensors.load_file(out / 'model.safetensors')
  before = sorted(tmp_path.iterdir())

  def fails(message, status_and_err):
    status, err = status_and_err
    assert status == 2 and re.search(message, err), err
    assert sorted(tmp_path.iterdir()) == before

  new = tmp_path / 'new'
  fails('exists already', export(path, out, pieces, 'random'))
  fails('vocabulary .* 384', export(path, new, 'bytes', 'random'))
  fails('made by another model', export(path, new, pieces, 'dense'))
  fails('gin files', export(path, new, pieces, 'unknown'))
  words = 'import', '--from=hf', out, new, '--gin_param=d_ff = 3'
  fails(f'needs --gin_file: .*{out}', run('checkpoint', *words)[::2])
  with model_dir.locked(str(tmp_path / 'run')):
    fails('is training in', export(tmp_path / 'run', new, pieces, 'random'))
  for change, message in (
    ({'x': np.zeros(2)}, 'x is not in the model'),
    ({'shared.weight': np.zeros([128, 23])}, r'\(128, 23\) in it'),
  ):
    safetensors.save_file({**weights, **change}, out / 'model.safetensors')
    fails(message, back(out, new))
  config = json.loads((out / 'config.json').read_text())
  for name in ('layer_norm_epsilon', 'relative_attention_max_distance'):
    (out / 'config.json').write_text(json.dumps({**config, name: 64}))
    fails(f'{name} is 64 in it', back(out, new))
  changed = json.loads(json.dumps(config))
  changed['attention']['encoder']['synthesizers'][0]['tile_length'] = 7
  (out / 'config.json').write_text(json.dumps(changed))
  leaf = r'attention\.encoder\.synthesizers\[0\]\.tile_length'
  fails(f'{leaf} is 7 in it, None in the model', back(out, new))
  (out / 'config.json').write_text(json.dumps(config))
  del weights['encoder.block.0.layer.0.SelfAttention.random.R']
  safetensors.save_file(weights, out / 'model.safetensors')
  fails('lacks .*random.R', back(out, new))
  (out / 'model.safetensors').unlink()
  fails('no .*safetensors', back(out, new))
  fails('config.json is missing', back(tmp_path / 'run', new))
  for text in ('[' * 100_000, '{"synth_mtf": {"step": "x"}}', '[]'):
    (out / 'config.json').write_text(text)
    fails('config.json is missing or damaged', back(out, new))
  os.mkfifo(out / 'model.safetensors')
  fails('model.safetensors is a pipe', back(out, new))
