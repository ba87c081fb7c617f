"""softmax(B) V off a TPU, a tile of B after the other.

B is a sum of parts: products, tables, masks. A tile of it (`core.tiles`) is
made, used and forgotten, and made again for the gradient. What is as large as B
is never made, but for a table that is given, and its gradient. Tiles fit into a
processor's cache; what all queries of a tile are hidden from is not computed;
and operands are transposed once, to

    [batch, heads, length or memory_length, k or memory_length]

with size 1 where they do not depend on a dimension: all products are plain
batched ones, and all sums broadcast.

  attend         softmax(B) V
  attend_shared  the same, where no part of B depends on the batch

A mesh may split the batch and the heads (`can_attend`).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import InnerProduct, Scaled, Term, dims_of
from synth_mtf.core.tiles import Cut, Pieces, Sum, Tile, Tiling
from synth_mtf.core.visibility import Visibility
from synth_mtf.core.windows import ALIGNMENT, Axis, Layout, Window

Tensors = Sequence[tf.Tensor]


def can_attend(call: LayerCall, values: mtf.Tensor) -> bool:
  """Whether the kernels here can take a call: whole rows, float32, no TPU.

  A TPU's compiler makes such a program by itself, of single steps.
  """
  whole = [*call.length, call.memory_length, call.kv_dim]
  return (
    bool(call.length)
    and not kernels.is_tpu(values.mesh)
    and values.dtype == call.logits_dtype == tf.float32
    and not any(map(call.splits, whole))
  )


def attend(
  call: LayerCall,
  parts: Sequence[Term],
  visibility: Visibility,
  values: mtf.Tensor,
) -> mtf.Tensor:
  """softmax(B) V, with B the sum of parts.

      W = softmax(B)     Y = W V
      dB = W ([dY, -sum_d dY Y] [V, 1]^T)     dV = W^T dY

  Args:
    call: the layer call.
    parts: over dimensions of [batch..., heads, length, memory_length]; what is
      hidden is in them.
    visibility: what is hidden; it is used to leave out what no query sees.
    values: V, [batch..., memory_length, heads, d_kv].

  Returns:
    Y, [batch..., length, heads, d_kv], of no use at queries that are padding.
  """
  columns = [call.kv_dim]

  def forward(b: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.nn.softmax(b), v)

  def backward(
    b: tf.Tensor, v: tf.Tensor, y: tf.Tensor, dy: tf.Tensor
  ) -> tuple[Optional[tf.Tensor], ...]:
    w = tf.nn.softmax(b)
    minus_total = -tf.reduce_sum(dy * y, axis=-1, keepdims=True)
    dy_v = tf.matmul(
      tf.concat([dy, minus_total], axis=-1),
      tf.concat([v, tf.ones_like(v[..., :1])], axis=-1),
      transpose_b=True,
    )
    return w * dy_v, tf.matmul(w, dy, transpose_a=True)

  # Neighbouring queries see about the same.
  of = _Operands(call, call.batch, by_queries=visibility.pairs is not None)
  kernel = _Kernel(
    *_logits(of, parts, values),
    [of.rows(Axis.KEYS, values, columns)],
    of.masks(visibility),
    forward,
    backward,
  )
  return _by_tiles(of, kernel, columns)


def attend_shared(
  call: LayerCall,
  parts: Sequence[Term],
  visibility: Visibility,
  values: mtf.Tensor,
) -> mtf.Tensor:
  """softmax(B) V, with B the sum of parts that all examples share.

      E = exp(B - c), 0 where hidden     T = E nonpad     Y = (E V) / T
      dX = dY / T     dT = -sum_d dX Y
      dB = E (dX V^T + dT nonpad^T)     dV = E^T dX

  with c the center of each row (`kernels.row_center`), which cancels. E is
  taken once for all examples: their values stand side by side.

  Args:
    call: the layer call.
    parts: over dimensions of [heads, length, memory_length].
    visibility: what is hidden; its pairs are over [length, memory_length].
    values: V, [batch..., memory_length, heads, d_kv], 0 at padding.

  Returns:
    Y, [batch..., length, heads, d_kv], of no use at queries that are padding.
  """
  pairs, nonpad = visibility.pairs, visibility.keys
  columns = [*call.batch, call.kv_dim]
  # A column of V for each head of it, and so of nonpad.
  heads = call.heads if set(call.heads) & set(values.shape.dims) else []
  of_heads = mtf.Shape([*call.batch, *heads, call.memory_length])
  if nonpad is None:
    nonpad = mtf.ones(values.mesh, of_heads)
  nonpad = mtf.stop_gradient(mtf.broadcast(nonpad, of_heads))
  d_kv = call.kv_dim.size

  def examples(x: tf.Tensor) -> tf.Tensor:
    """[1, heads, rows, batch * d_kv] as [1, heads, rows, batch, d_kv]."""
    _, heads, _, columns = x.shape
    return tf.reshape(x, [1, heads, -1, columns // d_kv, d_kv])

  def side_by_side(x: tf.Tensor) -> tf.Tensor:
    """The reverse."""
    _, heads, _, examples, _ = x.shape
    return tf.reshape(x, [1, heads, -1, examples * d_kv])

  def exp(b: tf.Tensor, seen: Tensors) -> tf.Tensor:
    return kernels.exp_from(b, kernels.row_center(b, *seen), *seen)

  def forward(b: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    *seen, nonpad, v = others
    e = exp(b, seen)
    x, total = tf.matmul(e, v), tf.matmul(e, nonpad)
    return side_by_side(kernels.divide_rows(examples(x), total))

  def backward(
    b: tf.Tensor, *others: tf.Tensor
  ) -> tuple[Optional[tf.Tensor], ...]:
    *seen, nonpad, v, y, dy = others
    e = exp(b, seen)
    dx = kernels.divide_rows(examples(dy), tf.matmul(e, nonpad))
    dtotal = -tf.reduce_sum(dx * examples(y), axis=-1)
    dx = side_by_side(dx)
    de = tf.matmul(
      tf.concat([dx, dtotal], axis=-1),
      tf.concat([v, nonpad], axis=-1),
      transpose_b=True,
    )
    dv = tf.matmul(e, dx, transpose_a=True)
    return (e * de, *(None for _ in [*seen, nonpad]), dv)

  of = _Operands(call, [], by_queries=False)
  others = [
    *([] if pairs is None else [of.table(pairs)]),
    of.rows(Axis.KEYS, nonpad, call.batch),
    of.rows(Axis.KEYS, values, columns),
  ]
  kernel = _Kernel(
    *_logits(of, parts, values),
    others,
    of.masks(visibility),
    forward,
    backward,
  )
  return _by_tiles(of, kernel, columns)


@dataclasses.dataclass(frozen=True)
class _Operand:
  """A tensor as the kernels take it.

  Attributes:
    tensor: [batch..., heads..., rows..., columns...].
    ranks: how many dimensions each of these four has.
    layout: whether its rows and columns are queries or keys, and in which
      order the four lie in memory.
    trained: whether it may need a gradient.
  """

  tensor: mtf.Tensor
  ranks: Sequence[int]
  layout: Layout
  trained: bool


class _Operands:
  """Brings tensors into the layout of the kernels."""

  def __init__(
    self, call: LayerCall, batch: Sequence[mtf.Dimension], by_queries: bool
  ) -> None:
    """Creates operands.

    Args:
      call: the layer call.
      batch: the batch dimensions of B.
      by_queries: how tiles are cut; see `Tiling`.
    """
    self.call = call
    self.batch = batch
    self.by_queries = by_queries
    self._axes = {
      None: [],
      Axis.QUERIES: call.length,
      Axis.KEYS: [call.memory_length],
    }

  def rows(
    self,
    axis: Axis,
    x: mtf.Tensor,
    columns: Sequence[mtf.Dimension],
  ) -> _Operand:
    """A row for each query or key, as far as x has them."""
    return self._operand(x, [axis, None], columns)

  def table(self, x: mtf.Tensor) -> _Operand:
    """Over dimensions of B."""
    return self._operand(x, [Axis.QUERIES, Axis.KEYS], [])

  def number(
    self, x: mtf.Tensor, columns: Sequence[mtf.Dimension] = ()
  ) -> _Operand:
    """One for all queries and keys."""
    return self._operand(x, [None, None], columns)

  def masks(self, visibility: Visibility) -> list[_Operand]:
    """What is seen, mask by mask, int32; by any example, if B is for all."""
    masks = [mtf.cast(x, tf.int32) for x in visibility.masks]
    if not self.batch:
      batch = set(self.call.batch)
      kept = [[d for d in x.shape.dims if d not in batch] for x in masks]
      masks = [
        mtf.reduce_max(x, output_shape=mtf.Shape(dims))
        for x, dims in zip(masks, kept)
      ]
    return [self.table(x) for x in masks]

  def _operand(
    self,
    x: mtf.Tensor,
    axes: Sequence[Optional[Axis]],
    others: Sequence[mtf.Dimension],
  ) -> _Operand:
    """Transposes a tensor.

    Where it has no head or no batch dimension, it gets some of one entry for
    each part of the mesh.
    """
    trained = x.dtype.is_floating and not isinstance(
      x.operation, mtf.StopGradient
    )
    given = set(x.shape.dims)
    of_rows, of_columns = (
      axis if given & set(self._axes[axis]) else None for axis in axes
    )
    heads_last = bool(of_rows and of_columns) and self._ends_with_heads(x)
    layout = Layout(of_rows, of_columns, heads_last)
    rows, columns = self._axes[of_rows], [*self._axes[of_columns], *others]
    batch = self._batch_of(columns)
    present = [
      [*group] if given & set(group) else []
      for group in (batch, self.call.heads)
    ]
    x = arrange(x, _joined(layout.stored([*present, rows, columns])))
    groups = [
      found or [mtf.Dimension(d.name, self.call.parts(d)) for d in group]
      for found, group in zip(present, (batch, self.call.heads))
    ]
    groups = layout.stored([*groups, rows, columns])
    shape = _joined(groups)
    if shape.size == x.size:
      x = mtf.reshape(x, shape)
    else:  # the host broadcasts numbers only
      x = mtf.cast(mtf.broadcast(mtf.cast(x, tf.float32), shape), x.dtype)
    return _Operand(x, [*map(len, groups)], layout, trained)

  def _ends_with_heads(self, x: mtf.Tensor) -> bool:
    """Whether x lies so in memory, and tiles have all heads."""
    heads = self.call.heads
    last = x.shape.dims[-len(heads) :]
    return self.by_queries and bool(heads) and last == heads

  def _batch_of(
    self, columns: Sequence[mtf.Dimension]
  ) -> Sequence[mtf.Dimension]:
    """The batch dimensions before all others: those that are no columns."""
    return [d for d in self.call.batch if d not in columns]


class _Part:
  """A part of B that is given: a table or a mask.

  Attributes:
    operands: what it is made of.
    layout: what its rows and columns are.
  """

  def __init__(self, *operands: _Operand) -> None:
    self.operands = operands

  @property
  def layout(self) -> Layout:
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


class _ScaledPart(_Part):
  """alpha T."""

  def value(self, *tile: tf.Tensor) -> tf.Tensor:
    table, alpha = tile
    return table * alpha

  def gradients(self, db: tf.Tensor, *tile: tf.Tensor) -> Tensors:
    table, alpha = tile
    return [db * alpha, db * table]


class _ProductPart(_Part):
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


def _part(of: _Operands, term: Term) -> _Part:
  if isinstance(term, InnerProduct):
    return _ProductPart(
      of.rows(Axis.QUERIES, term.query, [term.k]),
      of.rows(Axis.KEYS, term.key, [term.k]),
    )
  if isinstance(term, Scaled):
    return _ScaledPart(of.table(term.table), of.number(term.alpha))
  return _Part(of.table(term))


class _Parts:
  """Some parts of B, and their sum."""

  def __init__(self, parts: Sequence[_Part]) -> None:
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

  def _split(self, tile: Tensors) -> Iterator[tuple[_Part, Tensors]]:
    rest = iter(tile)
    for part in self._parts:
      yield part, [*itertools.islice(rest, len(part.operands))]


def _logits(
  of: _Operands, parts: Sequence[Term], values: mtf.Tensor
) -> tuple[_Parts, _Parts]:
  """B: its parts without a batch dimension, and all others.

  They have all other dimensions of B together.
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
    _Parts([_part(of, x) for x in shared]),
    _Parts([_part(of, x) for x in local]),
  )


@dataclasses.dataclass(frozen=True)
class _Kernel:
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

  shared: _Parts
  local: _Parts
  others: Sequence[_Operand]
  masks: Sequence[_Operand]
  forward: Callable[..., tf.Tensor]
  backward: Callable[..., Sequence[Optional[tf.Tensor]]]

  @property
  def groups(self) -> list[Sequence[_Operand]]:
    """All operands."""
    return [self.shared.operands, self.local.operands, self.others, self.masks]

  @property
  def operands(self) -> list[_Operand]:
    """All operands, one after the other."""
    return [*itertools.chain(*self.groups)]


def _by_tiles(
  of: _Operands, kernel: _Kernel, columns: Sequence[mtf.Dimension]
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

  def __init__(
    self, kernel: _Kernel, slices: Tensors, by_queries: bool
  ) -> None:
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
    self._window = self._tiling.windows(
      [
        tf.cast(cut.by_tiles(x), tf.bool)
        for cut, x in zip(cuts[known:], flat[known:])
      ]
    )
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


def _joined(groups: Sequence[Sequence[mtf.Dimension]]) -> mtf.Shape:
  return mtf.Shape([*itertools.chain(*groups)])
