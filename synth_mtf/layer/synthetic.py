"""SyntheticLayer, the base class of layers with a synthesized alignment."""

import abc
import collections
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, Term, add
from synth_mtf.core.visibility import Visibility
from synth_mtf.errors import ConfigurationError
from synth_mtf.layer import refusals
from synth_mtf.layer.base import AttentionLayer
from synth_mtf.layer.refusals import check_option
from synth_mtf.layer.weighted_sum import softmax_average, unnormalized_average
from synth_mtf.synthesizers.base import SynthesizingFunction
from synth_mtf.synthesizers.dot_product import DotProduct

# How alpha is chosen: learned per head, as in the paper; learned per layer;
# learned per layer with one score fixed at 0, as in mesh_tensorflow; all 1.
MIXINGS = ('softmax', 'layer_softmax', 'layer_sigmoid', 'sum')

# Receives a layer, its call, B, what is visible, and alpha of each function.
Recorder: TypeAlias = Callable[
  [
    'SyntheticLayer',
    LayerCall,
    Logits,
    Visibility,
    Sequence[mtf.Tensor | None],
  ],
  None,
]
_recorders: ContextVar[tuple[Recorder, ...]] = ContextVar(
  'recorders', default=()
)


@contextmanager
def calls_passed_to(recorder: Recorder) -> Iterator[None]:
  """Passes each layer call in this context to a recorder.

  Other threads, which may build other graphs, are not affected.
  """
  token = _recorders.set((*_recorders.get(), recorder))
  try:
    yield
  finally:
    _recorders.reset(token)


class SyntheticLayer(AttentionLayer):
  """Multi-head attention with a synthesized alignment.

      B = sum_i alpha_i S_i(X) + relative position bias
      Y = softmax(B) G(M)

  (arXiv 2005.00743, eq. 3 and 8). S_i are the synthesizing functions, alpha_i
  their weights in a mixture, and G(M) the values of the memory M. The softmax
  is over the visible part of `memory_length`; an output projection follows. A
  subclass defines M and the host's relative position bias.

  Shapes: X and the result are [batch..., length, d_model], M is [batch...,
  memory_length, d_model]; B has a subset of [batch..., heads, length,
  memory_length].
  """

  def __init__(
    self,
    synthesizers: Sequence[Callable[[], SynthesizingFunction]] = (DotProduct,),
    mixing: str = 'softmax',
    index_by: str = 'position',
    normalize: str | None = 'softmax',
    value_bias: bool = False,
    **kwargs: Any,
  ) -> None:
    """Creates a layer.

    Args:
      synthesizers: the functions S_i, as classes or as callables without
        arguments (`@Random` in gin, `functools.partial(Random,
        max_length=128)`); each layer makes its own.
      mixing: how alpha is chosen. 'softmax': learned per head, summing to 1
        (as in the paper); 'layer_softmax': learned per layer; 'layer_sigmoid':
        the same with the last score fixed at 0, so that two functions have
        sigmoid(alpha) and 1 - sigmoid(alpha); 'sum': all 1.
      index_by: which row and column of a table a token reads. 'position': its
        position in its own sequence; 'row': its index in a packed row, as in
        the original code.
      normalize: 'softmax', or None for B G(X), the MLP-Mixer form, which has no
        log Z and no loss on it.
      value_bias: whether values have a bias, G(M) = M W3 + b3, with b3 [heads,
        d_kv], initially 0. T5 has none.
      **kwargs: arguments of `AttentionLayer` and of
        `transformer_layers.SelfAttention`, bound in gin as `SelfAttention.*`.

    Raises:
      ConfigurationError: if a setting is invalid or not supported.
    """
    super().__init__(**kwargs)
    owner = type(self).__name__
    check_option(owner, 'mixing', mixing, MIXINGS)
    check_option(owner, 'index_by', index_by, ['position', 'row'])
    check_option(owner, 'normalize', normalize, ['softmax', None])
    self.synthesizers = self.make_functions(synthesizers)
    self.mixing = mixing
    self.index_by = index_by
    self.normalize = normalize
    self.value_bias = value_bias
    self.frozen = _frozen_variables(self.synthesizers)
    refusals.check_projections(self)

  @property
  def letters(self) -> str:
    """The letters of the functions, as in "R+V"."""
    return '+'.join(function.letter for function in self.synthesizers)

  def attend(self, call: LayerCall) -> mtf.Tensor:
    functions = self.synthesizers
    alphas = _make_alphas(call, len(functions), self.mixing)
    terms: list[Term] = []
    for scope, function, alpha in zip(
      scopes(functions), functions, alphas, strict=True
    ):
      with tf.variable_scope(scope):
        terms.append(function.logits(call, alpha))  # alpha_i S_i(X)
    logits = add(call, terms + self.relative_position_bias(call))
    visibility = self.visibility(call)
    for record in _recorders.get():
      record(self, call, logits, visibility, alphas)
    dropout = self.weight_dropout(call.context)
    if self.normalize is None:
      return unnormalized_average(
        call, logits, visibility, call.values, dropout
      )
    return softmax_average(
      call,
      logits,
      visibility,
      call.values,
      dropout,
      self.z_loss(call.context),
    )

  @abc.abstractmethod
  def relative_position_bias(self, call: LayerCall) -> list[mtf.Tensor]:
    """The host's own bias, or an empty list."""

  def make_functions(self, makers: Any) -> list[SynthesizingFunction]:
    """Calls each maker; `makers` is whatever value gin binds."""
    makers = makers if isinstance(makers, Sequence) else [makers]
    functions: list[Any] = [
      make() if callable(make) else None for make in makers
    ]
    are_functions = [isinstance(f, SynthesizingFunction) for f in functions]
    if not functions or not all(are_functions):
      raise ConfigurationError(
        f'{type(self).__name__}.synthesizers = {makers}: expected a list of at '
        'least one synthesizing function, as in [@Random, @DotProduct]'
      )
    return functions


