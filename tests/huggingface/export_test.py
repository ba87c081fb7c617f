"""Exported models in PyTorch: logits, gradients, decoding, and the way back."""


import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.host import gin_files
from synth_mtf.huggingface import layout
from synth_mtf.tasks import vocabulary
from tests import harness, model
from tests.cli.command import run

torch = pytest.importorskip('torch', reason='needs the extra [hf]')
transformers = pytest.importorskip('transformers', minversion='5')

pytestmark = [pytest.mark.hf, pytest.mark.slow]

FLOAT32 = mtf.VariableDType(tf.float32, tf.float32, tf.float32)
COMMON = ('dropout_rate = 0.0', 'Unitransformer.z_loss = 0.0')
CASES = {
  # Every function, and both feed-forward layers.
  'T5': (None, ()),
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
  'original D': ('as_original_dense_minus', ()),
  'GLU, not folded': (
    'glu',
    ('SelfAttention.fold_scaling_into_initializer = False',),
  ),
  'bottleneck': ('bottleneck_dense+cross_dense', ()),
}


@pytest.fixture(scope='module')
def pieces(tmp_path_factory):
  path = tmp_path_factory.mktemp('vocabulary') / 'tiny.model'
  vocabulary.train(['the cat sat on a mat. a dog ran. '] * 20, path, 28)
  return path


def rows(count=3, length=13, seed=3):
  """Token ids of different lengths, padded on the right."""
  rng = np.random.RandomState(seed)
  ids = rng.randint(2, model.VOCAB, [count, length])
  return ids * (np.arange(length) < rng.randint(1, length + 1, [count, 1]))


def exported(tmp_path, pieces, variant, bindings=()):
  """Returns the path of a checkpoint, and the folder of its export."""

  def change(name, value):
    if name == 'shared/embedding':
      value[1] *= 3.0  # so that sequences end
    # As in a trained model, some tokens stand out.
    return value * (3.0 if name == 'decoder/rms_norm/scale' else 1.0)

  path = model.write(tmp_path / 'run', variant, bindings, change=change)
  words = [*model.files(variant), *model.TINY, *bindings]
  flags = [
    '--gin_param' if ' = ' in w or '="' in w else '--gin_file' for w in words
  ]
  status, _, err = run(
    *('checkpoint', 'export', '--to=hf', path, tmp_path / 'out'),
    *(f'--vocabulary={pieces}', *map('='.join, zip(flags, words))),
  )
  assert status == 0, err
  return path, tmp_path / 'out'


def loaded(folder, plain=False):
  found, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
    folder, trust_remote_code=not plain, output_loading_info=True
  )
  assert not any(report.values()), report
  return found.eval()


def of_mesh(path, variant, bindings, build):
  """What `build` makes of the mesh and the model with a checkpoint's weights."""
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
    return {'logits': logits, 'gradients': dict(zip(names, gradients))}

  expected = of_mesh(path, variant, bindings, build)
  found = loaded(out, plain=case.startswith('T5'))
  assert (out / 'modeling_synthesizer.py').exists() != case.startswith('T5')
  ids, labels = torch.tensor(inputs), torch.tensor(targets)
  logits = found(
    input_ids=ids,
    attention_mask=(ids != 0).long(),
    decoder_input_ids=found._shift_right(labels),
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
    assert error <= 1e-4 * np.abs(gradient).max() + 1e-9, name

  found.save_pretrained(tmp_path / 'saved')  # as after finetuning
  for folder, back in ((out, 'back'), (tmp_path / 'saved', 'again')):
    status, _, err = run(
      'checkpoint', 'import', '--from=hf', folder, tmp_path / back
    )
    assert status == 0, err
    before, after = Checkpoint(path), Checkpoint(str(tmp_path / back))
    assert after.kinds == before.kinds and after.step == 7
    for name in before.kinds:
      np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize(
  'variant',
  [None, 'random', 'random_vanilla+cross_factorized_random', 'dense'],
)
def test_decoding(variant, tmp_path, pieces):
  """Greedy and beam search in batches give the same tokens."""
  count, length = 200, 12
  path, out = exported(tmp_path, pieces, variant, COMMON)
  inputs = rows(count)

  def build(mesh, made):
    ids = harness.constant(mesh, inputs, 'batch length')
    size = {'max_decode_length': length, 'variable_dtype': FLOAT32}
    return {
      1: made.decode(ids, **size),
      4: made.decode(ids, beam_size=4, **size),
    }

  expected = of_mesh(path, variant, COMMON, build)
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
        for ours, theirs in zip(got, sequences[batch].astype(int)):
          end = [*theirs, 1].index(1) + 1
          ended += end <= length
          same += [*ours[:end]] == [*theirs[:end]]
      assert (same, ended > 20) == (count, True), (beams, same, ended)


@pytest.mark.parametrize('variant', ['random', 'dense_vanilla+cross_random'])
def test_compiled_in_one_graph_without_weights_of_each_example(
  variant, tmp_path, pieces
):
  _, out = exported(tmp_path, pieces, variant, COMMON)
  found = loaded(out)
  ids, labels = torch.tensor(rows()), torch.tensor(rows(length=9))
  given = {
    'input_ids': ids,
    'attention_mask': (ids != 0).long(),
    'decoder_input_ids': labels,
    'use_cache': False,
  }
  compiled = torch.compile(found, fullgraph=True, backend='aot_eager')
  with torch.no_grad():
    expected = found(**given).logits
    torch.testing.assert_close(compiled(**given).logits, expected)
    shapes = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
      def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
          shapes.add((*result.shape,))
        return result

    with Watch():
      found.encoder(ids, given['attention_mask'])
  batch, length = ids.shape
  assert ((batch, 3, length, length) in shapes) == (variant != 'random')
