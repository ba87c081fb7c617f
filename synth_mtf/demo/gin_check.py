"""Builds a stage's model before anything is trained, to find what cannot work.

Parsing finds an unknown name; only building finds a sequence longer than a
table, or an argument that a layer does not have. The Mesh-TensorFlow graph is
built as the run builds it, but nothing is lowered or computed: a moment's work.
"""

import os

import gin
import mesh_tensorflow as mtf
import t5.models
import tensorflow.compat.v1 as tf
from absl import flags
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.demo.stages import Stage

# No shape that a gin file may get wrong depends on these.
_VOCABULARY_SIZE = 128
_BATCH = (mtf.Dimension('outer_batch', 1), mtf.Dimension('batch', 2))


def check(stage: Stage) -> None:
  """Parses a stage's gin files and builds its model.

  Raises:
    Exception: whatever gin or the host raises; see host_errors.
  """
  _parse(stage)
  run = gin.get_bindings(utils.run)
  with tf.Graph().as_default():
    _build(run)


def _parse(stage: Stage) -> None:
  """Parses as T5's main does."""
  gin.clear_config()
  gin.add_config_file_search_path(
    os.path.join(os.path.dirname(t5.models.__file__), 'gin')
  )
  flags.FLAGS(['demo'])
  flags.FLAGS.gin_file = list(stage.gin_files)
  flags.FLAGS.gin_param = list(stage.gin_params)
  utils.parse_gin_defaults_and_flags(
    skip_unknown=mesh_transformer.DEPRECATED_GIN_REFERENCES,
    finalize_config=False,  # checks of a run, whose checkpoints are not there
  )


def _build(run: dict) -> None:
  model = utils.build_model(
    model_type=run.get('model_type', 'bitransformer'),
    input_vocab_size=_VOCABULARY_SIZE,
    output_vocab_size=_VOCABULARY_SIZE,
    layout_rules=mtf.convert_to_layout_rules(run['layout_rules']),
    mesh_shape=mtf.convert_to_shape(run['mesh_shape']),
  )
  mesh = mtf.Mesh(mtf.Graph(), 'check')
  length = {
    name: mtf.Dimension('length', size)
    for name, size in run['sequence_length'].items()
  }
  mode = run.get('mode', 'train')
  if mode == 'eval':
    model.decode(mtf.zeros(mesh, [*_BATCH[1:], length['inputs']], tf.int32))
    return
  inputs, targets = (
    mtf.zeros(mesh, [*_BATCH, length[name]], tf.int32)
    for name in ('inputs', 'targets')
  )
  packed = mode == 'train' and gin.get_bindings(
    mesh_transformer.mesh_train_dataset_fn
  ).get('pack', True)
  keys = tf_estimator.ModeKeys
  model.call_simple(
    inputs=inputs,
    targets=targets,
    compute_loss=True,
    mode=keys.TRAIN if mode == 'train' else keys.EVAL,
    encoder_sequence_id=inputs if packed else None,
    decoder_sequence_id=targets if packed else None,
  )
