"""How the variables of a model compare with those of a checkpoint.

The one comparison that everything rests on: what a run resumes from must agree
in everything (`message`), what it starts from must hold all weights that cannot
start afresh (`insist_on_weights`), and what a conversion does is reported
(`str(comparison)`).
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Optional

import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import names
from synth_mtf.checkpoints.files import Checkpoint, Kind
from synth_mtf.errors import UserError

_SHOWN = 5
_SHOWN_OF_RESUMED = 3


@dataclasses.dataclass(frozen=True)
class Comparison:
  """A model's variables beside a checkpoint's.

  Attributes:
    path: the path of the checkpoint.
    loaded: variables of the model that are in the checkpoint, and their names
      there.
    new: those that are not.
    left_over: variables of the checkpoint that the model does not have.
    other: loaded variables whose type or shape differs, as (in the model, in
      the checkpoint).
  """

  path: str
  loaded: Mapping[str, str]
  new: Collection[str]
  left_over: Collection[str]
  other: Mapping[str, tuple[Kind, Kind]]

  def __str__(self) -> str:
    return '\n'.join(
      f'{title} ({len(lines)}):' + ''.join(f'\n  {n}' for n in sorted(lines))
      for title, lines in (
        ('loaded', [_arrow(*pair) for pair in self.loaded.items()]),
        ('new', self.new),
        ('left over', self.left_over),
      )
    )

  def _left_over_outside(self, scope: Callable[[str], str]) -> list[str]:
    """Weights of the checkpoint in whose scope the model has none.

    An extra variable in a scope that a model has is no sign of another model:
    early T5 checkpoints have a relative_attention_bias in EncDecAttention,
    which T5 does not use.
    """
    scopes = {scope(n) for n in (*self.loaded, *self.new)}
    return [n for n in self.left_over if scope(n) not in scopes]

  def message(self) -> str:
    """Says how a checkpoint to resume from differs; '' if it fits."""
    found = [
      *sorted(
        f'{name} is {there} in the checkpoint, {here} in the model'
        for name, (here, there) in self.other.items()
      ),
      *sorted(f'{name} is not in it' for name in self.new),
      # The host leaves these out without a word: R, a larger model's layers.
      *sorted(
        f'{name} is not in the model'
        for name in self._left_over_outside(names.scope)
      ),
    ]
    if not found:
      return ''
    config = os.path.join(os.path.dirname(self.path), 'operative_config.gin')
    return (
      f'the checkpoint {self.path} was made by another model: '
      f'{_first(found, _SHOWN_OF_RESUMED)}. Use the variant, size, lengths, '
      'vocabulary and master_dtype it was trained with '
      f'({config}), or another --model_dir.'
    )

  def insist_on_weights(self) -> None:
    """Refuses a checkpoint that lacks what cannot start afresh.

    Raises:
      UserError: weights that belong to no synthesizing function are missing,
        layers are left over, or nothing is loaded.
    """
    missing = [n for n in self.new if not self._may_be_new(n)]
    faults = [
      f'{len(variables)} {what} ({_first(sorted(variables), _SHOWN)})'
      for what, variables in (
        ('variables of the model are not in it', missing),
        (
          'of its variables belong to layers that the model lacks',
          self._left_over_outside(names.layer),
        ),
      )
      if variables
    ]
    if faults or not self.loaded:
      raise UserError(
        f'the checkpoint {self.path} does not fit this model: '
        + ('; '.join(faults) or 'it has none of its variables')
        + '. Use the size it was trained with (its operative_config.gin), or '
        '`synth-mtf checkpoint inspect` to see what it holds.'
      )

  def insist_on_kinds(self) -> None:
    """Refuses a checkpoint whose variables have other shapes or types.

    Raises:
      UserError: naming the first ones.
    """
    if not self.other:
      return
    faults = sorted(
      f'{name} is {here} in the model, {there} in it'
      for name, (here, there) in self.other.items()
    )
    raise UserError(
      f'the checkpoint {self.path} has other shapes or types: '
      f'{_first(faults, _SHOWN)}. `synth-mtf checkpoint convert` makes one '
      'that fits (--resize for another max_length); types follow from '
      'utils.get_variable_dtype.master_dtype.'
    )

  def _may_be_new(self, name: str) -> bool:
    """Whether a variable may be missing, given that its layer is there."""
    parts = names.attention_name(name)
    if not parts:
      return False
    # A layer of any class has its output projection.
    has_layer = any(
      there in names.candidates(f'{parts.scope}{parts.layer}/o')
      for there in self.loaded.values()
    )
    return has_layer and names.may_start_anew(parts.rest)


def of_graph(graph: tf.Graph, checkpoint: Checkpoint) -> Comparison:
  """Compares what a graph would restore by name, slots and step included."""
  kinds = kinds_of(graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES))
  return compare(kinds, checkpoint, {n: n for n in kinds if n in checkpoint})


def of_weights(
  variables: Iterable[tf.Variable], checkpoint: Checkpoint
) -> Comparison:
  """Compares a model's weights, found by name and by their layer's class."""
  kinds = {n: k for n, k in kinds_of(variables).items() if names.is_weight(n)}
  sources = {name: source(name, checkpoint) for name in kinds}
  return compare(kinds, checkpoint, {n: s for n, s in sources.items() if s})


def compare(
  kinds: Mapping[str, Kind], checkpoint: Checkpoint, loaded: Mapping[str, str]
) -> Comparison:
  """Compares variables with a checkpoint.

  Args:
    kinds: type and shape of the model's variables, by name.
    checkpoint: what they are compared with.
    loaded: those that come from the checkpoint, and their names there.
  """
  used = set(loaded.values())
  return Comparison(
    path=checkpoint.path,
    loaded=loaded,
    new=[n for n in kinds if n not in loaded],
    left_over=[
      n for n in checkpoint.kinds if n not in used and names.is_weight(n)
    ],
    other={
      name: (kinds[name], checkpoint.kinds[there])
      for name, there in loaded.items()
      if kinds[name] != checkpoint.kinds[there]
    },
  )


def kinds_of(variables: Iterable[tf.Variable]) -> dict[str, Kind]:
  """Type and shape of each variable, by name."""
  return {v.op.name: Kind(v.dtype, v.shape.as_list()) for v in variables}


def source(name: str, checkpoint: Checkpoint) -> Optional[str]:
  """The name under which a checkpoint holds a variable, or None."""
  found = [c for c in names.candidates(name) if c in checkpoint]
  return found[0] if found else None


def _arrow(name: str, there: str) -> str:
  return name if name == there else f'{name} <- {there}'


def _first(texts: Collection[str], count: int) -> str:
  shown = '; '.join(list(texts)[:count])
  more = len(texts) - count
  return f'{shown}; and {more} more' if more > 0 else shown
