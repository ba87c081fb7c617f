"""Layouts name slices that can be had, and the compiler knows them."""

import pathlib
import types

import gin
import pytest
from absl import flags
from absl.testing import flagsaver
from mesh_tensorflow.transformer import utils

import synth_mtf
from synth_mtf.cost import cost_of_files
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host.run_config import RunConfig
from synth_mtf.pjrt import devices, fitting
from synth_mtf.pjrt.compiler import SLICES
from synth_mtf.pjrt.hosts import Hosts
from tests.checkout import CHECKOUT
from tests.pjrt.setting import Setting

LAYOUTS = pathlib.Path(synth_mtf.gin_path(), 'layouts')
# Files that are no slice of a fixed size.
OTHERS = {'data_parallel', 'model_parallel', 'pod', 'gpu-8'}
COMPILER = CHECKOUT / fitting.COMPILER


def mesh_of(*files, bindings=()):
  """The mesh of T5 (Base) on a slice."""
  gin_files.parse(
    ['sizes/base.gin', *(f'layouts/{file}.gin' for file in files)], bindings
  )
  return utils.tpu_mesh_shape()


def mesh_text(mesh):
  return ','.join(f'{dim.name}:{dim.size}' for dim in mesh)


def cores_per_chip(name):
  """As the flag is to be set: 1 where the two cores of a chip work as one."""
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()  # the host reads them
  return flagsaver.flagsaver(logical_cores_per_chip=SLICES[name].cores // 4)


def state_fits(mesh):
  """Whether weights, gradients and slots fit the 8 GB of the smallest core."""
  cost = cost_of_files(
    ['sizes/base.gin', 'variants/random_vanilla.gin'],
    {'inputs': 512, 'targets': 114},
    mesh_shape=mesh_text(mesh),
  )
  return cost.state_bytes < 8e9


def test_every_layout_is_a_slice_of_the_compiler():
  assert {path.stem for path in LAYOUTS.glob('*.gin')} - OTHERS == {*SLICES}


@pytest.mark.sampled
@pytest.mark.parametrize('name', SLICES)
def test_a_mesh_has_the_cores_of_its_slice(name):
  with cores_per_chip(name):
    mesh = mesh_of(name)
  assert mesh.size == SLICES[name].cores
  assert state_fits(mesh)


def test_a_pod_needs_a_size():
  with pytest.raises(UserError, match='tpu_topology must be set'):
    mesh_of('pod')
  gin.clear_config()
  size = "utils.tpu_mesh_shape.tpu_topology = 'v5litepod-256'"
  mesh = mesh_of('pod', bindings=[size])
  assert mesh.size == 256
  assert state_fits(mesh)


@pytest.mark.parametrize(
  'size, layouts, expected',
  [
    ('base', [], 'batch:8'),
    ('large', [], 'batch:4,model:2'),
    ('large', ['data_parallel'], 'batch:8'),
    ('3B', [], 'model:8'),
  ],
)
def test_eight_gpus_share_a_model_as_its_size_says(size, layouts, expected):
  files = ['gpu-8', *layouts]
  gin_files.parse(
    [f'sizes/{size}.gin', *(f'layouts/{file}.gin' for file in files)]
  )
  mesh = RunConfig().mesh
  assert mesh_text(mesh) == expected
  gpus = [types.SimpleNamespace(platform='gpu')] * 8
  devices.check_run(gpus, Hosts(), mesh, 'train')


@pytest.mark.slow  # compiles a TPU program
@pytest.mark.tpu_proof
@pytest.mark.xla
@pytest.mark.skipif(
  not COMPILER.exists(), reason='docs/scaling.md says how to install it'
)
@pytest.mark.parametrize('name', SLICES)
def test_the_compiler_takes_the_program_of_a_slice(name):
  with cores_per_chip(name):
    mesh = mesh_text(mesh_of(name))
  setting = Setting('random', mesh=mesh)
  setting.parse()
  fit = fitting.on_slice(setting.step().lower(), name, str(COMPILER))
  assert fit.cost and fit.cost.flops > 0
