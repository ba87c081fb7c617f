"""Runs a kernel tile by tile, forward and for the gradient, on each device.

A tile is made, used and forgotten, and made again for the gradient. It waits
for the one before it: there is never more than one.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.cpu.alignment import Parts, Tensors
from synth_mtf.cpu.operands import Operand, Operands
from synth_mtf.cpu.tiles import Cut, Pieces, Sum, Tile, Tiling
from synth_mtf.cpu.windows import ALIGNMENT, Axis, Layout, Window


@dataclasses.dataclass(frozen=True)
class Kernel:
  """What is done with a tile.

  Attributes:
    shared: the parts of B that are summed once for all examples.
    local: those of each example.
    others: what else there is, V last.
    masks: what is seen.
    forward: from B and the others to Y, all of them a tile's.
    backward: from the same, Y and dY to the gradients of B and the others; what
      their tiles lack is still to be summed over.
  """

  shared: Parts
  local: Parts
  others: Sequence[Operand]
  masks: Sequence[Operand]
  forward: Callable[..., tf.Tensor]
  backward: Callable[..., Sequence[Optional[tf.Tensor]]]

  @property
  def groups(self) -> list[Sequence[Operand]]:
    """All operands."""
    return [self.shared.operands, self.local.operands, self.others, self.masks]

  @property
  def operands(self) -> list[Operand]:
    """All operands, one after the other."""
    return [*itertools.chain(*self.groups)]


def by_tiles(
  of: Operands, kernel: Kernel, columns: Sequence[mtf.Dimension]
) -> mtf.Tensor:
  """Y, [batch..., length, heads, d_kv], made tile by tile.

  Args:
    of: what the operands were made by.
    kernel: what is done with a tile.
    columns: the dimensions of a row of Y in the kernel.
  """
  call = of.call
  groups = of.batch, call.heads, call.length, columns
  dims = [d for group in groups for d in group]
  ranks = [len(group) for group in groups]
  trained = [x.tensor for x in kernel.operands if x.trained]
  used = {d for x in kernel.operands for d in x.tensor.shape.dims}
  # What is whole may be on an axis of a mesh that has one device.
  splittable = [
    *call.heads,
    *call.batch,
    *(d for d in used.union(dims) if not call.splits(d)),
  ]

  def forward(*slices: tf.Tensor) -> tf.Tensor:
    y = _OnDevice(kernel, slices, of.by_queries).forward()
    return tf.reshape(y, [d.size // call.parts(d) for d in dims])

  def backward(*slices: tf.Tensor) -> Any:
    *inputs, y, dy = slices
    y, dy = _flat(y, ranks), _flat(dy, ranks)
    found = _OnDevice(kernel, inputs, of.by_queries).backward(y, dy)
    return tuple(found) if len(found) > 1 else found[0]

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[Optional[mtf.Tensor]]:
    found = iter(
      mtf.slicewise(
        backward,
        [*op.inputs, op.outputs[0], dy],
        output_shape=[x.shape for x in trained],
        output_dtype=[x.dtype for x in trained],
        splittable_dims=splittable,
      )
    )
    return [next(found) if x.trained else None for x in kernel.operands]

  y = mtf.slicewise(
    forward,
    [x.tensor for x in kernel.operands],
    output_shape=mtf.Shape(dims),
    output_dtype=tf.float32,
    splittable_dims=splittable,
    grad_function=gradient,
  )
  return mtf.transpose(
    y, mtf.Shape([*call.batch, *call.length, *call.heads, call.kv_dim])
  )


class _OnDevice:
  """A kernel, and the slices of its operands that a device has."""

  def __init__(self, kernel: Kernel, slices: Tensors, by_queries: bool) -> None:
    operands = kernel.operands
    flat = [_flat(x, o.ranks) for x, o in zip(slices, operands)]
    shapes = [o.layout.named(x.shape.as_list()) for x, o in zip(flat, operands)]
    batch, heads = (max(shape[i] for shape in shapes) for i in (0, 1))
    length, memory_length = (
      max(
        n
        for shape, o in zip(shapes, operands)
        for n, of in zip(shape[2:], o.layout[:2])
        if of is axis
      )
      for axis in Axis
    )
    self._kernel = kernel
    self._slices = slices
    self._tiling = Tiling([batch, heads, length, memory_length], by_queries)
    cuts = [Cut(self._tiling, n, o.layout) for n, o in zip(shapes, operands)]
    known = len(operands) - len(kernel.masks)
    self._window = self._tiling.windows([*zip(cuts[known:], flat[known:])])
    inputs = map(Pieces, flat[:known], cuts)
    self._shared, self._local, self._others = (
      [*itertools.islice(inputs, len(group))] for group in kernel.groups[:3]
    )
    columns = self._others[-1].cut.piece[-1]
    self._of_y = Cut(
      self._tiling, [batch, heads, length, columns], Layout(Axis.QUERIES, None)
    )
    self._of_shared = Cut(
      self._tiling, [1, heads, length, memory_length], ALIGNMENT
    )

  def forward(self) -> tf.Tensor:
    """Y, [batch, heads, length, columns]."""
    total = Sum(self._of_y)
    last: list[tf.Tensor] = []
    for slab in self._tiling.slabs:
      whole = self._tiling.whole(slab[0])
      with tf.control_dependencies(last):
        shared = self._kernel.shared.sum(_take(self._shared, slab[0], whole))
      for tile in slab:
        with tf.control_dependencies(last):
          window = self._window(tile)
          b = self._b(shared, _take(self._local, tile, window), window)
          others = _take(self._others, tile, window)
          last = [total.add(self._kernel.forward(b, *others), tile, window)]
    return total.total()

  def backward(self, y: tf.Tensor, dy: tf.Tensor) -> list[tf.Tensor]:
    """The gradients of what is trained, each in the shape of its slice."""
    kernel = self._kernel
    of_y = [Pieces(x, self._of_y) for x in (y, dy)]
    given = [*self._shared, *self._local, *self._others]
    sums = [
      Sum(i.cut, o.tensor.dtype) if o.trained else None
      for i, o in zip(given, kernel.operands)
    ]
    rest = iter(sums)
    of_shared, of_local, of_others = (
      [*itertools.islice(rest, len(group))] for group in kernel.groups[:3]
    )
    last: list[tf.Tensor] = []
    for slab in self._tiling.slabs:
      whole = self._tiling.whole(slab[0])
      with tf.control_dependencies(last):
        parts = _take(self._shared, slab[0], whole)
        shared = kernel.shared.sum(parts)
      db_of_all: Optional[tf.Tensor] = None
      for tile in slab:
        with tf.control_dependencies(last):
          window = self._window(tile)
          local = _take(self._local, tile, window)
          others = _take([*self._others, *of_y], tile, window)
          b = self._b(shared, local, window)
          db, *found = kernel.backward(b, *others)
          last = [
            *_add(of_local, kernel.local.gradients(db, local), tile, window),
            *_add(of_others, found, tile, window),
          ]
          if kernel.shared.trained:
            db = self._of_shared.put(db, window)
            db_of_all = db if db_of_all is None else db_of_all + db
            last.append(db_of_all)
      if db_of_all is not None:
        with tf.control_dependencies(last):
          gradients = kernel.shared.gradients(db_of_all, parts)
          last = _add(of_shared, gradients, slab[0], whole)
    return [
      tf.reshape(of.total(), x.shape) for of, x in zip(sums, self._slices) if of
    ]

  def _b(
    self, shared: Optional[tf.Tensor], local: Tensors, window: Window
  ) -> tf.Tensor:
    """B, in the window of a tile."""
    b = self._kernel.local.sum(local)
    if shared is None:
      return b
    shared = window.view(shared, self._kernel.shared.layout)
    return shared if b is None else b + shared


def _take(
  inputs: Sequence[Pieces], tile: Tile, window: Window
) -> list[tf.Tensor]:
  return [of.take(tile, window) for of in inputs]


def _add(
  sums: Sequence[Optional[Sum]],
  found: Sequence[Optional[tf.Tensor]],
  tile: Tile,
  window: Window,
) -> list[tf.Tensor]:
  """Adds to each sum what was found for it."""
  return [of.add(x, tile, window) for of, x in zip(sums, found) if of]


def _flat(x: tf.Tensor, ranks: Sequence[int]) -> tf.Tensor:
  """Merges dimensions: as many as ranks says for each one of the result."""
  sizes = iter(x.shape.as_list())
  return tf.reshape(x, [math.prod(itertools.islice(sizes, n)) for n in ranks])
