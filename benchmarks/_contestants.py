"""What is compared: our variants, T5's own layer, mesh_tensorflow's modes."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator

import gin

import synth_mtf
from synth_mtf.host import gin_files

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
_RIVAL = 'original_'  # the variants with mesh_tensorflow's own layer
_CONVOLUTIONS = ('lightconv', 'dyconv')  # the host's own, instead of attention
# What a whole model may have beside its attention, by the end of its name.
_BESIDE = {
  'embedding by index': (
    'get_vocab_embedding_cls.cls = @synth_mtf.EmbeddingByIndex'
  ),
  'fast_cpu': "include 'common/fast_cpu.gin'\ninclude 'common/adafactor.gin'",
}
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
    name: as it stands in the results.
    variant: a file of gin/variants; '' is T5 itself.
    rival: name of the contestant of mesh_tensorflow that it is measured by.
    beside: gin on what is not attention; '' is all as T5 has it.
  """

  name: str
  variant: str = ''
  rival: str = ''
  beside: str = ''

  @property
  def is_ours(self) -> bool:
    """Whether it is a variant with a layer of ours."""
    return bool(self.variant) and not self.variant.startswith(_RIVAL)


def contestants() -> dict[str, Contestant]:
  """T5's layer first, then our variants, then mesh_tensorflow's modes."""
  variants = sorted(pathlib.Path(synth_mtf.gin_path(), 'variants').glob('*'))
  ours = [
    Contestant(
      path.stem,
      path.stem,
      f'mtf {_RIVAL_OF[path.stem]}' if path.stem in _RIVAL_OF else '',
    )
    for path in variants
    if 'synthetic_attention' in path.read_text()
  ]
  rivals = [Contestant(f'mtf {mode}', _RIVAL + mode) for mode in RIVAL_MODES]
  return {c.name: c for c in [Contestant(BASELINE), *ours, *rivals]}


def whole_models() -> dict[str, Contestant]:
  """Models that differ from T5 beside attention, too, or have none of it."""
  convolutions = [Contestant(name, name) for name in _CONVOLUTIONS]
  return {
    name: dataclasses.replace(
      contestant, name=name, rival='', beside=_BESIDE[beside]
    )
    for contestant in [*contestants().values(), *convolutions]
    if not contestant.variant.startswith(_RIVAL)
    for beside in _BESIDE
    for name in [f'{contestant.name}, {beside}']
  }


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
  variant = [f'variants/{contestant.variant}.gin'] * bool(contestant.variant)
  gin_files.parse(
    [f'sizes/{size}.gin', *variant],
    [
      # As runs/cpu.gin has it: a batch in one piece.
      'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica '
      '= None',
      "utils.get_variable_dtype.slice_dtype = 'float32'",
      "utils.get_variable_dtype.activation_dtype = 'float32'",
      'utils.run.optimizer = @optimize.AdafactorOptimizer',
      *filter(None, [contestant.beside]),
      *bindings,
    ],
  )
  try:
    yield
  finally:
    gin.clear_config()
