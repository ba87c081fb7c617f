"""Starts a run from a checkpoint of any T5 model.

The run names the checkpoint in `utils.run.init_checkpoint`. The host loads
variables by name and only logs the others. Since a layer's scope is the name of
its Python class, it would load no attention weights from a plain T5.
`warm_start` maps their names, and raises a UserError if weights are missing.
"""

import functools
from collections.abc import Mapping

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import comparison, names
from synth_mtf.checkpoints.files import Checkpoint


@gin.configurable(module='synth_mtf')
def warm_start(name: str) -> str:
  """Returns the name in the checkpoint that a variable is initialized from.

  Bind it to `utils.init_checkpoint_variable_mapping.mapping_fn`, as in
  `gin/common/warm_start.gin`. The host calls it for each variable while it
  builds the training graph.

  Raises:
    UserError: before training, if the checkpoint lacks weights that it should
      have, or has them in another shape or type.
  """
  return _sources(tf.get_default_graph()).get(name, name)


@functools.lru_cache(maxsize=1)
def _sources(_graph: tf.Graph) -> Mapping[str, str]:
  """Maps each loaded weight and slot to its name in the checkpoint."""
  path = gin.get_bindings(utils.run).get('init_checkpoint')
  if not path:
    return {}
  checkpoint = Checkpoint(path)
  weights = [v for v in tf.global_variables() if names.is_weight(v.op.name)]
  found = comparison.Comparison(comparison.kinds_of(weights), checkpoint)
  found.require_weights()
  found.require_kinds()
  tf.logging.info('From %s:\n%s', checkpoint.path, found)
  slots = {
    f'{name}{slot[len(there) :]}': slot
    for name, there in found.loaded.items()
    for slot in checkpoint.slots
    if names.slot_owner(slot) == there
  }
  return {**found.loaded, **slots}
