"""The parts of benchmarks/claims.py: their models, tasks and metrics."""

import dataclasses
import re
from collections.abc import Sequence

from benchmarks.claims_tasks import (
  ANSWERED,
  CLASSIFIED,
  COPIED,
  LOOKED_UP,
  RECALLED,
)
from synth_mtf.results import paper

ACCURACY = 'token_accuracy'
PERPLEXITY = 'neg_log_perplexity'
TEXT = 'synth_text_span_corruption'
TRANSLATION = 'synth_wmt14_ende_v003'


@dataclasses.dataclass(frozen=True)
class Model:
  """A model: one row of a table."""

  name: str
  variants: Sequence[str]  # files of gin/variants
  params: Sequence[str] = ()  # gin bindings
  lengths: tuple[int, int] | None = None  # overrides the part's

  @property
  def folder(self) -> str:
    return re.sub(r'[^\w+]+', '_', self.name)


@dataclasses.dataclass(frozen=True)
class Part:
  """Models to compare, each trained and evaluated on each task."""

  claim: str  # the heading of the results
  tasks: Sequence[str]
  metric: str  # as the host names it
  steps: int
  models: Sequence[Model]
  lengths: tuple[int, int] = (128, 29)  # of inputs and targets
  params: Sequence[str] = ()  # gin bindings of all models
  # Of the host: 'bitransformer' (encoder and decoder), 'lm' (decoder only) or
  # 'aligned' (encoder only).
  model_type: str = 'bitransformer'
  held_out: str = 'validation'  # the split that is evaluated
  # If set, the attention to tokens at most this far away is measured, too,
  # before training and after it.
  window: int | None = None
  # The paper's results by model.
  paper: dict[str, float] | None = None


_SYSTEMS = (
  Model('V', ['vanilla']),
  Model('Fix', ['fixed_random']),
  Model('R', ['random']),
  Model('FR', ['factorized_random']),
  Model('D', ['dense']),
  Model('FD', ['factorized_dense']),
  Model('R+D', ['random_dense']),
  Model('R+V', ['random_vanilla']),
  Model('D+V', ['dense_vanilla']),
  Model('LightConv', ['lightconv']),
  Model('DyConv', ['dyconv']),
  Model('Linformer', ['linformer']),
)
# Systems that Table 4 does not have.
_OTHERS = (
  Model('FR+V', ['factorized_random_vanilla']),
  Model('frozen V', ['frozen_vanilla']),
  Model('Conv', ['convolution']),
  Model('CRC, 3', ['conv_relu_conv']),
  Model('CRC, 5', ['conv_relu_conv_5']),
  Model('CRC, 7', ['conv_relu_conv_7']),
  Model('Bottleneck', ['bottleneck_dense']),
  Model('Bottleneck + CRC', ['bottleneck_conv_relu_conv']),
  Model('GLU', ['glu']),
)
# The log perplexities of Table 4, whose R+V and D+V are plain sums.
_PAPER_PERPLEXITY = {
  row.about['functions']: row.numbers['Log ppl']
  for row in paper.ROWS
  if (row.about['version'], row.about['table']) == ('v3', '4')
}
# With dropout, models learn little in so few steps.
_NO_DROPOUT = ['dropout_rate = 0.0']
# So that R alone says where a token looks.
_NO_BIAS = ['transformer_layers.SelfAttention.relative_attention_type = None']
_SIZES = (2, 8, 32)
_WIDTH = 64  # d_model, and that of all heads, of sizes/tiny.gin
# As in runs/classify_encoder.gin.
_ENCODER = ['Unitransformer.shared_embedding_and_softmax_weights = False']


def _of(*names: str) -> list[Model]:
  known = {model.name: model for model in (*_SYSTEMS, *_OTHERS)}
  return [known[name] for name in names]


def _across(*names: str, beside: bool = False) -> list[Model]:
  """Returns models with variants in cross-attention, or in both if `beside`."""
  models = []
  for model in _of(*names):
    crossed = [f'cross_{variant}' for variant in model.variants]
    variants = [*(model.variants if beside else []), *crossed]
    models.append(dataclasses.replace(model, variants=variants))
  return models


def _with_free_alpha(models: Sequence[Model]) -> list[Model]:
  """Returns the mixtures with an alpha learned at the full learning rate."""
  names = [f'{model.name}, free alpha' for model in models]
  params = ["include 'common/free_alpha.gin'"]
  return [
    dataclasses.replace(model, name=name, params=params)
    for model, name in zip(models, names, strict=True)
  ]


def _ablations(
  label: str, variant: str, param: str, values: Sequence[object]
) -> list[Model]:
  return [
    Model(label.format(value), [variant], [param.format(value)])
    for value in values
  ]


