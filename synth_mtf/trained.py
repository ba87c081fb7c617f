"""A trained model in Python: decodes, scores and shows what it attends to.

model = synth_mtf.load('my_runs/rv_en_mix')
model.predict(['cola sentence: The book was read by.'])
"""

import contextlib
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gin
import mesh_tensorflow as mtf

from synth_mtf.attention import computation
from synth_mtf.attention.examples import Examples, Ids, from_texts
from synth_mtf.attention.file import Array, Attention
from synth_mtf.attention.loaded import Build, Loaded, call
from synth_mtf.attention.opening import open_run
from synth_mtf.checkpoints import folder as checkpoint_folders
from synth_mtf.errors import UserError
from synth_mtf.host import model as models, user_modules
from synth_mtf.results.runs import LAST

_BATCH = 16  # examples at a time; logits of a large vocabulary fill the memory
_LENGTH = 512  # of targets, if neither the run nor the caller limits it
_EOS = 1
_opened_in: set[int] = set()  # the processes that have loaded a model


class TrainedModel(contextlib.AbstractContextManager['TrainedModel']):
  """A model with the weights of a checkpoint, in a session that stays open.

  It computes in float32. Later changes of its folder have no effect. While a
  method runs, gin has the model's configuration; afterwards, it has its
  previous one again.

  Attributes:
    label: the paper's name of the model.
    step: of the checkpoint.
    parameters: how many the model has.
    folder: that of the run.
  """

  def __init__(
    self,
    folder: str,
    step: int | None,
    vocabulary: str | None,
    module_import: str | Sequence[str] = (),
  ) -> None:
    """Loads a model; the arguments are those of `synth_mtf.load`."""
    _check_not_forked()
    if isinstance(module_import, str):
      module_import = [module_import]
    user_modules.import_all(module_import)
    folder, step = _split(str(folder), step)
    opened = open_run(folder, [LAST if step is None else step], vocabulary)
    (checkpoint,) = opened.checkpoints
    self._run = opened.run
    self._inputs = opened.inputs
    self._model = opened.model
    self._open: Loaded | None = Loaded(opened.model, opened.inputs, checkpoint)
    self.label = opened.run.label
    self.step = self._loaded.step
    self.parameters = checkpoint.parameters if checkpoint else 0
    self.folder = opened.run.folder
    # Reads the weights now, since a run that trains removes checkpoints.
    ids = dict.fromkeys(opened.inputs.sides, [[1]])
    self._loaded.run(_log_likelihoods, ids)

  def __repr__(self) -> str:
    return (
      f'<{self.label}, step {self.step:,}, {self.parameters:,} parameters, '
      f'{self.folder}>'
    )

  def __exit__(self, *_: object) -> None:
    self.close()

  def close(self) -> None:
    """Frees the memory; the model cannot be used any more."""
    if self._open is not None:
      self._open.close()
      self._open = None

  @property
  def _loaded(self) -> Loaded:
    """The model in its session.

    Raises:
      UserError: if it cannot compute: it is closed, or this process is a fork.
    """
    _check_not_forked()
    if self._open is None:
      raise UserError(
        f'the model of {self.folder} is closed: load it again, with '
        f'synth_mtf.load({self.folder!r})'
      )
    return self._open

  def predict(
    self,
    inputs: Iterable[str],
    beams: int = 4,
    max_length: int | None = None,
  ) -> list[str]:
    """Returns the target that beam search finds for each input.

    The search is that of the run: a length penalty (alpha) and a prefilter that
    its gin files bind have effect.

    Args:
      inputs: texts such as 'cola sentence: The book was read by.', in a list,
        an array, a pandas Series or a generator.
      beams: of T5's beam search; 1 decodes greedily.
      max_length: the most tokens in a target; default: that of the run, which
        is `Bitransformer.decode.max_decode_length` or the length of inputs.

    Raises:
      UserError: a text is empty or too long, the model has only one stack, or a
        number is below 1.
    """
    if len(self._inputs.sides) == 1:
      raise UserError(
        f'predict needs an encoder and a decoder, and {self._run.name} is a '
        f'model of type {self._inputs.model_type!r}; score and attention '
        'accept it'
      )
    beams = _count('beams', beams)
    if max_length is not None:
      max_length = _count('max_length', max_length)
    texts = _texts('inputs', inputs)
    if not texts:
      return []
    ids = self._examples(inputs=texts).ids
    rows = self._values(ids, _decoded, beams, self._limits(max_length))
    decode = self._inputs.vocabularies['decoder'].decode
    targets = []
    for row in rows:
      tokens = [*row.tolist(), _EOS]
      targets.append(decode(tokens[: tokens.index(_EOS)]))
    return targets

  def score(
    self, inputs: Iterable[str] | None, targets: Iterable[str]
  ) -> list[float]:
    """Returns the log likelihood of each target, EOS included, given its input.

    For a language model, `inputs` is None.

    Raises:
      UserError: a text is empty or too long, or the model has no decoder.
    """
    targets = _texts('targets', targets)
    if inputs is not None:
      inputs = _texts('inputs', inputs)
    if not inputs and not targets:
      return []
    ids = self._examples(
      inputs=() if inputs is None else inputs, targets=targets
    ).ids
    if 'decoder' not in ids:
      raise UserError('score needs a decoder, and a target for each input')
    scores = []
    rows = self._values(ids, _log_likelihoods)
    for row, target in zip(rows, ids['decoder'], strict=True):
      scores.append(float(row[: len(target)].sum(dtype=float)))
    return scores

  def attention(
    self, inputs: Iterable[str], targets: Iterable[str] | None = None
  ) -> Attention:
    """Returns logits and weights by layer and head, as `synth-mtf attention`.

    Without targets, only the encoder is shown. A language model has one side.

    Raises:
      UserError: there is no text, one is empty or too long, or no layer has
        weights.
    """
    inputs = _texts('inputs', inputs)
    if not inputs:
      raise UserError('attention needs at least one text, and inputs is empty')
    examples = self._examples(
      inputs=inputs, targets=() if targets is None else targets
    )
    return computation.attention(self._run, self._loaded, examples)

  def _limits(self, max_length: int | None) -> tuple[tuple[str, Any], ...]:
    """Returns the arguments of the host's decoding that limit the length.

    The host's own default, 1.5 times the longest input of the batch and 10
    more, depends on the other inputs: it is used only if a gin file sets it.
    """
    with self._model.configured():
      bound = gin.get_bindings('Bitransformer.decode')
    length = max_length or bound.get('max_decode_length')
    length = length or self._inputs.most('encoder') or _LENGTH
    limits = {'max_decode_length': length}
    by_input = {'decode_length_multiplier', 'decode_length_constant'}
    if max_length or by_input.isdisjoint(bound):
      limits['decode_length_multiplier'] = 0.0
      limits['decode_length_constant'] = length
    return tuple(limits.items())

  def _examples(self, **texts: Iterable[str]) -> Examples:
    """Tokenizes texts, given as `inputs` and `targets`."""
    lists = {name: _texts(name, given) for name, given in texts.items()}
    return from_texts(self._inputs, lists)

  def _values(
    self, ids: Mapping[str, Ids], build: Build, *options: Any
  ) -> list[Array]:
    """Runs a few examples at a time, of similar length; one row for each."""
    lengths = [
      tuple(map(len, rows)) for rows in zip(*ids.values(), strict=True)
    ]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    values: dict[int, Array] = {}
    for begin in range(0, len(order), _BATCH):
      numbers = order[begin : begin + _BATCH]
      rows = {side: [ids[side][n] for n in numbers] for side in ids}
      _, arrays = self._loaded.run(build, rows, *options)
      values.update(zip(numbers, arrays, strict=False))  # more rows are padding
    return [values[n] for n in range(len(order))]


