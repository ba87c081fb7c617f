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


def found():
  gin.parse_config(CONFIG)
  return {binding.name: binding for binding in bindings.bindings()}


def test_all_but_the_definitions_of_macros():
  assert set(found()) == {
    'transformer.Unitransformer.d_model',
    'encoder/transformer.Unitransformer.max_length',
    'decoder/transformer.Unitransformer.d_model',
    'synth_mtf.SyntheticAttention.synthesizers',
  }


def test_a_binding_taken_apart():
  binding = found()['encoder/transformer.Unitransformer.max_length']
  assert binding.scope == 'encoder'
  assert binding.owner == 'Unitransformer'
  assert binding.parameter == 'max_length'
  assert binding.value == binding.raw == 7
  assert bindings.macro_of(binding.raw) == ''


def test_macros():
  one = found()['transformer.Unitransformer.d_model']
  assert bindings.macro_of(one.raw) == 'width'
  assert one.value == 24
  other = found()['decoder/transformer.Unitransformer.d_model']
  assert bindings.macro_of(other.raw) == 'decoder/width'
  assert other.value == 8
  assert bindings.macros_read() == {'width', 'decoder/width'}


def test_a_value_is_a_copy():
  binding = found()['synth_mtf.SyntheticAttention.synthesizers']
  assert bindings.macro_of(binding.raw[0]) == ''
  binding.value.clear()
  assert len(binding.value) == 1


def test_macros_of_a_command_line():
  params = ['d_model = 8', ' a=1', 'a.b = 2', 'c/d = 3', 'x == y', '3 = 4']
  assert bindings.macros_defined(params) == ['d_model', 'a']