PARTS = {
  'a': Part(
    claim='What depends on positions alone is learned without pairs of tokens.',
    tasks=['claims_copy', 'claims_reverse'],
    metric=ACCURACY,
    lengths=(COPIED.inputs, COPIED.targets),
    steps=600,
    models=_of('V', 'R', 'FR', 'D'),
    params=_NO_DROPOUT,
  ),
  'b': Part(
    claim='What depends on pairs of tokens needs products of tokens.',
    tasks=['claims_lookup'],
    metric=PERPLEXITY,
    lengths=(LOOKED_UP.inputs, LOOKED_UP.targets),
    steps=1500,
    models=[
      *_across('V', 'R', 'D', 'R+V', 'D+V', beside=True),
      *_with_free_alpha(_across('R+V', 'D+V', beside=True)),
    ],
    params=_NO_DROPOUT,
  ),
  'c': Part(
    claim='Span corruption on text.',
    tasks=[TEXT],
    metric=PERPLEXITY,
    steps=400,
    models=_SYSTEMS,
    paper=_PAPER_PERPLEXITY,
  ),
  'f': Part(
    claim='What the hyperparameters of a variant are worth.',
    tasks=[TEXT],
    metric=PERPLEXITY,
    steps=400,
    models=[
      *_ablations(
        'FR, k = {}', 'factorized_random', 'FactorizedRandom.rank = {}', _SIZES
      ),
      *_ablations(
        'FD, a = {0[0]}, b = {0[1]}',
        'factorized_dense',
        'FactorizedDense.factors = {0}',
        [(a, 128 // a) for a in _SIZES],
      ),
      *_ablations('R+V, {} heads', 'random_vanilla', 'num_heads = {}', _SIZES),
      *_ablations(
        'R+V, {}',
        'random_vanilla',
        "SyntheticAttention.mixing = '{}'",
        ('softmax', 'layer_softmax', 'sum'),
      ),
      *_with_free_alpha(_of('R+V')),
      *(
        Model(f'{name}, N = {n}', [variant], lengths=(n, targets))
        for name, variant in (('V', 'vanilla'), ('R', 'random'))
        for n, targets in ((32, 9), (64, 16))
      ),
    ],
  ),
  'g': Part(
    claim='Cross-attention without products of tokens.',
    tasks=['claims_copy', TEXT, TRANSLATION],
    metric=PERPLEXITY,
    steps=600,
    models=_across('V', 'R', 'FR', 'D', 'R+V', 'D+V'),
  ),
  'h': Part(
    claim='Encoders: a class that depends on both sentences, or on one.',
    tasks=['claims_pair', 'claims_single'],
    metric=PERPLEXITY,
    lengths=CLASSIFIED,
    steps=1500,
    models=_of('V', 'R', 'D', 'R+V', 'D+V'),
    params=[*_NO_DROPOUT, *_ENCODER],
    model_type='aligned',
  ),
  'i': Part(
    claim="The same with a decoder, whose cross-attention is T5's.",
    tasks=['claims_pair_text', 'claims_single_text'],
    metric=PERPLEXITY,
    lengths=ANSWERED,
    steps=1500,
    models=_of('V', 'R', 'D', 'R+V', 'D+V'),
    params=_NO_DROPOUT,
  ),
  'j': Part(
    claim='Recall in context, by language models.',
    tasks=['claims_recall'],
    metric=PERPLEXITY,
    lengths=RECALLED,
    steps=2000,
    models=_of('V', 'frozen V', 'Fix', 'R', 'R+V'),
    params=_NO_DROPOUT,
    model_type='lm',
  ),
  'k': Part(
    claim='Translation with further functions (version 1), and R by heads.',
    tasks=[TRANSLATION],
    metric=PERPLEXITY,
    lengths=(48, 40),
    steps=600,
    models=[
      *_of('V', 'R', 'D', 'Conv', 'CRC, 3', 'CRC, 5', 'CRC, 7'),
      *_of('Bottleneck', 'Bottleneck + CRC', 'GLU'),
      *(
        Model(
          f'R, {heads} heads',
          ['random'],
          [f'num_heads = {heads}', f'd_kv = {_WIDTH // heads}'],
        )
        for heads in (2, 8, 16, 32)
      ),
    ],
    params=_NO_DROPOUT,
  ),
  'l': Part(
    claim='Encoders that classify texts.',
    tasks=['synth_ag_news_class', 'synth_imdb_reviews_class'],
    metric=PERPLEXITY,
    steps=100,
    lengths=(128, 128),
    models=_of('V', 'Linformer', 'FR', 'FR+V'),
    params=[
      *_NO_DROPOUT,
      *_ENCODER,
      "include 'common/learned_positions.gin'",
      'synth_mtf.FactorizedRandom.rank = 32',
    ],
    model_type='aligned',
    held_out='test',
  ),
  'm': Part(
    claim='Dialogue: replies after a persona and a history.',
    tasks=['synth_personachat'],
    metric=PERPLEXITY,
    lengths=(128, 32),
    steps=600,
    models=_of('V', 'R', 'D', 'R+V', 'D+V'),
    params=_NO_DROPOUT,
  ),
  'n': Part(
    claim='Where language models look.',
    tasks=['claims_text_lm'],
    metric=PERPLEXITY,
    lengths=(128, 128),
    steps=1000,
    models=[Model('R', ['random'], _NO_BIAS), *_of('V')],
    params=_NO_DROPOUT,
    model_type='lm',
    window=8,
  ),
  'p': Part(
    claim='Translation with the systems of Table 2.',
    tasks=[TRANSLATION],
    metric=PERPLEXITY,
    lengths=(48, 40),
    steps=400,
    models=_of('V', 'Fix', 'R', 'FR', 'D', 'FD', 'R+D', 'R+V', 'D+V'),
    params=_NO_DROPOUT,
  ),
  'q': Part(
    claim='Language models of sentences with systems of Table 2.',
    tasks=['synth_lm1b'],
    metric=PERPLEXITY,
    lengths=(64, 64),
    steps=400,
    models=_of('V', 'Fix', 'R', 'D', 'R+V', 'D+V'),
    params=_NO_DROPOUT,
    model_type='lm',
    held_out='test',
  ),
  'r': Part(
    claim='Summaries with the systems of Table 3, and R+D.',
    tasks=['synth_cnn_dailymail_v002'],
    metric=PERPLEXITY,
    lengths=(96, 32),
    steps=400,
    models=_of('V', 'R', 'D', 'R+D', 'R+V', 'D+V'),
    params=_NO_DROPOUT,
  ),
}
