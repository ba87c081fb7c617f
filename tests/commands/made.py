"""The folder of a run, of which nothing but names and settings is read."""

import json
import os
from collections.abc import Sequence

from synth_mtf.results import records

FINETUNED = """
MIXTURE_NAME = 'synth_glue_cola_v002'
run.batch_size = 3
run.train_steps = 9
"""
PRETRAINED = """
MIXTURE_NAME = 'synth_text_span_corruption'
run.train_steps = 9
"""


def run(
  folder: str,
  config: str = FINETUNED,
  steps: Sequence[int] = (5,),
  command: str | None = None,
) -> None:
  """Makes the folder of a run.

  Args:
    folder: below the current one.
    config: its configuration.
    steps: of its checkpoints, of which the last one is the latest.
    command: the one that trained it.
  """
  os.mkdir(folder)
  with open(f'{folder}/operative_config.gin', 'w') as stream:
    stream.write(config)
  for step in steps:
    for suffix in ('index', 'data-00000-of-00001'):
      open(f'{folder}/model.ckpt-{step}.{suffix}', 'w').close()
    with open(f'{folder}/checkpoint', 'w') as stream:
      stream.write(f'model_checkpoint_path: "model.ckpt-{step}"\n')
  if command:
    origin = {'command': command, 'folder': os.getcwd(), 'environment': {}}
    with open(f'{folder}/{records.ORIGINS}', 'w') as stream:
      json.dump([origin], stream)
