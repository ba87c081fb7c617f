"""Random layers compute what the reference does: no future, no padding."""

import functools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from synth_mtf.layer.synthetic import MIXINGS
from tests import checks, family
from tests.harness import DECODER, ENCODER, LM

pytestmark = pytest.mark.slow  # many layers of many sizes

bounded = functools.partial(
  hypothesis.settings,
  deadline=None,
  derandomize=True,
  database=None,
  suppress_health_check=list(hypothesis.HealthCheck),
)


@st.composite
def layers(draw):
  """Up to three functions in a layer of random settings and sizes."""
  # Random's scope is the same, trained or not.
  names = sorted({*family.SINGLE} - {'fixed_random', 'mlp_mixer'})
  functions = [f for n in names for f in family.SINGLE[n].functions()]
  chosen = draw(
    st.lists(
      st.sampled_from(range(len(names))),
      min_size=1,
      max_size=3,
      unique_by=lambda i: functions[i].scope,
    )
  )
  members = [family.SINGLE[names[i]] for i in chosen]
  has_frozen = 'frozen_vanilla' in [names[i] for i in chosen]
  heads, d_kv = draw(st.permutations([1, 2, 3, 5, 7]))[:2]
  settings = {
    'num_heads': heads,
    'key_value_size': d_kv,
    'mixing': draw(st.sampled_from(MIXINGS)),
    'normalize': draw(st.sampled_from(['softmax', 'softmax', None])),
    'relative_attention_type': draw(
      st.sampled_from([None, 'bias', 'contextual'])
    ),
    # Frozen keys cannot be one projection with values.
    'shared_kv': not has_frozen and draw(st.booleans()),
  }
  hypothesis.note(f'{[names[i] for i in chosen]} {settings}')
  return functools.reduce(lambda a, b: a + b, members).but(**settings)


@st.composite
def rows(draw):
  """Rows of any size; packed, of one sequence each, or of padding alone."""
  batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 11))
  segments = draw(st.sampled_from([[1], [1, 2, 3]]))
  sizes = st.lists(
    st.integers(0, length), min_size=len(segments), max_size=len(segments)
  )
  tokens = [np.repeat(segments, draw(sizes)) for _ in range(batch)]
  ids = np.array([[*row, *[0] * length][:length] for row in tokens])
  hypothesis.note(f'{ids}')
  return family.Rows(ids, ids)


@bounded(max_examples=20)
@hypothesis.given(
  layers(),
  rows(),
  st.sampled_from([ENCODER, DECODER, LM]),
  st.booleans(),
  st.sampled_from(['train', 'eval']),
)
def test_whole_rows(member, rows, stack, mask, mode):
  mask |= rows.packed  # where padding sees itself, only x = 0 hides it
  checks.parallel(member, rows, stack, 3e-5, mask_padding=mask, mode=mode)


@bounded(max_examples=10)
@hypothesis.given(layers(), st.booleans())
def test_token_by_token(member, beam):
  checks.decoded(member, (2, 2, 3) if beam else (2, 4), beam=beam)
