"""Compares the variables of a model with those of a checkpoint.

A run resumes only from a checkpoint that agrees in everything (`require_same`),
and starts only from one that has all weights that cannot start from initial
values (`require_weights`).
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Optional

import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import names
from synth_mtf.checkpoints.files import Checkpoint, Kind, kind
from synth_mtf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Comparison:
  """A model's variables beside a checkpoint's.

  Attributes:
    path: the path of the checkpoint.
    loaded: variables of the model that are in the checkpoint, and their names
      there.
    new: variables of the model that are not in the checkpoint.
    left_over: weights of the checkpoint that the model does not have.
    different: loaded variables whose type or shape differs, as (in the model,
      in the checkpoint).
  """

  path: str
  loaded: Mapping[str, str]
  new: Collection[str]
  left_over: Collection[str]
  different: Mapping[str, tuple[Kind, Kind]]

  def __str__(self) -> str:
    loaded = [n if n == o else f'{n} <- {o}' for n, o in self.loaded.items()]
    return '\n'.join(
      f'{title} ({len(lines)}):' + ''.join(f'\n  {n}' for n in sorted(lines))
      for title, lines in (
        ('loaded', loaded),
        ('new', self.new),
        ('left over', self.left_over),
      )
    )

  def require_same(self) -> None:
    """Refuses (UserError) a checkpoint that a run cannot resume from."""
    faults = [
      *self._differences(),
      *sorted(f'{name} is not in it' for name in self.new),
      # The host skips these in silence: R, or the layers of a larger model.
      *(f'{name} is not in the model' for name in self._outside(names.scope)),
    ]
    if faults:
      folder = os.path.dirname(self.path)
      raise UserError(
        f'the checkpoint {self.path} was made by another model: '
        f'{_first(faults, 3)}. Use the variant, size, lengths, vocabulary and '
        'master_dtype it was trained with '
        f'({os.path.join(folder, "operative_config.gin")}), or another '
        '--model_dir.'
      )

  def require_weights(self) -> None:
    """Refuses (UserError) a checkpoint that a run cannot start from.

    It lacks a weight that belongs to no synthesizing function, has a layer that
    the model lacks, or has nothing to load.
    """
    missing = sorted(n for n in self.new if not self._may_be_new(n))
    extra = sorted(self._outside(names.layer))
    faults = []
    if missing:
      faults.append(
        f"it lacks {len(missing)} of the model's variables ({_first(missing)})"
      )
    if extra:
      faults.append(
        f'{len(extra)} of its variables belong to layers that the model lacks '
        f'({_first(extra)})'
      )
    if faults or not self.loaded:
      raise UserError(
        f'the checkpoint {self.path} does not fit this model: '
        f'{"; ".join(faults) or "they have no variable in common"}. Use the '
        'size it was trained with (see its operative_config.gin); `synth-mtf '
        'checkpoint inspect` lists what it holds.'
      )

  def require_kinds(self) -> None:
    """Refuses (UserError) a checkpoint of other shapes or types."""
    if self.different:
      raise UserError(
        f'the checkpoint {self.path} has other shapes or types: '
        f'{_first(self._differences())}. `synth-mtf checkpoint convert` makes '
        'one that fits (--resize for another max_length); types follow '
        'utils.get_variable_dtype.master_dtype.'
      )

  def _differences(self) -> list[str]:
    return sorted(
      f'{name} is {there} in the checkpoint, {here} in the model'
      for name, (here, there) in self.different.items()
    )

  def _outside(self, scope: Callable[[str], str]) -> list[str]:
    """Weights of the checkpoint in whose scope the model has none.

    One more variable in a scope that the model has is no sign of another model:
    early T5 checkpoints have a relative_attention_bias in EncDecAttention,
    which T5 does not use.
    """
    scopes = {scope(n) for n in (*self.loaded, *self.new)}
    return [n for n in self.left_over if scope(n) not in scopes]

  def _may_be_new(self, name: str) -> bool:
    """Whether a variable may be missing, given that its layer is there."""
    parts = names.attention_name(name)
    if not parts or not names.may_start_anew(parts.rest):
      return False
    # A layer of any class has its output projection.
    output = names.candidates(f'{parts.scope}{parts.layer}/o')
    return not set(output).isdisjoint(self.loaded.values())


def compare(
  kinds: Mapping[str, Kind],
  checkpoint: Checkpoint,
  loaded: Optional[Mapping[str, str]] = None,
) -> Comparison:
  """Compares variables with a checkpoint.

  Args:
    kinds: type and shape of the model's variables, by name.
    checkpoint: what they are compared with.
    loaded: the variables that come from the checkpoint, and their names there.
      Default: those of the same name, whatever the class of their attention
      layer.
  """
  if loaded is None:
    loaded = {
      name: there
      for name in kinds
      for there in [c for c in names.candidates(name) if c in checkpoint][:1]
    }
  return Comparison(
    path=checkpoint.path,
    loaded=loaded,
    new=[n for n in kinds if n not in loaded],
    left_over=sorted(set(checkpoint.weights) - set(loaded.values())),
    different={
      name: (kinds[name], checkpoint.kinds[there])
      for name, there in loaded.items()
      if kinds[name] != checkpoint.kinds[there]
    },
  )


def require_same(
  variables: Iterable[tf.Variable], checkpoint: Checkpoint
) -> None:
  """Refuses (UserError) a checkpoint that variables cannot be restored from."""
  kinds = kinds_of(variables)
  same = {n: n for n in kinds if n in checkpoint}
  compare(kinds, checkpoint, same).require_same()


def kinds_of(variables: Iterable[tf.Variable]) -> dict[str, Kind]:
  """Type and shape of each variable, by name."""
  return {v.op.name: kind(v.dtype, v.shape.as_list()) for v in variables}


def _first(texts: Sequence[str], count: int = 5) -> str:
  more = len(texts) - count
  return '; '.join(texts[:count]) + (f'; and {more} more' if more > 0 else '')
