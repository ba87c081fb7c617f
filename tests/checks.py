"""Compares a layer with its reference: output, losses, and all gradients."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf

from synth_mtf.attention.recording import Alignment, recorded_by
from tests import family, harness, reference

Array = npt.NDArray[Any]

# Where outputs have the size of 1, a gradient below this is a sum that cancels.
VANISHING = 1e-2


def parallel(
  member: family.Member,
  rows: family.Rows = family.PADDED,
  stack: harness.Stack = harness.DECODER,
  tolerance: float | None = None,
  **settings: Any,
) -> harness.Result:
  """Runs a layer on rows of sequences and compares it with its reference.

  Cross-attention attends to `rows.inputs`. The tolerance is the member's or the
  dtype's by default; settings and result are those of `harness.parallel`.
  """
  member, stack = _on(member, rows, stack)
  if tolerance is None:
    dtype = settings.get('dtype', 'float32')
    tolerance = max(member.tolerance, harness.TOLERANCE[dtype])
  x = family.tokens(rows.ids)
  result = harness.parallel(member, x, rows.ids, stack, **settings)
  at = _float64(x, result.weights, stack)

  def expected(at: reference.Weights) -> tuple[reference.Attention, Any]:
    found = _attention(member, at, rows.ids, stack)
    coefficient = member.settings.get('z_loss_coeff', 0.0)
    return found, coefficient * np.mean(found.log_z**2)

  attention, z_loss = expected(at)
  harness.assert_close(result.output, attention.y, 'output', tolerance)
  assert len(result.losses) == (1 if z_loss else 0)
  for loss in result.losses:
    harness.assert_close(loss, z_loss, 'z loss', tolerance)
  if result.gradients:
    names = {*at} & {'x', 'memory'} | {*result.trainable}
    assert set(result.gradients) == names

    def differentiated(at: reference.Weights) -> Any:
      attention, z_loss = expected(at)
      return (attention.y * harness.draw('cotangent', x.shape)).sum() + z_loss

    gradients(result.gradients, differentiated, at, tolerance)
  return result


def decoded(
  member: family.Member,
  shape: Sequence[int],
  start: Array | None = None,
  stack: harness.Stack = harness.DECODER,
  **settings: Any,
) -> None:
  """Decodes token by token and compares it with the reference of whole rows.

  The shape is [batch, length] or, with `beam`, [batch, beam, length]; `start`
  and the settings are those of `harness.decode`.
  """
  ones = np.ones(shape, int)
  inputs = family.PADDED.inputs[: shape[0]]
  member, stack = _on(member, family.Rows(ones, inputs), stack)
  x = family.tokens(ones)
  output, weights = harness.decode(member, x, start, stack, **settings)
  at = _float64(x, weights, stack)
  expected = _attention(member, at, ones, stack).y
  new = np.ones(shape, bool)
  if start is not None:
    new &= np.arange(shape[-1]) >= start[:, None]
    assert np.isnan(output[~new]).all()
  harness.assert_close(output[new], expected[new], 'token by token')


def same(
  found: harness.Result,
  expected: harness.Result,
  tolerance: float = harness.TOLERANCE['float32'],
) -> None:
  """Compares variables, output, gradients and losses of two layers."""
  shapes, expected_shapes = (
    {name: w.shape for name, w in result.weights.items()}
    for result in (found, expected)
  )
  assert shapes == expected_shapes
  assert {*found.trainable} == {*expected.trainable}
  for name in ('output', 'gradients', 'losses'):
    a, b = (getattr(result, name) for result in (found, expected))
    harness.assert_close(a, b, name, tolerance)


def on_a_mesh(
  member: family.Member,
  rows: family.Rows,
  stack: harness.Stack,
  mesh: harness.Mesh,
) -> None:
  """Compares a layer on a mesh with the same layer on one device."""
  member, stack = _on(member, rows, stack)
  x = family.tokens(rows.ids)
  one, many = (
    harness.parallel(member, x, rows.ids, stack, mesh=m)
    for m in (harness.ONE_DEVICE, mesh)
  )
  same(many, one)


def recorded(
  make_layer: harness.MakeLayer,
  rows: family.Rows,
  stack: harness.Stack,
  x: Array | None = None,
) -> tuple[Alignment, dict[str, Any]]:
  """The alignment of a layer; its logits, weights and alphas in NumPy."""
  if x is None:
    x = family.tokens(rows.ids)
  found: list[Alignment] = []

  def build(mesh: mtf.Mesh) -> dict[str, Any]:
    context = harness.host_context(mesh, x.shape, rows.ids, stack)
    dims = [*context.batch_dims, context.length_dim, context.model.model_dim]
    with recorded_by(found.append), tf.variable_scope(harness.SCOPE):
      make_layer().call(context, harness.constant(mesh, x, dims))
    (alignment,) = found
    return {
      'logits': alignment.logits,
      'weights': alignment.weights,
      'alphas': [a for a in alignment.alphas if a is not None],
    }

  values = harness.evaluate(build)
  return found[0], values


def alignment(
  member: family.Member,
  rows: family.Rows,
  stack: harness.Stack,
  make_layer: harness.MakeLayer | None = None,
) -> None:
  """Compares what a layer (default: the member) records with the reference."""
  member, stack = _on(member, rows, stack)
  make_layer = make_layer or member
  _, found = recorded(make_layer, rows, stack)
  x = family.tokens(rows.ids)
  shapes = harness.variables(make_layer, x, sequence_id=rows.ids, stack=stack)
  at = _float64(x, {n: harness.draw(n, s) for n, s in shapes.items()}, stack)
  expected = _attention(member, at, rows.ids, stack)
  # Logits that all examples share have no batch dimension.
  logits, weights = (
    np.broadcast_to(found[name], expected.weights.shape)
    for name in ('logits', 'weights')
  )
  tokens = (rows.ids != 0)[:, None, :, None]
  seen = expected.weights != 0
  harness.assert_close(logits * seen, expected.logits * seen, 'logits')
  harness.assert_close(weights * tokens, expected.weights, 'weights')
  assert not (weights * tokens)[~seen].any(), 'hidden positions have weights'


def gradients(
  found: Mapping[str, Array],
  f: Callable[[reference.Weights], Any],
  at: reference.Weights,
  tolerance: float = 1e-5,
) -> None:
  """Compares gradients by name with the derivatives of f at these arrays."""
  probes = reference.probes(
    f,
    {name: array for name, array in at.items() if name in found},
    fixed={name: array for name, array in at.items() if name not in found},
  )
  faults = []
  for name, direction, expected in probes:
    gradient = found[name].astype(np.float64)
    scale = max(np.abs(gradient).max(), VANISHING)
    along = (gradient * direction).sum()
    error = abs(along - expected) / scale
    if not error <= tolerance:
      entries = np.argwhere(direction)
      where = tuple(entries[0]) if len(entries) == 1 else 'a mixture of all'
      faults.append(
        f'gradient of {name} at {where} is {along:.7g}, expected '
        f'{expected:.7g}; the error is {error:.2g} of the largest entry, '
        f'{scale:.3g}'
      )
  assert not faults, '\n'.join(faults)


def _on(
  member: family.Member, rows: family.Rows, stack: harness.Stack
) -> tuple[family.Member, harness.Stack]:
  """The member and the stack that fit these rows."""
  if rows.packed:
    member = member.but(packed=True)
  if member.is_cross_attention:
    stack = dataclasses.replace(stack, encoded=family.encoded(rows.inputs))
  return member, stack


def _float64(
  x: Array, weights: reference.Weights, stack: harness.Stack
) -> dict[str, Array]:
  """All that the output depends on, by name."""
  at = {**weights, 'x': x}
  if stack.encoded:
    at['memory'] = stack.encoded.output
  return family.float64(at)


def _attention(
  member: family.Member, at: reference.Weights, ids: Array, stack: harness.Stack
) -> reference.Attention:
  """What the reference computes from the arrays of `_float64`."""
  memory = memory_id = None
  if stack.encoded:
    memory, memory_id = at['memory'], stack.encoded.sequence_id
    if ids.ndim > memory_id.ndim:  # beams, which all attend to the same
      memory, memory_id = (
        np.stack([array] * ids.shape[1], axis=1)
        for array in (memory, memory_id)
      )
  weights = {n: a for n, a in at.items() if n not in ('x', 'memory')}
  causal = stack.autoregressive
  return reference.rows(
    member.reference, at['x'], weights, ids, causal, memory, memory_id
  )
