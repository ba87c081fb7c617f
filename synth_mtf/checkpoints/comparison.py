"""Compares the variables of a model with the contents of a checkpoint.

A run resumes only from a checkpoint of the same model (`require_same`). It
starts only from one (`utils.run.init_checkpoint`) that has every weight that
cannot start from its initial value (`require_weights`).

The host loads variables by name and only logs those that it does not find.
Since a layer's scope is the name of its Python class, it would load no
attention weights from a plain T5. `warm_start` maps their names.
"""

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import files, names
from synth_mtf.errors import UserError
from synth_mtf.host.run_config import RunConfig


class Comparison:
  """The differences between a model's variables and a checkpoint's.

  Attributes:
    loaded: the model's variables that are in the checkpoint, with their names
      there.
    new: the model's variables that are not in the checkpoint.
    left_over: weights in the checkpoint that the model does not have.
    different: messages about loaded variables whose type or shape differs.
  """

  def __init__(
    self,
    kinds: Mapping[str, files.Kind],
    checkpoint: files.Checkpoint,
    loaded: Mapping[str, str] | None = None,
  ) -> None:
    """Compares variables, given by name, with a checkpoint.

    By default, variables are loaded if the checkpoint has one of the same name,
    ignoring the class of the attention layer.
    """
    if loaded is None:
      loaded = {
        name: there
        for name in kinds
        for there in reversed(names.candidates(name))  # the best is last
        if there in checkpoint
      }
    self._path = checkpoint.path
    self.loaded = loaded
    self.new = sorted(kinds.keys() - loaded.keys())
    self.left_over = sorted(set(checkpoint.weights) - set(loaded.values()))
    self.different = [
      f'{name} is {checkpoint.kinds[there]} in the checkpoint, '
      f'{kinds[name]} in the model'
      for name, there in sorted(loaded.items())
      if kinds[name] != checkpoint.kinds[there]
    ]

  def __str__(self) -> str:
    loaded = [n if n == o else f'{n} <- {o}' for n, o in self.loaded.items()]
    return '\n'.join(
      '\n  '.join([f'{title} ({len(lines)}):', *lines])
      for title, lines in (
        ('loaded', sorted(loaded)),
        ('new', self.new),
        ('left over', self.left_over),
      )
    )

  def require_weights(self) -> None:
    """Raises a UserError if a run cannot start from the checkpoint.

    Such a checkpoint lacks a weight that belongs to no synthesizing function,
    or has a layer that the model lacks.
    """
    faults = [
      *(f'it lacks {name}' for name in self.new if not self._may_be_new(name)),
      *(
        f'{name} belongs to a layer that the model lacks'
        for name in self.outside(lambda n: names.split(n)[0])
      ),
    ]
    if faults:
      raise UserError(
        f'the checkpoint {self._path} does not fit this model: '
        f'{listed(faults)}. Use the size it was trained with (see its '
        'operative_config.gin); `synth-mtf checkpoint inspect` lists what it '
        'holds.'
      )

  def require_kinds(self) -> None:
    if self.different:
      raise UserError(
        f'the checkpoint {self._path} has other shapes or types: '
        f'{listed(self.different)}. Use the size it was trained with (see its '
        'operative_config.gin), or `synth-mtf checkpoint convert` for another '
        'max_length (--resize) or utils.get_variable_dtype.master_dtype.'
      )

  def outside(self, scope: Callable[[str], str]) -> list[str]:
    """Returns the checkpoint's weights in scopes that the model lacks.

    An extra variable in a scope that the model has does not indicate another
    model: early T5 checkpoints have a relative_attention_bias in
    EncDecAttention, which T5 does not use.
    """
    scopes = {scope(n) for n in (*self.loaded, *self.new)}
    return [n for n in self.left_over if scope(n) not in scopes]

  def _may_be_new(self, name: str) -> bool:
    """Whether a checkpoint with the variable's layer may lack the variable."""
    place, layer, rest = names.split(name)
    # Attention layers of all classes have an output projection, and values.
    return f'{place}/{layer}/o' in self.loaded and rest not in ('o', 'v', 'kv')


