"""The programs of every variant meet the requirements of a TPU."""

import pathlib

import gin
import mesh_tensorflow as mtf
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.paths import gin_path
from tests.tpu import program
from tests.tpu.program import Setting

pytestmark = pytest.mark.slow  # compiles or runs TPU programs

VARIANTS = sorted(
  path.stem for path in pathlib.Path(gin_path(), 'variants').glob('*.gin')
)
OURS = [v for v in VARIANTS if not v.startswith('original_')]
# Batch-shared; local and pairwise; with neighbours.
DEFAULT = ['random', 'random_dense_vanilla', 'convolution']

# It mixes all positions of a row and refuses packed rows.
NEVER_PACKED = ['linformer']
PROGRAMS = [
  pytest.param(
    v, mode, packed, marks=[] if v in DEFAULT else pytest.mark.tpu_proof
  )
  for mode in ('train', 'eval', 'infer')
  for packed in (False, True)
  for v in OURS
  if not packed or (mode == 'train' and v not in NEVER_PACKED)
]


@pytest.mark.parametrize('variant, mode, packed', PROGRAMS)
def test_a_tpu_accepts_it(variant, mode, packed):
  built = program.build(Setting(variant, mode, packed=packed))
  assert len(built.operations) > 100
  assert not built.faults()
  # The host's convolutions have no heads that a mesh could split.
  limit = 1.2 if variant in ('dyconv', 'lightconv') else 1.05
  assert built.duplication <= limit


def test_the_counter_finds_what_is_computed_twice():
  # No dimension is split over the axis `model`: both of its cores do the same.
  built = program.build(Setting('random', layout='batch:batch'))
  assert built.duplication > 1.9


MICROBATCHES = (
  'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = 2048'
)
RECOMPUTE = 'transformer.LayerStack.recompute_grads = True'


@pytest.mark.parametrize(
  'setting',
  [
    Setting('random_vanilla', mesh='batch:2,model:4'),
    Setting('random_vanilla', mesh='batch:8'),
    *(
      Setting(variant, bindings=[saver])
      for variant in ('random', 'random_vanilla')
      for saver in (MICROBATCHES, RECOMPUTE)
    ),
    Setting(
      'random_vanilla',
      mesh='ensemble:2,batch:2,model:2',
      bindings=['Unitransformer.ensemble = 2'],
    ),
  ],
  ids=lambda setting: f'{setting.variant} {setting.mesh} {setting.bindings}',
)
def test_other_meshes_memory_savers_and_ensembles(setting):
  built = program.build(setting)
  assert not built.faults()
  assert setting.bindings or built.duplication <= 1.05


def test_one_core_a_chip():
  flag = tf.flags.FLAGS['logical_cores_per_chip']
  before, flag.value = flag.value, 1
  try:
    built = program.build(
      Setting('random_vanilla', mesh='batch:2,model:2'), cores=1
    )
  finally:
    flag.value = before
  assert not built.faults()


def test_tables_are_split_with_the_heads():
  built = program.build(Setting('random', mesh='batch:2,model:4'))
  # 12 heads on 4 cores: no table has more than three heads.
  outputs = [o for op in built.operations for o in op.outputs]
  shapes = [o.shape.as_list() for o in outputs if o.dtype != tf.resource]
  assert not [shape for shape in shapes if shape[-3:] == [12, 512, 512]]


@gin.configurable(module='tests')
class Faulty(transformer.TransformerLayer):
  """A layer that a TPU would reject."""

  def __init__(self, fault=None, **kwargs):
    super().__init__(**kwargs)
    self._fault = FAULTS[fault]

  def call(self, context, x, losses=None):
    return mtf.slicewise(
      self._fault,
      [x],
      x.shape,
      x.dtype,
      splittable_dims=x.shape.dims,
      grad_function=lambda op, dy: [dy],
    )


FAULTS = {
  'none': lambda t: t * 0.5,
  'print': lambda t: tf.Print(t, [t]),
  'float64': lambda t: tf.cast(tf.cast(t, tf.float64) * 2, t.dtype),
  'dynamic': lambda t: (
    t + tf.cast(tf.reduce_sum(tf.boolean_mask(t, t > 0)), t.dtype)
  ),
}


@pytest.mark.parametrize(
  'fault, message',
  [
    ('none', ''),
    ('print', 'no XLA kernel'),
    ('float64', 'float64'),
    ('dynamic', 'not static'),
  ],
)
def test_the_check_finds(fault, message):
  layers = '[@tests.Faulty, @transformer_layers.DenseReluDense]'
  bindings = [
    f"tests.Faulty.fault = '{fault}'",
    f'encoder/transformer.make_layer_stack.layers = {layers}',
  ]
  found = program.build(Setting(None, bindings=bindings)).faults()
  assert any(message in line for line in found) == bool(message), found


@pytest.mark.parametrize(
  'setting',
  [
    Setting('random', bindings=['num_heads = 9']),
    Setting('random', size=program.BASE._replace(batch=30)),
    Setting('random', layout=program.LAYOUT + ',length:model'),
  ],
  ids=['heads', 'batch', 'two dimensions on one axis'],
)
def test_a_mesh_that_does_not_fit_does_not_build(setting):
  with pytest.raises(ValueError):
    program.build(setting)
