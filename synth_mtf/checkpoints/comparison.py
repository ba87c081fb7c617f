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

from synth_mtf import paths
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
    variables: Mapping[str, files.VariableSpec],
    checkpoint: files.Checkpoint,
    loaded: Mapping[str, str] | None = None,
  ) -> None:
    """Compares a model's variables with a checkpoint.

    Args:
      variables: those of the model, by name.
      checkpoint: the checkpoint.
      loaded: as in the attribute. By default, a variable is loaded if the
        checkpoint has it, also under another name (`names.corresponding`).
    """
    if loaded is None:
      loaded = names.corresponding(variables, checkpoint.variables)
    self._path = checkpoint.path
    self.loaded = loaded
    self.new = sorted(variables.keys() - loaded.keys())
    self.left_over = sorted(set(checkpoint.weights) - set(loaded.values()))
    self.different = []
    for name, stored_name in sorted(loaded.items()):
      stored = checkpoint.variables[stored_name]
      if variables[name] != stored:
        self.different.append(
          f'{name} is {stored} in the checkpoint, {variables[name]} in the '
          'model'
        )

  def __str__(self) -> str:
    loaded = []
    for name, stored_name in self.loaded.items():
      is_same = name == stored_name
      loaded.append(name if is_same else f'{name} <- {stored_name}')
    sections = [
      _section('loaded', sorted(loaded)),
      _section('new', self.new),
      _section('left over', self.left_over),
    ]
    return '\n'.join(sections)

  def require_weights(self) -> None:
    """Raises a UserError if a run cannot start from the checkpoint.

    Such a checkpoint lacks a weight that belongs to no synthesizing function,
    or has a layer that the model lacks.
    """
    faults = []
    for name in self.new:
      if not self._may_be_new(name):
        faults.append(f'it lacks {name}')
    for name in self.outside(lambda name: names.split(name).place):
      faults.append(f'{name} belongs to a layer that the model lacks')
    if faults:
      raise UserError(
        f'the checkpoint {self._path} does not fit this model: '
        f'{listed(faults)}. Use the size it was trained with (see its '
        'operative_config.gin); `synth-mtf checkpoint inspect` lists what it '
        'holds.'
      )

  def require_no_original(self) -> None:
    """Raises a UserError if functions of the original would start anew.

    In checkpoints of mesh_tensorflow's Synthesizer, their weights have other
    names and shapes, which `checkpoint convert` knows.
    """
    lost = []
    for name in self.new:
      place, layer, rest = names.split(name)
      output = self.loaded.get(f'{place}/{layer}/o', '')
      for theirs, ours in names.OF_ORIGINAL.items():
        stored = f'{names.scope(output)}/{theirs}'
        if rest == ours and stored in self.left_over:
          lost.append(stored)
    if lost:
      raise UserError(
        f"the checkpoint {self._path} is of mesh_tensorflow's own Synthesizer, "
        'whose weights have other names and shapes: this run would not use '
        f'{listed(lost)}. Convert it to the model of this run with '
        f'`synth-mtf checkpoint convert {self._path} <new folder>` and the '
        'same --gin_file and --gin_param, and start from the new folder.'
      )

  def require_types(self) -> None:
    """Raises a UserError if a loaded variable differs in type or shape."""
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
    known = (*self.loaded, *self.loaded.values(), *self.new)
    scopes = {scope(name) for name in known}
    return [name for name in self.left_over if scope(name) not in scopes]

  def _may_be_new(self, name: str) -> bool:
    """Whether a checkpoint with the variable's layer may lack the variable."""
    place, layer, rest = names.split(name)
    # Attention layers of all classes have an output projection, and values.
    return f'{place}/{layer}/o' in self.loaded and rest not in ('o', 'v', 'kv')


def require_same(
  variables: Iterable[tf.Variable], checkpoint: files.Checkpoint
) -> None:
  """Raises a UserError if variables cannot be restored from a checkpoint."""
  _require_same(_by_name(variables, checkpoint), checkpoint)


