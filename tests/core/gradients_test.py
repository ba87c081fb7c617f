"""What the backward pass recomputes, against NumPy, and what it reads."""

import mesh_tensorflow as mtf

from synth_mtf.core.gradients import not_before, recompute_in_backward
from tests import harness
from tests.core import cases
from tests.core.cases import WEIGHTS, Case, floats


def sum_of_squares(a, b):
  """(a + b)^2 b, made again for its gradient; and what is on the way to it."""
  way = []

  def make():
    way.append(a + b)
    # The second result has no gradient.
    return mtf.square(way[0]) * b, way[0]

  return recompute_in_backward(make, [a])[0], way[0]


CASES = {
  'made again': Case(
    lambda a, b: sum_of_squares(a, b)[0],
    lambda a, b: (a[:, None] + b) ** 2 * b,
    {'a': ('heads memory_length', None), 'b': (WEIGHTS, None)},
    WEIGHTS,
    ('heads', 'length', 'memory_length'),
  ),
}


@cases.everywhere(CASES)
def test_it_is_the_formula(case, mesh):
  cases.check(case, mesh)


@cases.on_cpu_and_tpu
def test_on_a_tpu_the_gradient_reads_nothing_on_the_way(mesh):
  with harness.new_graph(mesh) as (graph, mesh_object):
    a, b = (
      harness.constant(mesh_object, floats(WEIGHTS, n), WEIGHTS) for n in 'ab'
    )
    y, way = sum_of_squares(a, b)
    forward = len(graph.operations)
    mtf.gradients([mtf.reduce_sum(y)], [a, b])
    read = [x for op in graph.operations[forward:] for x in op.inputs]
  assert (way in read) != mesh.tpu


@cases.on_cpu_and_tpu
def test_only_a_tpu_has_a_barrier(mesh):
  with harness.new_graph(mesh) as (_, mesh_object):
    a, b = (
      harness.constant(mesh_object, floats(WEIGHTS, n), WEIGHTS) for n in 'ab'
    )
    assert (not_before(b, a) is a) != mesh.tpu
