"""Compares a layer with its reference: output, and gradient of everything."""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from tests import family, harness, reference


def parallel(
  make_layer: harness.MakeLayer,
  layer: reference.Layer,
  sequence_id: npt.NDArray[Any],
  stack: harness.Stack,
  by_row: bool = False,
  dtype: str = 'float32',
  tolerance: Optional[float] = None,
  **settings: Any,
) -> harness.Result:
  """Runs a layer on rows of sequences and compares it with its reference.

  Args:
    make_layer: makes the layer.
    layer: its `reference.Layer`.
    sequence_id: [batch..., length].
    stack: where the layer stands.
    by_row: whether tables are indexed by the row.
    dtype: of activations.
    tolerance: of the comparison; default: that of the dtype.
    **settings: those of `harness.parallel`.

  Returns:
    What `harness.parallel` returned.
  """
  tolerance = tolerance or harness.TOLERANCE[dtype]
  x = family.tokens(sequence_id)
  result = harness.parallel(
    make_layer, x, sequence_id, stack, dtype=dtype, **settings
  )
  encoded = settings.get('encoded')
  inputs = {'x': x, 'memory': encoded.output} if encoded else {'x': x}
  at = family.float64({**inputs, **result.weights})

  def output(at: reference.Weights) -> reference.Array:
    weights = {n: a for n, a in at.items() if n not in inputs}
    if encoded:
      ids = sequence_id, at['memory'], encoded.sequence_id
      return reference.rows_over(layer, at['x'], weights, *ids, by_row)
    return reference.rows(
      layer, at['x'], weights, sequence_id, stack.autoregressive, by_row
    )

  harness.assert_close(result.output, output(at), 'output', tolerance)
  if result.gradients:
    cotangent = harness.draw('cotangent', x.shape)
    found = result.gradients
    assert set(found) == {*inputs, *result.trainable}
    gradients(
      found,
      reference.probes(
        lambda at: (output(at) * cotangent).sum(),
        {name: at[name] for name in at if name in found},
        fixed={name: at[name] for name in at if name not in found},
      ),
      tolerance,
    )
  return result


def decoded(
  make_layer: harness.MakeLayer,
  layer: reference.Layer,
  shape: Sequence[int],
  start: Optional[npt.NDArray[Any]] = None,
  tolerance: float = harness.TOLERANCE['float32'],
  **settings: Any,
) -> None:
  """Decodes token by token and compares it with the reference of whole rows.

  Args:
    make_layer: makes the layer.
    layer: its `reference.Layer`.
    shape: [batch, length] or, with `beam`, [batch, beam, length].
    start: how many tokens of each row are given, as in `harness.decode`.
    tolerance: of the comparison.
    **settings: those of `harness.decode`.
  """
  ones = np.ones(shape, int)
  x = family.tokens(ones)
  result = harness.decode(make_layer, x, start, **settings)
  exact, weights = x.astype(np.float64), family.float64(result.weights)
  encoded = settings.get('encoded')
  if encoded:
    # The encoder's output has no beams: each sees the same.
    memory, memory_id = (
      np.broadcast_to(
        np.expand_dims(array, tuple(range(1, len(shape) - 1))),
        (*shape[:-1], *array.shape[1:]),
      )
      for array in (encoded.output.astype(np.float64), encoded.sequence_id)
    )
    expected = reference.rows_over(
      layer, exact, weights, ones, memory, memory_id
    )
  else:
    expected = reference.rows(layer, exact, weights, ones, causal=True)
  new = np.ones(shape, bool)
  if start is not None:
    new &= np.arange(shape[-1]) >= start[:, None]
    assert np.isnan(result.output[~new]).all()
  harness.assert_close(
    result.output[new], expected[new], 'token by token', tolerance
  )


# Where outputs have the size of 1, a gradient below this is a sum that cancels.
VANISHING = 1e-2


def gradients(
  found: Mapping[str, npt.NDArray[Any]],
  probes: Sequence[reference.Probe],
  tolerance: float,
) -> None:
  """Compares gradients by variable with derivatives of the reference."""
  faults = []
  for probe in probes:
    gradient = found[probe.name].astype(np.float64)
    scale = max(np.abs(gradient).max(), VANISHING)
    along = (gradient * probe.direction).sum()
    error = abs(along - probe.derivative) / scale
    if not error <= tolerance:
      entries = np.argwhere(probe.direction)
      where = tuple(entries[0]) if len(entries) == 1 else 'a mixture of all'
      faults.append(
        f'gradient of {probe.name} at {where} is {along:.7g}, expected '
        f'{probe.derivative:.7g}; the error is {error:.2g} of the largest '
        f'entry, {scale:.3g}'
      )
  assert not faults, '\n'.join(faults)
