"""Attention in TensorBoard while a model trains: by a hook, and on a TPU."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import ConfigurationError
from synth_mtf.host import events, gin_files
from synth_mtf.host import model as host_model
from synth_mtf.layer.recording import recorded_by
from synth_mtf.run.attention_summaries import add_shares, summarizer
from tests import harness, model

pytestmark = pytest.mark.slow  # trains

STEPS = 5
HEADS = 3
IDS = {
  'inputs': [[5, 17, 3, 99, 6, 1], [8, 44, 1, 0, 0, 0]],
  'targets': [[9, 23, 1, 0], [31, 7, 12, 1]],
}
STACKS = ('encoder', 'decoder', 'cross')


def steps_of_tags(folder):
  """The steps of each tag, of scalars and of histograms."""
  found: dict[str, list[int]] = {}
  for path in folder.glob('events.out*'):
    for event in tf.train.summary_iterator(str(path)):
      for value in event.summary.value:
        if value.tag.startswith('attention/'):
          found.setdefault(value.tag, []).append(event.step)
  return found


def test_they_are_written_at_an_interval_and_change_nothing(run, tmp_path):
  quiet, watched = tmp_path / 'quiet', tmp_path / 'watched'
  for folder, every in ((quiet, 0), (watched, 2)):
    setting = f'--gin_param=train_with_progress.attention_every = {every}'
    assert run(folder, setting, steps=STEPS) == 0
  assert steps_of_tags(quiet) == {}
  found = steps_of_tags(watched)
  heads = [f'head_{number:02d}' for number in range(1, 5)]
  assert set(found) == {
    *(f'attention/{stack}/layer_01/weights' for stack in STACKS),
    *(f'attention/{s}/layer_01/entropy/{h}' for s in STACKS for h in heads),
    *(
      f'attention/{stack}/layer_01/alpha/{letter}/{head}'
      for stack in ('encoder', 'decoder')
      for letter in 'RV'
      for head in heads
    ),
  }
  assert all(steps == [0, 2, 4] for steps in found.values())
  recorded = events.read(str(watched))
  for number in range(1, 5):
    tag = f'attention/encoder/layer_01/alpha/{{}}/head_{number:02d}'
    r, v = (recorded[tag.format(letter)] for letter in 'RV')
    assert r[0] == v[0] == 0.5  # untrained
    assert r[4] != 0.5
    np.testing.assert_allclose([r[s] + v[s] for s in r], 1, rtol=1e-6)
  first, second = (
    Checkpoint(str(folder / f'model.ckpt-{STEPS}'))
    for folder in (quiet, watched)
  )
  for name in first.kinds:
    np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def lowered(recorder, variant='random_vanilla', mode='train', microbatches=1):
  """Calls a tiny model that is watched; returns its lowering."""
  gin_files.parse(model.files(variant), model.TINY)
  graph = mtf.Graph()
  mesh = mtf.Mesh(graph, 'mesh')
  made = host_model.make_transformer(model.VOCAB)
  ids = {
    name: harness.constant(mesh, rows, 'batch length')
    for name, rows in IDS.items()
  }
  with recorded_by(recorder):
    made.call_simple(
      **ids,
      compute_loss=True,
      mode=mode,
      variable_dtype=mtf.VariableDType(tf.float32),
      num_microbatches=microbatches,
    )
  return mtf.Lowering(
    graph,
    {mesh: placement_mesh_impl.PlacementMeshImpl('', '', [''])},
    autostack=False,
  )


def values_of(lowering, fetches):
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(lowering.copy_masters_to_slices())
    return session.run(fetches)


def scalars():
  return dict(tf.get_collection(mtf.utils.SCALAR_SUMMARIES_COLLECTION_KEY))


@pytest.mark.parametrize('variant', ['random_vanilla', 'random', None])
def test_entropy_is_the_mean_over_tokens(variant):
  recorded: dict[str, mtf.Tensor] = {}
  with tf.Graph().as_default():
    lowering = lowered(summarizer(recorded.__setitem__), variant)
    weights = {
      tag: lowering.export_to_tf_tensor(x) for tag, x in recorded.items()
    }
    all_weights, measures = values_of(lowering, (weights, scalars()))
  assert len(all_weights) == 3 * 2
  for tag, found in all_weights.items():
    side = 'inputs' if 'encoder' in tag else 'targets'
    # Tokens that a row of the decoder stands for are those of its targets.
    rows = np.array(IDS[side]) != 0
    found = np.moveaxis(found.astype(np.float64), 1, 2)[rows]
    logs = np.log(np.where(found > 0, found, 1))
    layer, _, name = tag.rpartition('/')
    assert name == 'weights'
    np.testing.assert_allclose(
      [measures[f'{layer}/entropy/head_{n:02d}'] for n in (1, 2, 3)],
      -(found * logs).sum(-1).mean(0),
      rtol=1e-5,
      err_msg=tag,
    )


def test_a_tpu_gets_scalars_through_the_host(tmp_path):
  with tf.Graph().as_default():
    tf.train.get_or_create_global_step()
    lowering = lowered(summarizer(add_shares))
    names = list(scalars())
    layer = 'attention/encoder/layer_02'
    assert f'{layer}/entropy/head_03' in names
    assert f'{layer}/alpha/R/head_01' in names
    assert f'{layer}/weights_above_0.01' in names
    # Entropy, R and V of each head in two stacks, entropy alone in the third.
    per_stack = [3 * HEADS + 4, 3 * HEADS + 4, HEADS + 4]
    assert len(names) == 2 * sum(per_stack)
    write, tensors = mtf.utils.create_host_call(str(tmp_path))
    values = values_of(lowering, tensors)
  with tf.Graph().as_default():
    step = tf.constant([7])
    written = write(step, *map(tf.constant, values[1:]))
    assert len(written) == len(names)
  by_name = dict(zip(names, (value.item() for value in values[1:])))
  assert by_name[f'{layer}/alpha/R/head_01'] == pytest.approx(0.5)
  shares = [by_name[f'{layer}/weights_above_{s}'] for s in (0.001, 0.01, 0.1)]
  assert sorted(shares, reverse=True) == shares
  assert 0 < shares[-1] < shares[0] <= 1


def test_training_alone_is_recorded_with_layers_numbered_in_each_graph():
  tags: list[str] = []
  recorder = summarizer(lambda tag, _: tags.append(tag))
  for mode in ('train', 'eval', 'train'):
    with tf.Graph().as_default():
      lowered(recorder, mode=mode)
      assert bool(scalars()) == (mode == 'train')
  assert len(tags) == 12 and tags[:6] == tags[6:]
  assert tags[1] == 'attention/encoder/layer_02/weights'


def test_a_batch_in_pieces_is_refused():
  with (
    tf.Graph().as_default(),
    pytest.raises(ConfigurationError, match='tokens_per_microbatch'),
  ):
    lowered(summarizer(print), microbatches=2)
