"""Control of what the backward pass computes, and when.

The values are those of the plain computation.
"""

from collections.abc import Callable, Sequence

import mesh_tensorflow as mtf
from tensorflow.compiler.tf2xla.python import xla

from synth_mtf.core.dimensions import is_tpu


def link_gradient(y: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
  """Returns y, with a zero gradient with respect to x.

  The host recomputes a layer only if all of its inputs have gradients.
  """
  return mtf.slicewise(
    lambda y, x: y,
    [y, x],
    output_shape=y.shape,
    output_dtype=y.dtype,
    splittable_dims=[*{*y.shape.dims, *x.shape.dims}],
    grad_function=lambda op, dy: [dy, mtf.zeros_like(op.inputs[1])],
  )


def recompute_in_backward(
  make: Callable[[], tuple[mtf.Tensor, ...]], given: Sequence[mtf.Tensor]
) -> tuple[mtf.Tensor, ...]:
  """Returns `make()`, which a TPU recomputes in the backward pass.

  Args:
    make: computes tensors.
    given: inputs of `make`, at least one of each large tensor that it computes.
  """
  if is_tpu(given[0].mesh):
    return _recompute_on_tpu(make, given)
  return make()


def _recompute_on_tpu(
  make: Callable[[], tuple[mtf.Tensor, ...]], given: Sequence[mtf.Tensor]
) -> tuple[mtf.Tensor, ...]:
  """Keeps no intermediate tensors of `make`.

  A barrier delays the recomputation; the host's `recompute_grad` would add a
  sum over all devices, times 1e-30, instead.
  """

  def gradient(
    explicit_inputs: Sequence[mtf.Tensor],
    all_inputs: Sequence[mtf.Tensor],
    forward_operations: Sequence[mtf.Operation],
    outputs: Sequence[mtf.Tensor],
    output_grads: Sequence[mtf.Tensor | None],
  ) -> list[mtf.Tensor | None]:
    first = next(dy for dy in output_grads if dy is not None)
    delayed = {x: not_before(first, x) for x in explicit_inputs}
    operations, recomputed = first.graph.clone_operations(
      forward_operations, delayed
    )
    return mtf.gradients(
      [recomputed[y] for y in outputs],
      [delayed.get(x, x) for x in all_inputs],
      output_grads,
      operations,
    )

  return mtf.custom_gradient(lambda *_: make(), gradient, list(given))


def not_before(y: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
  """Returns x, on a TPU behind a barrier that waits for y."""
  if not is_tpu(x.mesh):
    return x
  return mtf.slicewise(
    lambda x, y: xla.optimization_barrier(x, y)[0],
    [x, y],
    splittable_dims=[*{*x.shape.dims, *y.shape.dims}],
    grad_function=lambda _op, dx: [dx, None],
  )
