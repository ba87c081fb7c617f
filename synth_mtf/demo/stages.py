"""The stages of a demo: runs of `synth-mtf transformer`."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from synth_mtf.commands import command


@dataclasses.dataclass(frozen=True)
class Configuration:
  """The flags of `synth-mtf demo` that affect the results of a variant."""

  size: str = 'tiny'
  pretrain_steps: int = 200
  finetune_steps: int = 600
  seeds: Sequence[int] = (0,)
  mixture: str = 'synth_en_mix'
  eval_examples: int | None = 64  # None: all
  data_dir: str | None = None  # None: the samples
  vocabulary: str | None = None  # None: one is trained
  gin_file: Sequence[str] = ()
  gin_param: Sequence[str] = ()

  def folder(self, out: pathlib.Path, variant: str, seed: int) -> pathlib.Path:
    """Returns the folder of a variant and seed."""
    return out / variant / (f'seed_{seed}' if len(self.seeds) > 1 else '')


@dataclasses.dataclass(frozen=True)
class Stage:
  """A run of `synth-mtf transformer`.

  Attributes:
    name: 'pretrain', 'perplexity', 'finetune' or 'evaluate'.
    model_dir: its folder.
    gin_files: its gin files, in order.
    gin_params: its bindings, which come after the files.
    after: marks the stage as done on whose checkpoint this one builds, if any.
    is_timed: whether no other stage may run meanwhile, since the table shows
      its speed.
    steps: how many it trains.
    step_work: how long one takes, in steps of pretraining.
    starts: how long the rest takes, in starts of a process that trains.
  """

  name: str
  model_dir: pathlib.Path
  gin_files: tuple[str, ...]
  gin_params: tuple[str, ...]
  after: pathlib.Path | None = None
  is_timed: bool = False
  steps: int = 0
  step_work: float = 1
  starts: float = 1

  @property
  def done(self) -> pathlib.Path:
    """The file that marks the stage as done."""
    return self.model_dir.parent / f'{self.name}.done'

  @property
  def words(self) -> Sequence[str]:
    """Its command line, without the program."""
    return command.transformer(
      str(self.model_dir), self.gin_files, self.gin_params
    ).words


def stages(
  variants: Sequence[str], configuration: Configuration, out: pathlib.Path
) -> list[Stage]:
  """Returns the stages of all variants and seeds in the order of their starts.

  The first score comes early. What must run alone comes before what can run in
  pairs, so that no core waits in between.
  """
  runs = [
    _of_run(variant, seed, configuration, out)
    for variant in variants
    for seed in configuration.seeds
  ]
  pretrained, measured, finetuned, evaluated = zip(*runs, strict=True)
  return [
    pretrained[0],
    measured[0],
    *pretrained[1:],
    *finetuned,
    *measured[1:],
    *evaluated,
  ]


def _of_run(
  variant: str, seed: int, configuration: Configuration, out: pathlib.Path
) -> tuple[Stage, Stage, Stage, Stage]:
  """Returns the stages of one variant and seed."""
  run = configuration.folder(out, variant, seed)

  def stage(
    name: str, folder: str, bindings: Mapping[str, Any], **more: Any
  ) -> Stage:
    gin_files = (
      f'sizes/{configuration.size}.gin',
      f'variants/{variant}.gin',
      f'runs/demo_{name}.gin',
      *configuration.gin_file,
    )
    gin_params = (*command.bound(bindings), *configuration.gin_param)
    return Stage(name, run / folder, gin_files, gin_params, **more)

  def training(first: int, steps: int) -> dict[str, Any]:
    return {
      'utils.run.train_steps': first + steps,  # includes the checkpoint's steps
      'utils.run.seen_data_init_step': first,
      # Five per run: a killed run loses little, and saving takes little time.
      'utils.run.save_checkpoints_steps': min(max(steps // 5, 1), 1000),
      'synth_mtf.train_with_progress.seed': seed,
      'mesh_train_dataset_fn.seed': seed,
    }

  pretrain_steps = configuration.pretrain_steps
  finetune_steps = configuration.finetune_steps
  checkpoint = run / 'pretrain' / f'model.ckpt-{pretrain_steps}'
  pretrain = stage(
    'pretrain',
    'pretrain',
    training(0, pretrain_steps),
    is_timed=True,
    steps=pretrain_steps,
  )
  perplexity = stage('perplexity', 'pretrain', {}, after=pretrain.done)
  finetune = stage(
    'finetune',
    'finetune',
    {
      'utils.run.init_checkpoint': str(checkpoint),
      'MIXTURE_NAME': configuration.mixture,
      **training(pretrain_steps, finetune_steps),
    },
    after=pretrain.done,
    steps=finetune_steps,
    step_work=2,  # twice as many rows
  )
  evaluate = stage(
    'evaluate',
    'finetune',
    {
      'MIXTURE_NAME': configuration.mixture,
      'mesh_eval_dataset_fn.num_eval_examples': configuration.eval_examples,
    },
    after=finetune.done,
    starts=2,
  )
  return pretrain, perplexity, finetune, evaluate
