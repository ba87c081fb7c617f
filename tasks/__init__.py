"""Tasks and mixtures of the Synthesizer paper, arXiv 2005.00743.

Importing this package registers them with seqio, alongside T5's own, and does
nothing else: no file is opened before a task is used.
"""

from synth_mtf.tasks import (  # noqa: F401  each registers its tasks
  classification,
  en_mix,
  generation,
  glue,
  question_answering,
  super_glue,
  text,
  translation,
)
from synth_mtf.tasks.data_settings import Settings, define_flags, settings
from synth_mtf.tasks.inspection import check
from synth_mtf.tasks.task_file import get
from synth_mtf.tasks.vocabulary import (
  OUTPUT_FEATURES,
  VOCABULARY,
  SettingVocabulary,
)

__all__ = [
  'OUTPUT_FEATURES',
  'VOCABULARY',
  'SettingVocabulary',
  'Settings',
  'check',
  'define_flags',
  'get',
  'settings',
]
