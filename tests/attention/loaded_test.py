"""Loaded weights and the parts of a graph, with builds of one variable."""

import contextlib
import ctypes
import gc
import os
import pathlib
import weakref

import gin
import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.attention import loaded
from synth_mtf.attention.examples import SIDES, ModelInputs
from synth_mtf.attention.loaded import Loaded
from synth_mtf.checkpoints import files, identity
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as host_model
from synth_mtf.host.described import described
from synth_mtf.tasks import vocabulary
from tests import model

IDS = {'encoder': [[5, 17, 99], [8, 1]], 'decoder': [[9, 23], [31, 7, 1]]}
OTHERS = {'encoder': [[3], [44, 2]], 'decoder': [[6, 1], [12]]}
W = np.array([1 + 2**-7, 3, 5], np.float32)  # exact in bfloat16, too
PACKED = [f'mesh_{name}_dataset_fn.pack = True' for name in ('train', 'eval')]


def opened(checkpoint=None):
  """A model in a session."""
  gin_files.parse(model.files('random'), [*model.TINY, *PACKED])
  with described(gin.config_str(), 'operative_config.gin') as made:
    model_type = made.run.model_type
  gin.clear_config()
  vocabularies = dict.fromkeys(SIDES, vocabulary.load('bytes'))
  inputs = ModelInputs(model_type, {}, vocabularies)
  return contextlib.closing(Loaded(made, inputs, checkpoint))


def stored(folder, **values):
  """A checkpoint of these variables."""
  return Checkpoint(files.write(str(folder), 7, values))


class Products:
  """Builds the products of ids and a variable; keeps what it is given."""

  def __init__(self, name='w'):
    self.name = name
    self.graphs = []
    self.calls = []
    self.dtype = None
    self.packs = True

  def __call__(self, made, rows, dtype, *options):
    self.graphs.append(weakref.ref(tf.get_default_graph()))
    shapes = [tuple(x.shape.to_integer_list) for x in rows.values()]
    self.calls.append((*options, *shapes))
    self.dtype = dtype
    self.packs = gin.query_parameter('mesh_eval_dataset_fn.pack')
    mesh = next(iter(rows.values())).mesh
    shape = mtf.Shape([mtf.Dimension('d', len(W))])
    w = mtf.get_variable(mesh, self.name, shape, dtype=dtype)
    products = {side: mtf.cast(ids, w.dtype) * w for side, ids in rows.items()}
    return ['products', *options], products


def echo(made, rows, dtype):
  return None, rows


def check(values, ids):
  """Compares products with those of the weights of the checkpoint."""
  assert set(values) == set(ids)
  for side, rows in ids.items():
    for row, products in zip(rows, values[side], strict=False):
      np.testing.assert_array_equal(products[: len(row)], np.outer(row, W))
      assert not products[len(row) :].any(), 'padding is 0'


@pytest.mark.parametrize('kind', [tf.float32, tf.bfloat16])
def test_a_build_runs_once_for_each_shape_and_options(tmp_path, kind):
  build = Products()
  w = W.astype(kind.as_numpy_dtype)
  with opened(stored(tmp_path, w=w)) as one:
    assert one.step == 7
    for ids in (IDS, OTHERS):
      result, values = one.run(build, ids, 'a')
      assert result == ['products', 'a']
      check(values, ids)
    assert build.calls == [('a', (4, 3), (4, 3)), ('a', (4, 2), (4, 2))]
    check(one.run(build, IDS, 'b')[1], IDS)
    for side, rows in IDS.items():
      alone = {side: rows}
      check(one.run(build, alone, 'b')[1], alone)
    check(one.run(build, OTHERS, 'a')[1], OTHERS)
    assert build.calls[2:] == [('b', (4, 3), (4, 3)), *[('b', (4, 3))] * 2]
  types = mtf.VariableDType(kind, tf.float32, tf.float32)
  assert vars(build.dtype) == vars(types)
  assert build.packs is False


