"""What gin holds, binding by binding."""

import gin

from synth_mtf.host import bindings

CONFIG = """
width = 24
unread = 3
Unitransformer.d_model = %width
encoder/Unitransformer.max_length = 7
decoder/width = 8
decoder/Unitransformer.d_model = %decoder/width
SyntheticAttention.synthesizers = [@synth_mtf.Random]
"""


def test_bindings_and_macros():
  gin.parse_config(CONFIG)
  found = list(bindings.bindings())
  assert [str(b) for b in found[:3]] == [
    'transformer.Unitransformer.d_model = 24 (through width = 24)',
    'encoder/transformer.Unitransformer.max_length = 7',
    'decoder/transformer.Unitransformer.d_model = 8 '
    '(through decoder/width = 8)',
  ]
  assert bindings.macro_of(found[0].raw) == 'width' and not found[0].is_call
  assert bindings.macro_of(found[1].raw) == ''
  assert found[1].scope == 'encoder' and found[1].parameter == 'max_length'
  assert found[1].value == found[1].raw == 7
  assert bindings.macros_read() == {'width', 'decoder/width'}
  found[3].value.clear()
  assert len(found[3].value) == 1, 'a value is a copy'


def test_calls():
  gin.parse_config(
    'utils.run.mesh_shape = @utils.tpu_mesh_shape()\n'
    'utils.run.train_model_fn = @synth_mtf.Random\n'
  )
  assert [b.is_call for b in bindings.bindings()] == [True, False]


def test_how_a_parameter_is_declared():
  gin.parse_config(
    'utils.run.batch_size = 4\nSyntheticAttention.num_heads = 2\n'
    'SyntheticAttention.none = 2'
  )
  run, inherited, none = (b.declaration for b in bindings.bindings())
  assert run and run.name == 'batch_size'
  assert inherited and inherited.default == 8
  assert none is None
