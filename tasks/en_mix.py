"""The paper's co-training mixture, and its halves for evaluation.

T5's `en_mix` (t5.data.mixtures): GLUE, SuperGLUE and SQuAD, each at a rate
equal to its number of examples up to `rate_num_examples.maximum`; and C4 at
`rate_unsupervised.value`, a constant. WNLI is not in it, as in T5: WSC and DPR
ask the same question in a better way. The development sets of MNLI and WSC are
in it to be evaluated; tasks without a training split take no part in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import seqio
import t5.data

from synth_mtf.tasks import glue, squad, super_glue, text
from synth_mtf.tasks.registering import PREFIX

_GLUE = [task for name, task in glue.TASKS.items() if name != 'wnli']
_SUPER_GLUE = list(super_glue.TASKS.values())
_EN_MIX = [*_GLUE, *_SUPER_GLUE, *squad.TASKS.values()]


def _add(name: str, tasks: Sequence[Any]) -> str:
  seqio.MixtureRegistry.add(
    PREFIX + name, tasks, default_rate=t5.data.rate_num_examples
  )
  return PREFIX + name


MIXTURES = {
  'en_mix': _add('en_mix', _EN_MIX),
  'en_mix_with_c4': _add(
    'en_mix_with_c4', [(text.TASKS['c4'], t5.data.rate_unsupervised), *_EN_MIX]
  ),
  'glue': _add('glue', _GLUE),
  'super_glue': _add('super_glue', _SUPER_GLUE),
}
