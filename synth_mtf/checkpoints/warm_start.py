"""Starting a run from a checkpoint of any T5.

A run that starts from a checkpoint names it in `utils.run.init_checkpoint`. The
host then loads what has the same name and only logs the rest: since a scope is
the name of the layer's Python class, no attention weight of a plain T5 would be
loaded. `warm_start` finds them and refuses to go on without them.
"""

import re
from collections.abc import Mapping

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import comparison, names
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError

_SOURCES = 'synth_mtf_warm_start'


@gin.configurable(module='synth_mtf')
def warm_start(name: str) -> str:
  """Maps a variable of the graph to the one that it starts from.

  For `utils.init_checkpoint_variable_mapping.mapping_fn`; see
  `gin/common/warm_start.gin`. The host calls it for each variable while the
  training graph is built.

  Args:
    name: the name of a variable of the graph.

  Returns:
    Its name in `utils.run.init_checkpoint`.

  Raises:
    UserError: before training, if weights that should be in the checkpoint are
      not, or have another shape or type there.
  """
  graph = tf.get_default_graph()
  if not graph.get_collection(_SOURCES):
    graph.add_to_collection(_SOURCES, _checked_sources())
  (sources,) = graph.get_collection(_SOURCES)
  return sources.get(name, name)


def _checked_sources() -> Mapping[str, str]:
  """The name in the checkpoint of each weight and slot that is loaded."""
  path = gin.get_bindings(utils.run).get('init_checkpoint')
  if not path:
    return {}
  checkpoint = Checkpoint(path)
  found = comparison.of_weights(tf.global_variables(), checkpoint)
  found.insist_on_weights()
  _check_filter(found)
  found.insist_on_kinds()
  tf.logging.info('From %s:\n%s', checkpoint.path, found)
  slots = {
    f'{name}{slot[len(there) :]}': slot
    for name, there in found.loaded.items()
    for slot in checkpoint.slots
    if names.slot_owner(slot) == there
  }
  return {**found.loaded, **slots}


def _check_filter(found: comparison.Comparison) -> None:
  wanted = gin.get_bindings(utils.tpu_estimator_model_fn).get(
    'init_variable_filter', ''
  )
  if not any(re.search(wanted, there) for there in found.loaded.values()):
    raise UserError(
      f'tpu_estimator_model_fn.init_variable_filter = {wanted!r} matches no '
      f'variable of {found.path} that this model has: nothing would be loaded.'
    )
