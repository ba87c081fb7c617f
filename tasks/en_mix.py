"""T5's mixture of GLUE, SuperGLUE and SQuAD, without and with C4; its parts.

T5's own `en_mix` has C4 in it: it is `en_mix_with_c4` here. The paper trains on
the `en_mix` of the original code, and does not say that it left C4 out.
Rates are those of T5's `en_mix` (t5.data.mixtures): a task's number of
examples, capped at `rate_num_examples.maximum`; for C4, the constant
`rate_unsupervised.value`. As in T5, WNLI is omitted: WSC and DPR test the same
ability better. The tasks for the development sets of MNLI and WSC have no
training split and are used only in evaluation.
"""

from typing import Any

import seqio
import t5.data

from synth_mtf.paths import PREFIX
from synth_mtf.tasks import glue, question_answering, super_glue, text
from synth_mtf.tasks.registering import rate_by_rows

_EN_MIX = (*glue.TASKS, *super_glue.TASKS, question_answering.SQUAD)


def _register(name: str, *tasks: Any) -> None:
  """Registers a mixture; a task may come in a pair with its own rate."""
  seqio.MixtureRegistry.add(PREFIX + name, tasks, default_rate=rate_by_rows)


_register('en_mix', *_EN_MIX)
_register('en_mix_with_c4', (text.C4, t5.data.rate_unsupervised), *_EN_MIX)
_register('glue', *glue.TASKS)
_register('super_glue', *super_glue.TASKS)
