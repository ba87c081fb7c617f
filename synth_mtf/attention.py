"""SyntheticAttention: the layer that takes the place of T5's SelfAttention."""

import copy
import inspect
from collections.abc import Sequence
from typing import Callable, Optional

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.alignment import NORMALIZATIONS, Dropout
from synth_mtf.errors import ConfigurationError, nearest
from synth_mtf.mixing import MIXINGS, Logits, add, mixture
from synth_mtf.packing import data_is_packed, rows_are_packed
from synth_mtf.positions import PackedIndex, SlicedIndex, StepIndex
from synth_mtf.projections import Projections
from synth_mtf.synthesizers.base import Site, SynthesizingFunction, once
from synth_mtf.synthesizers.dot_product import DotProduct
from synth_mtf.visibility import row_sequence_id, visibility

_INDEXED_BY_SEGMENT = {'position': True, 'row': False}


@gin.configurable(module='synth_mtf')
class SyntheticAttention(transformer_layers.SelfAttention):
  """Multi-head self-attention whose alignment is synthesized.

      B = sum_i alpha_i S_i(X) + relative position bias
      Y = softmax(B) G(X)

  (arXiv 2005.00743, eq. 2 and 8), with S_i the synthesizing functions,
  alpha_i their weights in a mixture, G(X) the values, the softmax over
  `memory_length` restricted to what is visible, and an output projection. With
  the default `[DotProduct]` it computes what SelfAttention computes, from the
  same variables.

  Shapes: X and the result are [batch..., length, d_model]; B is a subset of
  [batch..., heads, length, memory_length].
  """

  def __init__(
    self,
    synthesizers: Sequence[Callable[[], SynthesizingFunction]] = (DotProduct,),
    mixing: str = 'softmax',
    index_by: str = 'position',
    normalize: Optional[str] = 'softmax',
    packed: Optional[bool] = None,
    **kwargs,
  ):
    """Creates a SyntheticAttention layer.

    Args:
      synthesizers: the functions S_i, as classes or as callables without
        arguments (`@Random` in gin, `functools.partial(Random,
        max_length=128)`); each layer makes its own.
      mixing: how alpha is found. 'softmax': learned for each head, summing to
        1 (the paper's); 'layer_softmax': learned for each layer; 'sum': all 1.
      index_by: which row and column of a table a token reads. 'position': its
        position inside its own sequence; 'row': its index in a packed row, as
        the original code does.
      normalize: 'softmax', or None for B G(X), the MLP-Mixer form.
      packed: whether a row may hold several sequences in training and
        evaluation. Default: what gin says of the data, that is
        `mesh_train_dataset_fn.pack` or `mesh_eval_dataset_fn.pack`, and True
        where it says nothing (which is right for unpacked rows too, but slow).
      **kwargs: those of `transformer_layers.SelfAttention`, bound in gin as
        `SelfAttention.*`.

    Raises:
      ConfigurationError: if a setting is unknown, does not fit, or is one of
        SelfAttention's that this layer does not support.
    """
    _check_names(kwargs)
    super().__init__(**kwargs)
    self.synthesizers = _make_functions(synthesizers)
    self._alphas = _choose('mixing', mixing, MIXINGS)
    self._average = _choose('normalize', normalize, NORMALIZATIONS)
    self._by_segment = _choose('index_by', index_by, _INDEXED_BY_SEGMENT)
    self.packed = data_is_packed() if packed is None else packed
    self._check_host_arguments()

  def call(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    losses: Optional[list] = None,
  ) -> mtf.Tensor:
    """Calls the layer.

    Args:
      context: the host's Context; all of its modes are handled.
      x: [batch..., length, d_model], or [batch..., d_model] in incremental
        decoding; zero at padding.
      losses: passed on to `layer_output_from_attention_output`.

    Returns:
      A tensor of the shape of x.
    """
    site = self._site(context, x)
    y = self._average(
      site,
      self._logits(site),
      visibility(site, self._is_packed(context)),
      site.values,
      self._dropout(context),
      self._z_loss(context),
    )
    projected = site.projections.compute_output(
      y, output_shape=self.expected_attention_output_shape(x, site.projections)
    )
    return self.layer_output_from_attention_output(context, projected, losses)

  def _logits(self, site: Site) -> Logits:
    """B: the mixture and the relative position bias."""
    terms = mixture(site, self.synthesizers, self._alphas)
    return add(site, terms + self._relative_position_bias(site))

  def _relative_position_bias(self, site: Site) -> list[mtf.Tensor]:
    """The host's own bias; 'bias_shared' is made once for all layers."""
    if self.relative_attention_type is None:
      return []
    if self.relative_attention_type == 'bias_shared':
      name = f'relative position bias of {site.heads}'
      return [once(site.context, name, lambda: self._make_bias(site))]
    return [self._make_bias(site)]

  def _make_bias(self, site):
    """The host's own bias, without the masks that it adds to it."""
    context = copy.copy(site.context)
    context.read_priority = context.sequence_id = context.subsequence_id = None
    if context.mode == 'incremental':
      keys = mtf.range(context.mesh, site.memory_length, tf.int32)
    else:
      keys = self.rename_length_to_memory_length(context.position, context)
    q = site.queries if self.relative_attention_type == 'contextual' else None
    bias = self.compute_bias(context, keys, site.x, site.heads, q)
    return mtf.cast(bias, site.logits_dtype)

  def _site(self, context, x):
    return Site(
      context=context,
      x=x,
      projections=self.make_params(context),
      index=self._index(context),
      kv_dim=self.kv_dim,
      logits_dtype=(
        tf.float32
        if self.attention_kwargs.get('float32_logits', True)
        else context.activation_dtype
      ),
    )

  def make_params(self, context: transformer.Context) -> Projections:
    """The layer's q, k, v and o; each is made when it is first used."""
    return Projections.of_layer(self, context)

  def _index(self, context):
    dims = context.length_dim, self.memory_length(context)
    if context.mode == 'incremental':
      return StepIndex(*dims, context.position)
    if self._by_segment and self._is_packed(context):
      return PackedIndex(*dims, row_sequence_id(context))
    return SlicedIndex(context.mesh, *dims)

  def _is_packed(self, context):
    return rows_are_packed(context, self.packed)

  def _dropout(self, context):
    broadcast = self.attention_kwargs.get('dropout_broadcast_dims')
    return Dropout(
      self.dropout_rate if context.train else 0.0,
      [context.length_dim] if broadcast is None else broadcast,
    )

  def _z_loss(self, context):
    """The host's auxiliary loss on log Z, if there is to be one."""
    if self.z_loss_coeff is None or not context.train:
      return None

    def add_loss(log_z):
      loss = mtf.square(log_z)
      if isinstance(context.nonpadding, mtf.Tensor):
        loss *= mtf.cast(context.nonpadding, log_z.dtype)
      loss = mtf.reduce_mean(loss) / (context.num_microbatches or 1)
      mtf.scalar_summary('attention_z_loss', loss)
      context.losses.append(
        mtf.cast(loss * self.z_loss_coeff, context.activation_dtype)
      )

    return add_loss

  def _check_host_arguments(self):
    """Refuses what SelfAttention takes and this layer does not support."""
    unknown = sorted(
      set(self.attention_kwargs) - {'dropout_broadcast_dims', 'float32_logits'}
    )
    faults = [f'attention_kwargs[{name!r}]' for name in unknown]
    if self.attention_func is not None:
      faults.append(f'attention_func = {self.attention_func!r}')
    faults.extend(
      name
      for name in (
        'use_hyperprompt',
        'hyperprompt_length_encoder',
        'hyperprompt_length_decoder',
      )
      if getattr(self, name)
    )
    if faults:
      raise ConfigurationError(
        'SyntheticAttention does not support SelfAttention.'
        + ', SelfAttention.'.join(faults)
        + '; remove the binding'
      )
    if self.num_heads < 1 or self.num_memory_heads < 0:
      raise ConfigurationError(
        f'SelfAttention.num_heads = {self.num_heads}, num_memory_heads = '
        f'{self.num_memory_heads}: expected at least 1 and 0'
      )
    if self.num_memory_heads and self.num_heads % self.num_memory_heads:
      raise ConfigurationError(
        f'SelfAttention.num_heads = {self.num_heads} is not divisible by '
        f'SelfAttention.num_memory_heads = {self.num_memory_heads}'
      )
    types = (None, 'bias', 'bias_shared', 'contextual')
    _choose(
      'relative_attention_type',
      self.relative_attention_type,
      {name: name for name in types},
    )


