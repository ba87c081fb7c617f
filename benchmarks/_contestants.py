"""What is compared: our variants, T5's own layer, mesh_tensorflow's modes."""

import contextlib
import dataclasses
import importlib.util
import pathlib
from collections.abc import Iterator

import gin
import mesh_tensorflow.transformer
import t5.models  # noqa: F401  what the variants bind, `pack` for instance

import synth_mtf

BASELINE = 'SelfAttention'
RIVAL_MODES = (
  'random',
  'factorized',
  'dense_minus',
  'random_plus',
  'random_plus_alpha',
  'dense_plus',
  'dense_plus_alpha',
)
_RIVAL = 'transformer_layers.Synthesizer'
# The mode of mesh_tensorflow's Synthesizer that does what the variant does.
_RIVAL_OF = {
  'random': 'random',
  'fixed_random': 'random',
  'factorized_random': 'factorized',
  'dense': 'dense_minus',
  'factorized_dense': 'dense_minus',
  'random_vanilla': 'random_plus_alpha',
  'factorized_random_vanilla': 'random_plus_alpha',
  'dense_vanilla': 'dense_plus_alpha',
}


@dataclasses.dataclass(frozen=True)
class Contestant:
  """An attention layer in the place of T5's.

  Attributes:
    name: its name in the results.
    config: what to add to a T5 model's gin configuration.
    rival: name of the mode of mesh_tensorflow that it is compared with.
  """

  name: str
  config: tuple[str, ...] = ()
  rival: str = ''


def contestants() -> dict[str, Contestant]:
  """T5's layer first, then our variants, then mesh_tensorflow's modes."""
  variants = sorted(pathlib.Path(synth_mtf.gin_path(), 'variants').glob('*'))
  ours = [
    Contestant(
      path.stem,
      (f"include 'variants/{path.name}'",),
      f'mtf {_RIVAL_OF[path.stem]}' if path.stem in _RIVAL_OF else '',
    )
    for path in variants
    if 'synthetic_attention' in path.read_text()
  ]
  rivals = [
    Contestant(f'mtf {mode}', _rival_config(mode)) for mode in RIVAL_MODES
  ]
  return {c.name: c for c in [Contestant(BASELINE), *ours, *rivals]}


def _rival_config(mode):
  """mesh_tensorflow's layer, which takes none of SelfAttention's bindings."""
  settings = (
    f"synthesize_mode = '{mode}'",
    'num_heads = %num_heads',
    'key_value_size = %d_kv',
    'dropout_rate = %dropout_rate',
    "relative_attention_type = 'bias_shared'",
  )
  return (
    'import mesh_tensorflow.transformer.transformer_layers',
    f'encoder/make_layer_stack.layers = [@{_RIVAL}, @DenseReluDense]',
    'decoder/make_layer_stack.layers = '
    f'[@{_RIVAL}, @EncDecAttention, @DenseReluDense]',
    *(f'{_RIVAL}.{setting}' for setting in settings),
  )


@contextlib.contextmanager
def configured(
  contestant: Contestant, size: str, bindings: tuple[str, ...] = ()
) -> Iterator[None]:
  """A gin configuration of T5 with the contestant's layer; cleared after use.

  Args:
    contestant: the contestant whose layer is used.
    size: the name of a file in gin/sizes.
    bindings: further lines of gin.
  """
  host = pathlib.Path(mesh_tensorflow.transformer.__file__).parent
  t5 = pathlib.Path(importlib.util.find_spec('t5').origin).parent
  gin.add_config_file_search_path(str(t5 / 'models' / 'gin'))
  gin.clear_config()
  gin.parse_config(
    [
      f"include '{host / 'gin' / 'defaults.gin'}'",
      f"include 'sizes/{size}.gin'",
      *contestant.config,
      "include 'runs/cpu.gin'",
      "utils.get_variable_dtype.slice_dtype = 'float32'",
      "utils.get_variable_dtype.activation_dtype = 'float32'",
      *bindings,
    ]
  )
  try:
    yield
  finally:
    gin.clear_config()
