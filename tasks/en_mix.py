"""The paper's co-training mixture, and its halves for evaluation.

T5's `en_mix` (t5.data.mixtures): GLUE, SuperGLUE and SQuAD, each at a rate
equal to its number of examples up to `rate_num_examples.maximum`; and C4 at
`rate_unsupervised.value`, a constant. WNLI is not in it, as in T5: WSC and DPR
ask the same question in a better way. The development sets of MNLI and WSC are
in it to be evaluated; tasks without a training split take no part in training.
"""

import seqio
import t5.data

from synth_mtf.tasks import glue, squad, super_glue, text
from synth_mtf.tasks.registering import PREFIX

_EN_MIX = (*glue.TASKS, *super_glue.TASKS, squad.SQUAD)

for _name, _tasks in {
  'en_mix': _EN_MIX,
  'en_mix_with_c4': [(text.C4, t5.data.rate_unsupervised), *_EN_MIX],
  'glue': glue.TASKS,
  'super_glue': super_glue.TASKS,
}.items():
  seqio.MixtureRegistry.add(
    PREFIX + _name, _tasks, default_rate=t5.data.rate_num_examples
  )