def test_weights_are_read_once_and_a_discarded_graph_is_freed(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(loaded, '_PARTS', 2)
  build = Products()
  with opened(stored(tmp_path, w=W)) as one:
    one.run(build, {'encoder': [[5]]})
    for path in tmp_path.iterdir():
      path.unlink()
    gc.disable()  # otherwise, it may run at any time
    try:
      for length in (2, 3, 4, 5):
        ids = {'encoder': [[7] * length]}
        check(one.run(build, ids)[1], ids)
    finally:
      gc.enable()
    alive = [graph() is not None for graph in build.graphs]
    assert alive == [False, False, False, False, True], 'two parts per graph'
    _, values = one.run(echo, {'encoder': [[8]]})  # has no variables
    assert values['encoder'].tolist() == [[8]]


def test_initial_values_repeat():
  found = []
  for _ in range(2):
    with opened() as one:
      assert one.step == 0
      _, values = one.run(Products(), {'encoder': [[1]]})
    found.append(values['encoder'].ravel().tolist())
  assert found[0] == found[1]
  assert len({*found[0]}) == len(W), 'they are random'


def test_checkpoints_that_do_not_fit(tmp_path):
  whole = stored(tmp_path / 'whole', w=np.array([1, 2, 3]))
  message = r'^w of .*ckpt-7 is int64\[3\]; expected weights in floating point'
  with opened(whole) as one, pytest.raises(UserError, match=message):
    one.run(Products(), IDS)
  real = stored(tmp_path / 'real', w=W)
  with opened(real) as one, pytest.raises(UserError, match='v is not in it'):
    one.run(Products('v'), IDS)
  gin_files.parse(model.files('dense'), model.TINY)
  identity.record_model(
    host_model.make_transformer(model.VOCAB), Folder(str(tmp_path / 'real'))
  )
  with opened(real) as one, pytest.raises(UserError, match='same shapes'):
    one.run(Products(), IDS)


@pytest.mark.parametrize(
  'count, length, most, expected',
  [
    (1, 3, None, (1, 3)),
    (2, 3, None, (4, 3)),
    (1, 3, 100, (1, 16)),
    (4, 16, 100, (4, 16)),
    (5, 17, 100, (16, 32)),
    (16, 33, 100, (16, 64)),
    (17, 65, 100, (64, 100)),
    (65, 3, 7, (256, 7)),
  ],
)
def test_few_shapes(count, length, most, expected):
  ids = [[row + 2] * 2 for row in range(count)]
  ids[0] = [2] * length
  rows = loaded._few_shapes(ids, most)  # noqa: SLF001
  assert rows.shape == expected
  for row, given in zip(rows, ids, strict=False):
    assert row.tolist() == given + [0] * (rows.shape[1] - len(given))
  for row in rows[count:]:
    assert row.tolist() == rows[0].tolist(), 'no row is empty'


def resident():
  """The bytes of this process in memory."""
  pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  return int(pages) * os.sysconf('SC_PAGE_SIZE')


def test_what_was_freed_is_returned_to_the_system():
  """A discarded graph leaves free pieces of memory between used ones."""
  library = ctypes.CDLL(None)
  if not hasattr(library, 'malloc_trim'):
    pytest.skip('this C library has no malloc_trim')
  library.malloc.restype = ctypes.c_void_p
  library.free.argtypes = [ctypes.c_void_p]
  size, count = 64 << 10, 1024
  pieces = [library.malloc(size) for _ in range(count)]
  for piece in pieces:
    ctypes.memset(piece, 1, size)
  kept = pieces[::16]
  for piece in set(pieces) - set(kept):
    library.free(piece)
  before = resident()
  loaded._return_memory()  # noqa: SLF001
  freed = before - resident()
  for piece in kept:
    library.free(piece)
  assert freed > size * count // 2
