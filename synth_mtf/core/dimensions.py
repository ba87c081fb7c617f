"""Helpers for dimension order, mesh splits and device types."""

import contextlib
import contextvars
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

_is_for_gpus = contextvars.ContextVar('is_for_gpus', default=False)


def arrange(x: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
  """Broadcasts and transposes x to this shape."""
  if set(x.shape.dims) != set(shape.dims):
    x = mtf.broadcast(x, shape)
  return mtf.transpose(x, shape)


def put_first(dims: Sequence[mtf.Dimension], x: mtf.Tensor) -> mtf.Tensor:
  """Moves these dimensions of x to the front."""
  others = [d for d in x.shape.dims if d not in dims]
  return mtf.transpose(x, mtf.Shape([*dims, *others]))


def parts(dim: mtf.Dimension, model: transformer.Unitransformer) -> int:
  """Returns the number of parts into which a model's mesh splits `dim`."""
  if not (model.layout and model.mesh_shape):
    return 1
  return mtf.tensor_dim_to_mesh_dim_size(model.layout, model.mesh_shape, dim)


def is_tpu(mesh: mtf.Mesh) -> bool:
  """Whether the mesh consists of TPU cores, or of others that run as they do.

  All of them run one program that XLA compiles as a whole.
  """
  return callable(mesh.variable_placer_fn)  # a device name elsewhere


@contextlib.contextmanager
def programs_for(platform: str) -> Iterator[None]:
  """Builds programs for JAX's platform of this name; by default, 'tpu'."""
  token = _is_for_gpus.set(platform == 'gpu')
  try:
    yield
  finally:
    _is_for_gpus.reset(token)


def fuses_products(mesh: mtf.Mesh) -> bool:
  """Whether XLA fuses products with what they read and what reads them.

  It does so on TPUs. On GPUs, most products are calls of a library.
  """
  return is_tpu(mesh) and not _is_for_gpus.get()


def sum_over_devices(
  mesh_impl: mtf.MeshImpl, x: Any, dims: Iterable[mtf.Dimension]
) -> Any:
  """Sums x over the devices among which the mesh splits these dimensions."""
  axes = {mesh_impl.tensor_dimension_to_mesh_axis(d) for d in dims}
  axes.discard(None)
  if not axes:
    return x
  return mtf.LazyAllreduceSum(mesh_impl, x, [*axes])


def on_cpu(mesh_impl: mtf.MeshImpl) -> bool:
  """Whether all devices of a mesh are CPUs.

  For an empty device name, TensorFlow uses a GPU if there is one.
  """
  for device in mesh_impl.devices:
    # The host also writes 'cpu:0', without a leading slash.
    name = device if '/' in device else f'/{device}'
    kind = tf.DeviceSpec.from_string(name).device_type
    if kind is None:
      if tf.config.list_physical_devices('GPU'):
        return False
    elif kind != 'CPU':
      return False
  return True