def require_same(
  variables: Iterable[tf.Variable], checkpoint: files.Checkpoint
) -> None:
  """Raises a UserError if variables cannot be restored from a checkpoint."""
  found = _by_name(variables, checkpoint)
  faults = [
    *found.different,
    *(f'{name} is not in it' for name in found.new),
    # The host silently skips these, such as R or the layers of a larger model.
    *(f'{name} is not in the model' for name in found.outside(names.scope)),
  ]
  if faults:
    folder = os.path.dirname(checkpoint.path)
    raise UserError(
      f'the checkpoint {checkpoint.path} was made by another model: '
      f'{listed(faults)}. Use the variant, size, lengths, vocabulary and '
      'master_dtype it was trained with '
      f'({os.path.join(folder, "operative_config.gin")}), or another '
      '--model_dir.'
    )


def require_loadable(
  variables: Iterable[tf.Variable], checkpoint: files.Checkpoint
) -> None:
  """Raises a UserError if a run cannot start from a checkpoint.

  Passes if gin selects what is loaded, or maps it by another function than
  `warm_start`.
  """
  mapping = gin.get_bindings(utils.init_checkpoint_variable_mapping)
  filters = gin.get_bindings(utils.tpu_estimator_model_fn)
  if mapping.get('mapping_fn') is warm_start:
    _weights(variables, checkpoint)
  elif not (
    gin.get_bindings(utils.should_load_variable)
    or mapping
    or filters.get('init_variable_filter')
  ):
    _by_name(variables, checkpoint).require_kinds()


@gin.configurable(module='synth_mtf')
def warm_start(name: str) -> str:
  """Returns the name in the checkpoint that a variable is initialized from.

  Bind it to `utils.init_checkpoint_variable_mapping.mapping_fn`, as in
  `gin/common/warm_start.gin`. The host calls it for each variable while it
  builds the training graph.

  Raises:
    UserError: if the checkpoint lacks weights that it should have, or has them
      in another shape or type. `synth-mtf transformer` finds that earlier.
  """
  return _sources(tf.get_default_graph()).get(name, name)


@functools.lru_cache(maxsize=1)
def _sources(_graph: tf.Graph) -> Mapping[str, str]:
  """Maps each loaded weight and slot to its name in the checkpoint."""
  path = RunConfig().init_checkpoint
  if not path:
    return {}
  checkpoint = files.Checkpoint(path)
  found = _weights(tf.global_variables(), checkpoint)
  tf.logging.info('From %s:\n%s', checkpoint.path, found)
  slots = {
    f'{name}{slot[len(there) :]}': slot
    for name, there in found.loaded.items()
    for slot in checkpoint.slots
    if names.slot_owner(slot) == there
  }
  return {**found.loaded, **slots}


def _weights(
  variables: Iterable[tf.Variable], checkpoint: files.Checkpoint
) -> Comparison:
  """Compares the weights; raises a UserError if they do not fit."""
  weights = [v for v in variables if names.is_weight(v.op.name)]
  found = Comparison(kinds_of(weights), checkpoint)
  found.require_weights()
  found.require_kinds()
  return found


def _by_name(
  variables: Iterable[tf.Variable], checkpoint: files.Checkpoint
) -> Comparison:
  """Compares variables with those of exactly the same names."""
  kinds = kinds_of(variables)
  same = {name: name for name in kinds if name in checkpoint}
  return Comparison(kinds, checkpoint, same)


def kinds_of(variables: Iterable[tf.Variable]) -> dict[str, files.Kind]:
  """Returns the type and shape of each variable, by name."""
  return {
    v.op.name: files.Kind(v.dtype.base_dtype.name, tuple(v.shape.as_list()))
    for v in variables
  }


def listed(faults: Sequence[str]) -> str:
  """Joins the first three faults and the number of others."""
  more = [f'and {len(faults) - 3} more'] if len(faults) > 3 else []
  return '; '.join([*faults[:3], *more])
