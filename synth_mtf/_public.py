"""The public names; importing them registers them with gin."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import gin
import mesh_tensorflow as mtf

from synth_mtf.baselines.conv_relu_dense import ConvReluDense
from synth_mtf.baselines.linformer import Linformer
from synth_mtf.baselines.local_convolution import (
  LocalConvAttnBlock as LocalConvolution,
)
from synth_mtf.checkpoints.comparison import warm_start
from synth_mtf.cpu.layers import DenseReluDense as FeedForward, EmbeddingByIndex
from synth_mtf.host import patches
from synth_mtf.layer.attention import SyntheticAttention
from synth_mtf.layer.enc_dec_attention import (
  EncDecAttention as DotProductEncDecAttention,
  SyntheticEncDecAttention,
)
from synth_mtf.layer.stacks import (
  ReplacingLayerStack,
  cross_attention,
  feed_forward,
  self_attention,
)
from synth_mtf.paths import gin_path
from synth_mtf.synthesizers import *  # noqa: F403
from synth_mtf.synthesizers import FUNCTIONS, SynthesizingFunction

if TYPE_CHECKING:
  from synth_mtf.trained import TrainedModel

__all__ = [  # noqa: PLE0604
  'Adafactor',
  'ConvReluDense',
  'DotProductEncDecAttention',
  'EmbeddingByIndex',
  'FeedForward',
  'Linformer',
  'LocalConvolution',
  'ReplacingLayerStack',
  'SyntheticAttention',
  'SyntheticEncDecAttention',
  'SynthesizingFunction',
  'cross_attention',
  'feed_forward',
  'load',
  'self_attention',
  'warm_start',
  *FUNCTIONS,
]

# Saved operative_config.gin files refer to T5's optimizer by this name.
Adafactor = gin.external_configurable(
  mtf.optimize.AdafactorOptimizer, 'Adafactor', module='synth_mtf'
)
gin.add_config_file_search_path(gin_path())
patches.read_gin_files()


def _register_task_files() -> None:
  """Registers the tasks in task files, if our tasks have been imported."""
  task_file = sys.modules.get('synth_mtf.tasks.task_file')
  if task_file:
    task_file.register()


patches.before_names_are_looked_up(_register_task_files)


def load(
  folder: str | os.PathLike[str],
  step: int | None = None,
  vocabulary: str | None = None,
  module_import: str | Sequence[str] = (),
) -> TrainedModel:
  """Loads a trained model; docs/python.md shows what it does.

  Args:
    folder: a model folder, or a demo folder that holds one run.
    step: of the checkpoint; None is the last.
    vocabulary: a SentencePiece `.model` or `'bytes'`; None is the run's own.
    module_import: Python modules that register the run's task, whose vocabulary
      is the run's; they are imported.

  Raises:
    UserError: the run cannot be read, or does not fit the vocabulary.
  """
  from synth_mtf.trained import TrainedModel  # imports T5, which takes seconds

  return TrainedModel(os.fspath(folder), step, vocabulary, module_import)
