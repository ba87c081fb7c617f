"""The stages of a demo: runs of `synth-mtf transformer`."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

_STARTUP = 100  # steps that take as long as starting a process


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
  """A run of `synth-mtf transformer`."""

  name: str  # 'pretrain', 'perplexity', 'finetune' or 'evaluate'
  model_dir: pathlib.Path
  gin_files: Sequence[str]
  gin_params: Sequence[str]
  work: float = 1  # its time in steps of pretraining, to guess what is left

  @property
  def done(self) -> pathlib.Path:
    """The file that marks the stage as done."""
    return self.model_dir.parent / f'{self.name}.done'


def stages(
  variant: str, seed: int, configuration: Configuration, out: pathlib.Path
) -> list[list[Stage]]:
  """Returns a variant's stages in order; each inner list runs concurrently."""
  run = configuration.folder(out, variant, seed)

  def stage(
    name: str, folder: str, work: float, bindings: Mapping[str, Any]
  ) -> Stage:
    gin_files = (
      f'sizes/{configuration.size}.gin',
      f'variants/{variant}.gin',
      f'runs/demo_{name}.gin',
      *configuration.gin_file,
    )
    gin_params = [f'{key} = {value!r}' for key, value in bindings.items()]
    gin_params += configuration.gin_param
    return Stage(name, run / folder, gin_files, gin_params, work)

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
  pretrained = run / 'pretrain' / f'model.ckpt-{pretrain_steps}'
  pretraining = training(0, pretrain_steps)
  finetuning = {
    'utils.run.init_checkpoint': str(pretrained),
    'MIXTURE_NAME': configuration.mixture,
    **training(pretrain_steps, finetune_steps),
  }
  evaluation = {
    'MIXTURE_NAME': configuration.mixture,
    'mesh_eval_dataset_fn.num_eval_examples': configuration.eval_examples,
  }
  return [
    [stage('pretrain', 'pretrain', _STARTUP + pretrain_steps, pretraining)],
    [
      stage('finetune', 'finetune', _STARTUP + finetune_steps, finetuning),
      stage('perplexity', 'pretrain', 1, {}),
    ],
    [stage('evaluate', 'finetune', 2 * _STARTUP, evaluation)],
  ]
