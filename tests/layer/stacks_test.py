"""The layers in T5's stacks: gin/layers/stacks.gin and gin/stacks."""

import pathlib

import gin
import pytest
from mesh_tensorflow.transformer import transformer_layers

import synth_mtf
from synth_mtf import cost
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.layer import stacks
from tests import model

STEPS = 'universal_transformer.UTLayerStack.num_rec_steps = {}'
LAYER = 'layer = @SyntheticEncDecAttention'
OTHERWISE = 'otherwise = @DotProductEncDecAttention'


@pytest.mark.parametrize(
  'place, bindings, expected',
  [
    ('self', [], transformer_layers.SelfAttention),
    ('self', ['layer = @SyntheticAttention'], synth_mtf.SyntheticAttention),
    ('cross', [], transformer_layers.EncDecAttention),
    ('cross', [OTHERWISE], synth_mtf.DotProductEncDecAttention),
    ('cross', [LAYER], synth_mtf.SyntheticEncDecAttention),
    ('cross', [LAYER, OTHERWISE], synth_mtf.SyntheticEncDecAttention),
  ],
)
def test_the_layer_in_a_place(place, bindings, expected):
  gin.parse_config(
    [f'synth_mtf.{place}_attention.{binding}' for binding in bindings]
  )
  make = getattr(stacks, f'{place}_attention')
  assert type(make()) is expected
  assert make() is not make()  # each block has its own
  other = {'self': stacks.cross_attention, 'cross': stacks.self_attention}
  assert type(other[place]()).__module__ == transformer_layers.__name__


@pytest.mark.parametrize('name', ['SelfAttention', 'SyntheticAttention'])
def test_cross_attention_reads_the_encoder(name):
  """A layer of self-attention would train, without the inputs."""
  gin.parse_config(f'synth_mtf.cross_attention.layer = @{name}')
  with pytest.raises(UserError, match=f"makes {name}, .* the decoder's own"):
    stacks.cross_attention()


@pytest.mark.parametrize(
  'run',
  sorted(
    path.stem
    for path in pathlib.Path(synth_mtf.gin_path(), 'runs').iterdir()
    # Runs with one stack, and files that follow another run.
    if not path.stem.endswith(
      ('lm1b', 'classify_encoder', 'repeatable', 'devices')
    )
  ),
)
def test_runs_have_cross_attention_by_our_layer(run):
  gin_files.parse(
    ['variants/random.gin', f'runs/{run}.gin'],
    ["utils.run.init_checkpoint = 'any'"],
  )
  assert type(stacks.cross_attention()) is synth_mtf.DotProductEncDecAttention


def universal(variant, steps, mode='train', stack='universal'):
  gin_files.parse(
    [*model.files(variant), f'stacks/{stack}.gin'],
    # num_layers is the stack's own.
    [b for b in model.TINY if 'num_layers' not in b] + [STEPS.format(steps)],
  )
  return host_model.build(model.VOCAB, lengths=model.LENGTHS, mode=mode)


@pytest.mark.sampled
@pytest.mark.parametrize('variant', ['vanilla', 'random_vanilla', 'dense'])
def test_a_universal_transformer_applies_one_block_again(variant):
  once, thrice = universal(variant, 1), universal(variant, 3)
  assert once.shapes == thrice.shapes
  assert all('/block_000/' in scope for scope in thrice.attention)
  products = [cost.products(m.mtf_graph) for m in (once, thrice)]
  assert products[1] > 1.8 * products[0]


@pytest.mark.parametrize('stack', ['universal', 'universal_halting'])
def test_a_universal_transformer_decodes(stack):
  shapes = universal('random_vanilla', 2, stack=stack).shapes
  assert universal('random_vanilla', 2, 'infer', stack).shapes == shapes
  halts = [name for name in shapes if 'pondering' in name]
  assert bool(halts) == (stack == 'universal_halting')


@pytest.mark.parametrize('variant', ['random', 'vanilla'])
def test_t2t_has_sinusoids_and_no_relative_bias(variant):
  gin_files.parse([*model.files(variant), 'stacks/t2t.gin'], model.TINY)
  built = host_model.build(model.VOCAB)
  assert built.transformer.encoder.sinusoid_positional_embedding
  assert not any('relative_attention_bias' in n for n in built.shapes)


@pytest.mark.parametrize('variant', ['vanilla', 'random', 'dense_vanilla'])
def test_conv_relu_is_the_feed_forward_of_a_language_model(variant):
  gin_files.parse(
    [*model.files(variant), 'stacks/conv_relu.gin'],
    [*model.TINY, "utils.run.model_type = 'lm'"],
  )
  shapes = host_model.build(model.VOCAB).shapes
  wi = 'transformer/block_001/layer_001/ConvReluDense/wi/kernel'
  assert shapes[wi].to_integer_list == [3, 24, 20]


@pytest.mark.slow  # builds whole models
@pytest.mark.parametrize(
  'variant', [v for v in model.VARIANTS if not v.startswith('cross_')]
)
def test_a_variant_is_the_layer_of_a_language_model(variant):
  gin_files.parse(
    model.files(variant), [*model.TINY, "utils.run.model_type = 'lm'"]
  )
  if variant == 'linformer':
    with pytest.raises(UserError, match='encoder only'):
      host_model.build(model.VOCAB)
    return
  [first, *_] = host_model.layers(host_model.build(model.VOCAB).transformer)
  assert type(first[1]) is not transformer_layers.SelfAttention