def _split(folder: str, step: int | None) -> tuple[str, int | None]:
  """Returns the folder and the step of a path such as `m/model.ckpt-40`."""
  parent, its_step = checkpoint_folders.split(folder)
  if its_step is None:
    return folder, step
  if step not in (None, its_step):
    raise UserError(f'{folder} is at step {its_step}, and step = {step}')
  return parent, its_step


def _check_not_forked() -> None:
  """Raises a UserError in a fork of a process that has loaded a model.

  TensorFlow's threads are not forked: a session would wait for them forever.
  """
  _opened_in.add(os.getpid())
  if len(_opened_in) > 1:
    raise UserError(
      'this process was forked from one that has loaded a model, and '
      "TensorFlow cannot compute in it. Start it with multiprocessing's method "
      "'spawn', or load models only after the fork"
    )


def _texts(name: str, given: Any) -> list[str]:
  """Returns texts as a list.

  Raises:
    UserError: if they are anything else, or cannot be encoded.
  """
  if hasattr(given, 'columns'):  # iterates over their names
    columns = ', '.join(map(repr, given.columns))
    raise UserError(
      f'{name} is a table with the columns {columns:.80}: expected a list of '
      'texts, such as one of its columns'
    )
  entries: list[Any] | None = None
  if not isinstance(given, (str, bytes, Mapping)):
    with contextlib.suppress(TypeError):  # an array may have no dimensions
      entries = list(given)
  if entries is None:
    raise UserError(f'{name} are {given!r:.80}: expected a list of texts')
  texts = []
  for number, text in enumerate(entries):
    if not isinstance(text, str):
      raise UserError(f'{name}[{number}] is {text!r:.80}: expected a text')
    try:
      text.encode()
    except UnicodeEncodeError as error:
      raise UserError(
        f'{name}[{number}] is {text!r:.80}, which is not valid Unicode: '
        f'character {error.start} is half of a surrogate pair. Replace it.'
      ) from error
    texts.append(str(text))
  return texts


def _count(name: str, given: Any) -> int:
  """Returns a whole number of at least 1, or raises a UserError."""
  try:
    number = operator.index(given)
  except TypeError:
    number = 0
  if number < 1 or isinstance(given, bool):
    raise UserError(f'{name} = {given!r}: expected a whole number, at least 1')
  return number


def _log_likelihoods(
  model: models.Transformer, rows: Mapping[str, mtf.Tensor], dtype: Any
) -> tuple[None, mtf.Tensor]:
  """Returns the log likelihood of each target token, [batch, length]."""
  logits = mtf.cast(call(model, rows, dtype), 'float32')
  targets = rows['decoder' if 'decoder' in rows else 'encoder']
  vocabulary = logits.shape.dims[-1]
  return None, -mtf.layers.softmax_cross_entropy_with_logits(
    logits, targets, vocabulary
  )


def _decoded(
  model: models.Transformer,
  rows: Mapping[str, mtf.Tensor],
  dtype: Any,
  beams: int,
  limits: tuple[tuple[str, Any], ...],
) -> tuple[None, mtf.Tensor]:
  """Returns decoded ids, [batch, length]; gin may bind other arguments."""
  return None, model.decode(
    rows['encoder'],
    variable_dtype=dtype,
    beam_size=beams,
    temperature=0.0,
    sampling_keep_top_k=-1,
    **dict(limits),
  )