def same_under_other_names(
  variables: Iterable[tf.Variable], checkpoint: files.Checkpoint
) -> Mapping[str, str]:
  """Returns the name that a checkpoint has for each variable of its model.

  Norms and places may have other names, but layers have the same classes.

  Raises:
    UserError: the checkpoint is that of another model.
  """
  specs = specs_of(variables)
  loaded = {
    name: stored
    for name, stored in names.corresponding(specs, checkpoint.variables).items()
    if names.split(name).layer == names.split(stored).layer
  }
  _require_same(Comparison(specs, checkpoint, loaded), checkpoint)
  return loaded


def _require_same(comparison: Comparison, checkpoint: files.Checkpoint) -> None:
  faults = [*comparison.different]
  for name in comparison.new:
    faults.append(f'{name} is not in it')
  # The host silently skips these, such as R or the layers of a larger model.
  for name in comparison.outside(names.scope):
    faults.append(f'{name} is not in the model')
  if faults:
    folder = os.path.dirname(checkpoint.path)
    raise UserError(
      f'the checkpoint {checkpoint.path} was made by another model: '
      f'{listed(faults)}. Use the variant, size, lengths, vocabulary and '
      'master_dtype it was trained with '
      f'({os.path.join(folder, paths.OPERATIVE_CONFIG)}), or another '
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
  # By name, as a run on JAX's devices replaces the function.
  model = gin.get_bindings('utils.tpu_estimator_model_fn')
  if mapping.get('mapping_fn') is warm_start:
    _report_ignored(_compared_weights(variables, checkpoint), checkpoint)
    return
  is_selected = (
    mapping
    or gin.get_bindings(utils.should_load_variable)
    or model.get('init_variable_filter')
  )
  if not is_selected:
    weights = [v for v in variables if names.is_weight(v.op.name)]
    _by_name(variables, checkpoint).require_types()
    _report_ignored(_by_name(weights, checkpoint), checkpoint)


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
  comparison = _compared_weights(tf.global_variables(), checkpoint)
  tf.logging.info('From %s:\n%s', checkpoint.path, comparison)
  sources = dict(comparison.loaded)
  for name, stored_name in comparison.loaded.items():
    for slot in checkpoint.slots:
      if names.slot_owner(slot) == stored_name:
        sources[name + slot.removeprefix(stored_name)] = slot
  return sources


def _compared_weights(
  variables: Iterable[tf.Variable], checkpoint: files.Checkpoint
) -> Comparison:
  """Compares the weights; raises a UserError if they do not fit."""
  weights = [v for v in variables if names.is_weight(v.op.name)]
  comparison = Comparison(specs_of(weights), checkpoint)
  comparison.require_weights()
  comparison.require_no_original()
  comparison.require_types()
  return comparison


def _report_ignored(
  comparison: Comparison, checkpoint: files.Checkpoint
) -> None:
  """Warns of weights that a run does not take from its init_checkpoint."""
  if comparison.left_over:
    tf.logging.warning(
      '%s has weights that this run does not use: %s.',
      checkpoint.path,
      listed(comparison.left_over),
    )
  if comparison.new:
    tf.logging.warning(
      '%s lacks weights, which start from their initial values: %s.',
      checkpoint.path,
      listed(comparison.new),
    )


def _by_name(
  variables: Iterable[tf.Variable], checkpoint: files.Checkpoint
) -> Comparison:
  """Compares variables with those of exactly the same names."""
  specs = specs_of(variables)
  same = {name: name for name in specs if name in checkpoint}
  return Comparison(specs, checkpoint, same)


def specs_of(
  variables: Iterable[tf.Variable],
) -> dict[str, files.VariableSpec]:
  """Returns the type and shape of each variable, by name."""
  specs = {}
  for variable in variables:
    dtype = variable.dtype.base_dtype.name
    shape = tuple(variable.shape.as_list())
    specs[variable.op.name] = files.VariableSpec(dtype, shape)
  return specs


def listed(faults: Sequence[str]) -> str:
  """Joins the first three faults, and says how many others there are."""
  more = [f'and {len(faults) - 3} more'] if len(faults) > 3 else []
  return '; '.join([*faults[:3], *more])


def _section(title: str, lines: Sequence[str]) -> str:
  return '\n  '.join([f'{title} ({len(lines)}):', *lines])