def _frozen_variables(
  functions: Sequence[SynthesizingFunction],
) -> frozenset[str]:
  """Returns the layer's variables that keep their initial values."""
  dot_products = [f for f in functions if isinstance(f, DotProduct)]
  if all(function.trainable for function in dot_products):
    return frozenset()
  if any(function.trainable for function in dot_products):
    raise ConfigurationError(
      'SyntheticAttention.synthesizers has dot products with and without '
      'DotProduct.trainable, but a layer has one q and one k; set it for all'
    )
  return frozenset(DotProduct.layer_variables)


def _make_alphas(
  call: LayerCall, count: int, mixing: str
) -> list[mtf.Tensor | None]:
  """Makes alpha_i (eq. 8, 9) of each function, [heads] or []; None means 1.

  These are the softmax over functions of the variable `alpha`, initially 0. If
  it lacks the last function, the score of that function is 0.
  """
  if count == 1 or mixing == 'sum':
    return [None] * count
  context = call.context
  learned = count - 1 if mixing == 'layer_sigmoid' else count
  functions = mtf.Dimension('synthesizers', learned)
  heads = call.heads if mixing == 'softmax' else []
  types = context.variable_dtype
  alpha = mtf.get_variable(
    context.mesh,
    'alpha',
    mtf.Shape([*context.model.ensemble_dims, functions, *heads]),
    initializer=tf.zeros_initializer(),
    dtype=mtf.VariableDType(types.master_dtype, types.slice_dtype, tf.float32),
  )
  if learned < count:
    alpha = mtf.pad(alpha, [0, 1], functions.name)
  functions = mtf.Dimension(functions.name, count)
  return mtf.unstack(mtf.softmax(alpha, functions), functions)


def scopes(functions: Sequence[SynthesizingFunction]) -> list[str]:
  """Returns a variable scope for each function: random, random_1, dense..."""
  names: list[str] = []
  counts: collections.Counter[str] = collections.Counter()
  for function in functions:
    name = function.scope
    number = counts[name]
    counts[name] += 1
    names.append(f'{name}_{number}' if number else name)
  return names
