"""The configuration of a run of T5's main."""

import inspect
import types
from typing import Optional

import gin
import mesh_tensorflow as mtf
import seqio
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError, nearest
from synth_mtf.run import values


class RunConfig(types.SimpleNamespace):
  """The arguments of `utils.run`, and values derived from them."""

  @property
  def lengths(self) -> Optional[dict[str, int]]:
    """The length of each feature; None if the examples determine it."""
    if isinstance(self.sequence_length, int):
      return dict.fromkeys(('inputs', 'targets'), self.sequence_length)
    return self.sequence_length

  @property
  def mesh(self) -> mtf.Shape:
    return mtf.convert_to_shape(self.mesh_shape)

  @property
  def layout(self) -> mtf.LayoutRules:
    """The rules that split tensor dimensions over the mesh."""
    return mtf.convert_to_layout_rules(self.layout_rules)

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
        f'utils.run.batch_size = {tuple(self.batch_size)}: {error}, the number '
        'of tokens by the length of a sequence'
      ) from error

  @property
  def vocabularies(self) -> tuple[seqio.Vocabulary, seqio.Vocabulary]:
    return (
      utils.inputs_vocabulary(self.vocabulary),
      utils.targets_vocabulary(self.vocabulary),
    )


def read(model_dir: str, tpu: Optional[str] = None) -> RunConfig:
  """Returns the run that gin describes, after checking all gin values."""
  values.check()
  parameters = inspect.signature(utils.run).parameters.values()
  found = {parameter.name: parameter.default for parameter in parameters}
  found.update(gin.get_bindings(utils.run), model_dir=model_dir, tpu=tpu)
  run = RunConfig(**found)
  if run.lengths is None and run.mode in ('eval', 'score_eval'):
    return run  # the examples determine the lengths
  lengths = run.lengths or {}
  sides = ('inputs', 'targets')[not run.model_type.startswith('bi') :]
  missing = [side for side in sides if side not in lengths]
  if missing:
    raise UserError(
      f'utils.run.sequence_length = {run.lengths!r}: mode {run.mode!r} needs '
      f'the length of {" and ".join(map(repr, missing))}'
      + ''.join(nearest(side, lengths) for side in missing)
      + '. Give --gin_param="utils.run.sequence_length = '
      "{'inputs': 512, 'targets': 114}\"."
    )
  return run
