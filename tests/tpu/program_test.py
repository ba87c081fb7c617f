"""The programs of every variant meet the requirements of a TPU."""

import dataclasses

import pytest
import tensorflow.compat.v1 as tf
from absl.testing import flagsaver

from tests import model
from tests.pjrt.setting import BASE, KINDS
from tests.tpu import program

pytestmark = pytest.mark.slow  # builds TPU programs

OURS = [v for v in model.VARIANTS if not v.startswith('original_')]
# Batch-shared; local and pairwise; with neighbours.
DEFAULT = ['random', 'random_dense_vanilla', 'convolution']
# They mix the positions of a row, and refuse packed rows.
MIX_POSITIONS = 'linformer', 'lightconv', 'dyconv'

PROGRAMS = [
  pytest.param(v, kind, marks=[] if v in DEFAULT else pytest.mark.tpu_proof)
  for kind in KINDS
  for v in OURS
  if not (v in MIX_POSITIONS and KINDS[kind].packed)
]


def _base(variant, kind='training', **more):
  """A step of T5 (Base), whose large products are those that matter."""
  return dataclasses.replace(KINDS[kind], variant=variant, size=BASE, **more)


@pytest.mark.parametrize('variant, kind', PROGRAMS)
def test_a_tpu_accepts_it(variant, kind):
  built = program.build(_base(variant, kind))
  assert len(built.operations) > 100
  assert not built.faults()
  # The host's convolutions have no heads that a mesh could split.
  limit = 1.2 if variant in ('dyconv', 'lightconv') else 1.05
  assert built.duplication <= limit


def test_the_counter_finds_what_is_computed_twice():
  # No dimension is split over the axis `model`: both of its cores do the same.
  layout = "utils.run.layout_rules = 'batch:batch'"
  built = program.build(_base('random', bindings=[layout]))
  assert built.duplication > 1.9


MICROBATCHES = (
  'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica = 2048'
)
RECOMPUTE = 'transformer.LayerStack.recompute_grads = True'


@pytest.mark.parametrize(
  'setting',
  [
    _base('random_vanilla', mesh='batch:2,model:4'),
    _base('random_vanilla', mesh='batch:8'),
    *(
      _base(variant, bindings=[saver])
      for variant in ('random', 'random_vanilla')
      for saver in (MICROBATCHES, RECOMPUTE)
    ),
    _base(
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
  with flagsaver.flagsaver(logical_cores_per_chip=1):
    built = program.build(
      _base('random_vanilla', mesh='batch:2,model:2'), cores=1
    )
  assert not built.faults()


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda t: t * 0.5, ''),
    (lambda t: tf.Print(t, [t]), 'no XLA kernel'),
    (lambda t: tf.cast(t, tf.float64), 'float64'),
    (lambda t: tf.boolean_mask(t, t > 0), 'not static'),
    (lambda t: tf.py_func(abs, [t], tf.float32), 'no XLA kernel'),
  ],
)
def test_the_check_finds(make, message):
  with tf.Graph().as_default():
    found = [*program.faults_of(make(tf.ones([2])).op)]
  assert any(message in line for line in found) == bool(message), found
