"""What cores exchange, as StableHLO in TensorFlow's graph.

These functions stand in for `tpu_ops`, whose operations only a TPU's own
TensorFlow can compile. Groups are lists of core numbers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

# The version of XlaCallModule that this TensorFlow accepts.
_VERSION = 2 if tf.__version__ < '2.15' else 5
_TYPES = {tf.float32: 'f32', tf.bfloat16: 'bf16', tf.int32: 'i32'}

Groups = Sequence[Sequence[int]]


def cross_replica_sum(x: tf.Tensor, groups: Groups) -> tf.Tensor:
  """Sums over each group of cores."""
  return _all_reduce('add', x, groups)


def cross_replica_max(x: tf.Tensor, groups: Groups) -> tf.Tensor:
  """Takes the largest element of each group of cores."""
  return _all_reduce('maximum', x, groups)


def _all_reduce(reduction: str, x: tf.Tensor, groups: Groups) -> tf.Tensor:
  if len(groups[0]) == 1:
    return x
  element = _TYPES[x.dtype.base_dtype]
  operation = f""""stablehlo.all_reduce"(%x) ({{
        ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
          %c = stablehlo.{reduction} %a, %b : tensor<{element}>
          "stablehlo.return"(%c) : (tensor<{element}>) -> ()
      }}) {{replica_groups = {_integers(groups)}}}"""
  return _call(operation, x, x.shape.as_list())


def all_to_all(
  x: tf.Tensor,
  concat_dimension: int,
  split_dimension: int,
  split_count: int,
  group_assignment: Groups,
) -> tf.Tensor:
  """Sends a part to each core of the group, and joins what it receives."""
  shape = x.shape.as_list()
  shape[split_dimension] //= split_count
  shape[concat_dimension] *= split_count
  operation = f""""stablehlo.all_to_all"(%x) {{
        split_dimension = {split_dimension} : i64,
        concat_dimension = {concat_dimension} : i64,
        split_count = {split_count} : i64,
        replica_groups = {_integers(group_assignment)}}}"""
  return _call(operation, x, shape)


def collective_permute(x: tf.Tensor, pairs: Groups) -> tf.Tensor:
  """Sends from the first to the second core of each pair; others get zeros."""
  operation = f""""stablehlo.collective_permute"(%x) {{
        source_target_pairs = {_integers(pairs)}}}"""
  return _call(operation, x, x.shape.as_list())


def _call(operation: str, x: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
  given, made = _type(x.shape.as_list(), x.dtype), _type(shape, x.dtype)
  module = f"""module @exchange {{
    func.func public @main(%x: {given}) -> {made} {{
      %y = {operation} : ({given}) -> {made}
      return %y : {made}
    }}
  }}"""
  (y,) = gen_xla_ops.xla_call_module(
    args=[x],
    version=_VERSION,
    module=module.encode(),
    Sout=[shape],
    Tout=[x.dtype.base_dtype],
    dim_args_spec=[],
  )
  return y


def _type(shape: Sequence[int], dtype: tf.DType) -> str:
  return f'tensor<{"x".join([*map(str, shape), _TYPES[dtype.base_dtype]])}>'


def _integers(groups: Groups) -> str:
  rows, columns = np.shape(groups)
  values: Any = np.asarray(groups).tolist()
  return f'dense<{values}> : tensor<{rows}x{columns}xi64>'
