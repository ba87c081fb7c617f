"""Alignment logits B of a kernel: a sum of parts, which are made tile by tile.

A part knows its value from tiles of its operands, and their gradients from
that of the part, dB.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.logits import InnerProduct, Scaled, Term, dims_of
from synth_mtf.cpu.operands import Operand, Operands
from synth_mtf.cpu.windows import Axis, Layout

Tensors = Sequence[tf.Tensor]


class Part:
  """A part of B that is given: a table or a mask.

  Attributes:
    operands: what it is made of.
  """

  def __init__(self, *operands: Operand) -> None:
    self.operands = operands

  @property
  def layout(self) -> Layout:
    """What its rows and columns are."""
    of = self.operands[0].layout
    return Layout(of.rows, of.columns)

  def value(self, *tile: tf.Tensor) -> tf.Tensor:
    """The part, out of a tile of its operands."""
    (x,) = tile
    return x

  def gradients(self, db: tf.Tensor, *tile: tf.Tensor) -> Tensors:
    """The gradients of the operands, if that of the part is dB."""
    del tile
    return [db]


class _ScaledPart(Part):
  """alpha T."""

  def value(self, *tile: tf.Tensor) -> tf.Tensor:
    table, alpha = tile
    return table * alpha

  def gradients(self, db: tf.Tensor, *tile: tf.Tensor) -> Tensors:
    table, alpha = tile
    return [db * alpha, db * table]


class _ProductPart(Part):
  """Q K^T."""

  @property
  def layout(self) -> Layout:
    query, key = self.operands
    return Layout(query.layout.rows, key.layout.rows)

  def value(self, *tile: tf.Tensor) -> tf.Tensor:
    query, key = tile
    return tf.matmul(query, key, transpose_b=True)

  def gradients(self, db: tf.Tensor, *tile: tf.Tensor) -> Tensors:
    query, key = tile
    return [tf.matmul(db, key), tf.matmul(db, query, transpose_a=True)]


def _part(of: Operands, term: Term) -> Part:
  if isinstance(term, InnerProduct):
    return _ProductPart(
      of.rows(Axis.QUERIES, term.query, [term.k]),
      of.rows(Axis.KEYS, term.key, [term.k]),
    )
  if isinstance(term, Scaled):
    return _ScaledPart(of.table(term.table), of.number(term.alpha))
  return Part(of.table(term))


class Parts:
  """Some parts of B, and their sum."""

  def __init__(self, parts: Sequence[Part]) -> None:
    self._parts = parts
    self.operands = [x for part in parts for x in part.operands]

  @property
  def trained(self) -> bool:
    """Whether any of them may need a gradient."""
    return any(x.trained for x in self.operands)

  @property
  def layout(self) -> Layout:
    """What rows and columns of the sum are."""
    rows = {part.layout.rows for part in self._parts} - {None}
    columns = {part.layout.columns for part in self._parts} - {None}
    return Layout(next(iter(rows), None), next(iter(columns), None))

  def sum(self, tile: Tensors) -> Optional[tf.Tensor]:
    """That of a tile of the operands; None if there are no parts."""
    values = [part.value(*of_part) for part, of_part in self._split(tile)]
    # The small ones first.
    values.sort(key=lambda x: sum(n != 1 for n in x.shape.as_list()))
    return functools.reduce(tf.add, values) if values else None

  def gradients(
    self, db: tf.Tensor, tile: Tensors
  ) -> Sequence[Optional[tf.Tensor]]:
    """Those of all operands; None for parts that are not trained."""
    found: list[Optional[tf.Tensor]] = []
    for part, of_part in self._split(tile):
      if any(x.trained for x in part.operands):
        found += part.gradients(db, *of_part)
      else:
        found += [None] * len(of_part)
    return found

  def _split(self, tile: Tensors) -> Iterator[tuple[Part, Tensors]]:
    rest = iter(tile)
    for part in self._parts:
      yield part, [*itertools.islice(rest, len(part.operands))]


def alignment(
  of: Operands, parts: Sequence[Term], values: mtf.Tensor
) -> tuple[Parts, Parts]:
  """B: its parts without a batch dimension, and all others.

  They have all other dimensions of B together.

  Args:
    of: brings tensors into the layout of kernels.
    parts: terms that B is the sum of.
    values: V, [batch..., memory_length, heads, d_kv]; if it has no heads, B
      has them.
  """
  call = of.call
  dims = call.length + [call.memory_length]
  if not set(call.heads) & set(values.shape.dims):
    dims = call.heads + dims
  if not set(dims) <= set().union(*map(dims_of, parts)):
    zeros = mtf.stop_gradient(mtf.zeros(values.mesh, mtf.Shape(dims)))
    parts = [*parts, zeros]
  shared = [x for x in parts if not dims_of(x) & set(of.batch)]
  local = [x for x in parts if dims_of(x) & set(of.batch)]
  return (
    Parts([_part(of, x) for x in shared]),
    Parts([_part(of, x) for x in local]),
  )
