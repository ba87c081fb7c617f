"""Opens a run: its configuration, its checkpoints and its vocabularies."""

import contextlib
import dataclasses
import importlib
import os
import shutil
from collections.abc import Sequence
from typing import Any

import gin
import seqio
from t5.models import mesh_transformer

from synth_mtf import tasks
from synth_mtf.attention.examples import SIDES, ModelInputs
from synth_mtf.checkpoints import identity
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.host import explanations, foreign, model as models
from synth_mtf.host.described import DescribedModel, described
from synth_mtf.host.run_config import RunConfig, are_lengths, both_sides
from synth_mtf.results import runs
from synth_mtf.synthesizers.base import Table


@dataclasses.dataclass(frozen=True)
class OpenedRun:
  """A run whose model can be built.

  Attributes:
    run: where its files are.
    model: what its configuration describes.
    inputs: what its model reads.
    checkpoints: at the steps that were asked for; None is `runs.INITIAL`.
  """

  run: runs.Run
  model: DescribedModel
  inputs: ModelInputs
  checkpoints: Sequence[Checkpoint | None]


def open_run(
  folder: str, steps: Sequence[int | str], vocabulary: str | None = None
) -> OpenedRun:
  """Opens a run and some of its checkpoints.

  Args:
    folder: a model folder, or a demo folder that holds one run.
    steps: as in `Run.checkpoint_at`; `INITIAL` is for initial weights.
    vocabulary: as in `--vocabulary`; None uses the run's vocabulary.
  """
  run = runs.only(folder)
  checkpoints = [run.checkpoint_at(step) for step in steps]
  importlib.import_module('t5.data.mixtures')  # registers them
  with described(run.gin, run.gin_file) as model:
    config = model.run
    with explanations.explained():  # T5's own vocabulary needs a network
      vocabularies = _vocabularies(vocabulary, run.folder, config)
      for checkpoint in checkpoints:
        if checkpoint:
          identity.check_vocabulary(vocabularies, checkpoint.path)
    with foreign.bounded():
      inputs = ModelInputs(
        model_type=config.model_type,
        lengths=_lengths(config, model.transformer()),
        vocabularies=dict(zip(SIDES, vocabularies, strict=True)),
      )
  return OpenedRun(run, model, inputs, checkpoints)


def _lengths(
  config: RunConfig, transformer: models.Transformer
) -> dict[str, int]:
  """Returns the most tokens of each feature.

  That is the length of a run's examples; the configuration of an imported model
  does not have it, and then its tables set the limit.
  """
  lengths = dict(config.lengths or {})
  for scope, layer in models.layers(transformer):
    rows = columns = 'targets' if scope.startswith('decoder') else 'inputs'
    if 'EncDec' in scope:
      columns = 'inputs'
    for function in getattr(layer, 'synthesizers', ()):
      if isinstance(function, Table):
        for name, most in (
          (rows, function.max_length),
          (columns, function.memory_max_length),
        ):
          lengths[name] = min(most, lengths.get(name, most))
  if not are_lengths(lengths):
    raise UserError(
      f'the tables of the model have the lengths {lengths}; expected whole '
      'numbers: look at max_length in its configuration'
    )
  return lengths


def _vocabularies(
  given: str | None, model_dir: str, config: RunConfig
) -> Sequence[seqio.Vocabulary]:
  """Returns the vocabularies of inputs and targets."""
  chosen = choose_vocabulary(given, model_dir)
  if chosen is not None:
    return both_sides(tasks.vocabulary.load(chosen))
  # Those of our tasks would follow later changes of the setting.
  return tuple(getattr(x, 'resolved', x) for x in config.vocabularies)


def choose_vocabulary(given: str | None, model_dir: str) -> str | None:
  """Returns a run's vocabulary, as in `--vocabulary`; gin's tasks get it, too.

  A given one is that of any run. Otherwise, if the run is on our tasks or on an
  unknown one, it is the vocabulary that is set for the tasks; and if none is
  set, the one that the run recorded.

  Args:
    given: as in `--vocabulary`.
    model_dir: of the run that gin describes.

  Returns:
    None if the run has the vocabulary of its task.
  """
  chosen = given
  if chosen is None and not _has_own_vocabulary():
    chosen = tasks.settings().vocabulary
  if chosen is None:
    chosen = _recorded(model_dir)
  if chosen is not None:
    with gin.unlock_config():
      gin.bind_parameter('synth_mtf.tasks.settings.vocabulary', chosen)
  return chosen


def _recorded(model_dir: str) -> str | None:
  """Returns the vocabulary that a run recorded, as in `--vocabulary`."""
  name = identity.recorded_vocabulary(model_dir)
  if name is None:
    return None
  if name == seqio.ByteVocabulary.__name__:
    return tasks.data_settings.BYTES
  in_run = os.path.join(model_dir, os.path.basename(name))
  for path in (name, in_run):
    if os.path.isfile(path):
      return path
  return None


def keep_vocabulary(source: str, model_dir: str) -> None:
  """Copies and records the SentencePiece model of a Hugging Face folder.

  Does nothing if there is none that T5 can use, or if one is recorded already.
  """
  path = os.path.join(source, 'spiece.model')
  if not os.path.isfile(path) or identity.recorded_vocabulary(model_dir):
    return
  with contextlib.suppress(UserError):  # its special tokens are not T5's
    tasks.vocabulary.load(path)
    copy = shutil.copy(path, model_dir)
    vocabulary = tasks.vocabulary.load(copy)
    identity.record_vocabulary(vocabulary, Folder(model_dir))


def _has_own_vocabulary() -> bool:
  """Whether the run's task is registered, with another vocabulary than ours."""
  name: Any = gin.get_bindings(mesh_transformer.get_vocabulary).get(
    'mixture_or_task_name'
  )
  known = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
  if name not in known:
    return False
  features = seqio.get_mixture_or_task(name).output_features
  return not all(
    isinstance(feature.vocabulary, tasks.SettingVocabulary)
    for feature in features.values()
  )
