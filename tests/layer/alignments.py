"""What a layer tells of its attention, compared with its reference."""

import contextlib
from collections.abc import Callable
from typing import Any, Optional

import mesh_tensorflow as mtf
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.layer.recording import Alignment, Recorder, recorded_by
from tests import family, harness, reference
from tests.family import D_KV, D_MODEL, HEADS

RecordedBy = Callable[[Recorder], contextlib.AbstractContextManager[None]]


def recorded(
  make_layer: harness.MakeLayer,
  sequence_id: npt.NDArray[Any],
  stack: harness.Stack,
  encoded: Optional[harness.Encoded] = None,
  mode: str = 'eval',
  by: RecordedBy = recorded_by,
) -> tuple[list[Alignment], dict[str, Any]]:
  """Calls a layer, and has it tell.

  Args:
    make_layer: makes the layer.
    sequence_id: [batch, length].
    stack: where the layer stands.
    encoded: what the encoder made, for cross-attention.
    mode: as for `harness.parallel`.
    by: what has the layer tell.

  Returns:
    What it tells; and the values of its logits, weights, alphas and output.
  """
  x = family.tokens(sequence_id)
  found: list[Alignment] = []

  def build(mesh: mtf.Mesh) -> dict[str, Any]:
    context = harness.host_context(
      mesh, x.shape, sequence_id, stack, mode, encoded=encoded
    )
    dims = [*context.batch_dims, context.length_dim, context.model.model_dim]
    y = transformer.sublayer_mask_padding(
      harness.constant(mesh, x, dims), None, context
    )
    with by(found.append), tf.variable_scope(harness.SCOPE):
      output = make_layer().call(context, y)
    (told,) = found
    return {
      'output': output,
      'logits': told.logits,
      'weights': told.weights,
      'alphas': [a for a in told.alphas if a is not None],
    }

  return found, harness.evaluate(build)


def _variables(
  make_layer: harness.MakeLayer,
  sequence_id: npt.NDArray[Any],
  stack: harness.Stack,
  encoded: Optional[harness.Encoded],
) -> dict[str, npt.NDArray[np.float64]]:
  """The values that `recorded` runs with, by name."""
  x = family.tokens(sequence_id)
  shapes = harness.parallel(
    make_layer, x, sequence_id, stack, 'eval', encoded=encoded
  ).weights
  return family.float64(shapes)


def compare(
  make_layer: harness.MakeLayer,
  layer: reference.Layer,
  sequence_id: npt.NDArray[Any],
  stack: harness.Stack,
  encoded: Optional[harness.Encoded] = None,
  by: RecordedBy = recorded_by,
) -> None:
  """Compares what is told with the reference and with the layer's output.

  Args:
    make_layer: makes the layer.
    layer: its `reference.Layer`.
    sequence_id: as for `recorded`, like all others.
    stack: see there.
    encoded: see there.
    by: see there.
  """
  _, found = recorded(make_layer, sequence_id, stack, encoded, by=by)
  variables = _variables(make_layer, sequence_id, stack, encoded)
  x = family.tokens(sequence_id).astype(np.float64)
  # What all examples share is there once.
  logits, weights = (
    np.broadcast_to(a, (len(x), *a.shape[-3:]))
    for a in (found['logits'], found['weights'])
  )
  memory, memory_id = x, sequence_id
  if encoded:
    memory = encoded.output.astype(np.float64)
    memory_id = encoded.sequence_id
  v, o = variables['v'], variables['o']
  v = np.einsum('bmd,dhk->bhmk', memory, v.reshape(D_MODEL, HEADS, D_KV))
  read = np.einsum('bhnm,bhmk->bnhk', weights, v)
  output = read.reshape(*x.shape[:2], -1) @ o.reshape(-1, D_MODEL)
  for row, ids in enumerate(sequence_id):
    for segment in set(ids) - {0}:
      (at,) = np.nonzero(ids == segment)
      (there,) = np.nonzero(memory_id[row] == segment)
      expected = layer.alignment(
        x[row, at],
        variables,
        causal=stack.autoregressive,
        memory=memory[row, there] if encoded else None,
      )
      block = np.ix_(np.arange(HEADS), at, there)
      shown = expected[1] != 0
      harness.assert_close(
        np.where(shown, logits[row][block], 0),
        np.where(shown, expected[0], 0),
        f'logits of row {row}, segment {segment}',
      )
      harness.assert_close(
        weights[row][block], expected[1], f'weights of row {row}'
      )
      # Nothing else is looked at.
      elsewhere = np.delete(weights[row][:, at], there, axis=-1)
      np.testing.assert_array_equal(elsewhere, 0)
    # Weights times values are what the layer itself has computed.
    tokens = ids != 0
    harness.assert_close(
      output[row][tokens], found['output'][row][tokens], f'output {row}'
    )
