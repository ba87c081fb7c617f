"""The settings of a run, read from gin in one place: `RunConfig`."""

import copy
import inspect
from typing import Any

import gin
import mesh_tensorflow as mtf
import seqio
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError

FEATURES = ('inputs', 'targets')


class RunConfig:
  """The arguments of the host's `utils.run`, and values derived from them.

  Each is an attribute of its name. What gin binds is resolved when it is first
  read, because a reference such as `@utils.tpu_mesh_shape()` is then called.
  """

  def __init__(self, **given: Any) -> None:
    """Takes the bindings of gin; `given` are arguments that gin does not bind.

    Args:
      **given: such as `model_dir`.
    """
    declared = inspect.signature(utils.run).parameters
    self._bound = gin.get_bindings(utils.run, resolve_references=False)
    for name, parameter in declared.items():
      if name not in self._bound:
        setattr(self, name, parameter.default)
    vars(self).update(given)

  def __getattr__(self, name: str) -> Any:
    """Resolves a bound argument; Python calls this for missing attributes."""
    bound = vars(self).get('_bound', {})
    if name not in bound:
      raise AttributeError(f'{type(self).__name__} has no attribute {name!r}')
    value = copy.deepcopy(bound[name])  # gin resolves references in the copy
    setattr(self, name, value)
    return value

  def resolve(self) -> None:
    """Resolves all arguments, so that errors in them are raised now."""
    for name in self._bound:
      getattr(self, name)

  @property
  def lengths(self) -> dict[str, int] | None:
    """The length of each feature; None if the examples determine it.

    Raises a UserError for another type, as a foreign configuration may have.
    """
    lengths = lengths_of(self.sequence_length)
    is_given = lengths is not None and lengths is not gin.REQUIRED
    if is_given and not are_lengths(lengths):
      raise UserError(
        f'utils.run.sequence_length = {lengths!r:.80}; expected lengths such '
        "as {'inputs': 512, 'targets': 114}"
      )
    return lengths

  @property
  def names_mesh(self) -> bool:
    """Whether a mesh is set, and not only T5's default without its topology."""
    if 'mesh_shape' not in self._bound:
      return False
    reference = getattr(self._bound['mesh_shape'], 'scoped_selector', '')
    return not reference.endswith('tpu_mesh_shape') or (
      'tpu_topology' in _of_tpu_mesh()
    )

  @property
  def model_parallelism(self) -> Any:
    """How many cores of a slice of TPUs share one copy of the model."""
    return _of_tpu_mesh().get('model_parallelism', 1)

  @property
  def mesh(self) -> mtf.Shape:
    return mtf.convert_to_shape(self.mesh_shape)

  @property
  def layout(self) -> mtf.LayoutRules:
    """The layout rules; none if they are not set."""
    rules = '' if self.layout_rules is gin.REQUIRED else self.layout_rules
    return mtf.convert_to_layout_rules(rules)

  @property
  def examples(self) -> int:
    """The global batch size in examples."""
    if isinstance(self.batch_size, int):
      return self.batch_size
    try:
      return utils.compute_batch_size(
        self.lengths, self.mesh, self.layout, self.batch_size
      )
    except ValueError as error:
      raise UserError(
        f'utils.run.batch_size = {tuple(self.batch_size)}: {error}; the number '
        'of tokens must be a multiple of the longest sequence length'
      ) from error

  @property
  def vocabularies(self) -> tuple[seqio.Vocabulary, seqio.Vocabulary]:
    """The vocabularies of inputs and targets.

    T5's main binds `utils.run.vocabulary` itself, so the configuration that a
    run leaves does not; it then follows from the name of the task.
    """
    vocabulary = self.vocabulary
    if vocabulary is None:
      from t5.models import mesh_transformer  # takes seconds to import

      vocabulary = mesh_transformer.get_vocabulary()
    return both_sides(vocabulary)


def _of_tpu_mesh() -> dict[str, Any]:
  """Returns what gin binds of T5's mesh for a slice of TPUs."""
  return gin.get_bindings(utils.tpu_mesh_shape, resolve_references=False)


def lengths_of(sequence_length: Any) -> Any:
  """Returns lengths by feature; a single number is the length of both."""
  if isinstance(sequence_length, int):
    return dict.fromkeys(FEATURES, sequence_length)
  return sequence_length


def are_lengths(value: Any) -> bool:
  """Whether a value has lengths by feature."""
  return isinstance(value, dict) and all(
    type(length) is int and length > 0 for length in value.values()
  )


def both_sides(
  vocabulary: Any,
) -> tuple[seqio.Vocabulary, seqio.Vocabulary]:
  """Returns the vocabularies of inputs and targets, which may be one."""
  return (
    utils.inputs_vocabulary(vocabulary),
    utils.targets_vocabulary(vocabulary),
  )
