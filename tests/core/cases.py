"""Calls of functions of tensors, beside their formulas.

A case is computed on one device, on meshes that split each of the dimensions
that the function lets them split, and as on a TPU.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import checks, harness

BATCH, HEADS, LENGTH, MEMORY, D_KV = 2, 4, 6, 8, 2
X = 'batch length heads d_kv'
WEIGHTS = 'heads length memory_length'
LOGITS = f'batch {WEIGHTS}'
VALUES = 'batch memory_length heads d_kv'
ONE_QUERY = 'batch heads memory_length'
SIZES = {
  'batch': BATCH,
  'heads': HEADS,
  'length': LENGTH,
  'memory_length': MEMORY,
  'd_kv': D_KV,
  'row': 3,
  'ensemble': 2,
  'one': 1,
}


def dims(names):
  return [mtf.Dimension(n, SIZES[n]) for n in names.split()]


def product(*names):
  """The einsum of x and y, from the dimensions of x, y and the result."""
  letters = {d: chr(ord('a') + i) for i, d in enumerate(SIZES)}
  x, y, z = (''.join(letters[d] for d in of.split()) for of in names)
  words = f'{x},{y}->{z}'
  return lambda x, y: np.einsum(words, x, y)


def floats(names, name='x'):
  return harness.draw(name, [SIZES[n] for n in names.split()])


def integers(names, below, name='i'):
  rng = np.random.RandomState(len(name))
  return rng.randint(0, below, [SIZES[n] for n in names.split()])


@dataclasses.dataclass(frozen=True)
class Case:
  """A call of a kernel on tensors, and its formula on arrays.

  Inputs have dimensions and values; those of floats have a gradient.
  """

  kernel: Callable[..., mtf.Tensor]
  formula: Callable[..., Any]
  inputs: dict[str, tuple[str, Any]]
  output: str
  splits: tuple[str, ...] = ()  # what a mesh may split
  whole: tuple[str, ...] = ()  # what it may not
  trained: bool = True  # whether there ever is a gradient


def everywhere(table):
  """Calls a test with each case on one device, on a TPU and on split meshes."""
  places = [
    (name, place, mesh)
    for name, case in table.items()
    for place, mesh in [
      ('cpu', harness.ONE_DEVICE),
      ('tpu', harness.TPU),
      *((d, harness.Mesh('all:2', f'{d}:all')) for d in case.splits),
    ]
  ]
  return pytest.mark.parametrize(
    'case, mesh',
    [
      pytest.param(table[name], mesh, id=f'{name}-{place}')
      for name, place, mesh in places
    ],
  )


on_cpu_and_tpu = pytest.mark.parametrize(
  'mesh', [harness.ONE_DEVICE, harness.TPU], ids=['cpu', 'tpu']
)


def not_split(table):
  """Calls a test with each case and each dimension that stays whole."""
  return pytest.mark.parametrize(
    'case, dim',
    [
      pytest.param(case, dim, id=f'{name}-{dim}')
      for name, case in table.items()
      for dim in case.whole
    ],
  )


def values(case):
  return {
    name: floats(names, name) if array is None else array
    for name, (names, array) in case.inputs.items()
  }


def run(case, mesh=harness.ONE_DEVICE):
  """The result, and the gradient of its weighted sum by each input."""
  arrays = values(case)

  def build(mesh_object):
    tensors = {
      name: harness.constant(mesh_object, arrays[name], names)
      for name, (names, _) in case.inputs.items()
    }
    y = case.kernel(**tensors)
    order = [y.shape.get_dim_by_name(n) for n in case.output.split()]
    y = mtf.transpose(y, mtf.Shape(order))
    cotangent = harness.draw('cotangent', y.shape.to_integer_list)
    loss = mtf.reduce_sum(
      y * harness.constant(mesh_object, cotangent, y.shape.dims)
    )
    sources = {n: t for n, t in tensors.items() if t.dtype == tf.float32}
    derivatives = mtf.gradients([loss], list(sources.values()))
    gradients = dict(zip(sources, derivatives, strict=True))
    return {'y': y, 'gradients': gradients if case.trained else {}}

  return harness.evaluate(build, mesh)


def check(case, mesh):
  found = run(case, mesh)
  arrays = {
    name: array.astype(np.float64) if array.dtype.kind == 'f' else array
    for name, array in values(case).items()
  }
  harness.assert_close(found['y'], case.formula(**arrays), 'value', 3e-6)
  cotangent = harness.draw('cotangent', found['y'].shape)
  checks.gradients(
    found['gradients'],
    lambda at: (case.formula(**at) * cotangent).sum(),
    arrays,
  )


def check_not_split(case, dim):
  # The host's message has a fault of its own.
  with pytest.raises((ValueError, TypeError), match='splittable|formatting'):
    run(case, harness.Mesh('all:2', f'{dim}:all'))