def _check_names(kwargs):
  """Refuses a mistyped argument, which gin lets through to a **kwargs."""
  known = [
    name
    for cls in (SyntheticAttention, transformer_layers.SelfAttention)
    for name in inspect.signature(cls.__init__).parameters
    if name not in ('self', 'kwargs')
  ]
  for name in kwargs:
    if name not in known:
      raise ConfigurationError(
        f'SyntheticAttention.{name}: there is no such argument'
        + nearest(name, known)
      )


def _make_functions(makers):
  """Calls each maker; an error names what is no maker."""
  try:
    makers = list(makers)
  except TypeError:
    makers = [makers]
  faults = [m for m in makers if not callable(m)]
  if not makers or faults:
    raise ConfigurationError(
      f'SyntheticAttention.synthesizers = {faults or makers}: expected a list '
      'of at least one synthesizing function, as in [@Random, @DotProduct]'
    )
  functions = [make() for make in makers]
  faults = [f for f in functions if not isinstance(f, SynthesizingFunction)]
  if faults:
    raise ConfigurationError(
      f'SyntheticAttention.synthesizers made {faults}: expected instances of '
      'SynthesizingFunction'
    )
  return functions


def _choose(argument, name, options):
  """`options[name]`; an error lists the options and offers the nearest."""
  if name in options:
    return options[name]
  raise ConfigurationError(
    f'SyntheticAttention.{argument} = {name!r}: expected one of '
    f'{list(options)}' + nearest(name, options)
  )
