"""Words of other tools, which lead to ours."""

import re
from typing import Any

import pytest

from synth_mtf import cli
from synth_mtf.cli import other_words

# What somebody may type first, and what the refusal suggests.
GUESSES = [
  ('train a', "did you mean 'pretrain' or 'finetune'?"),
  ('generate a b', "did you mean 'predict'?"),
  ('fine-tune a', "did you mean 'finetune'?"),
  ('export a', "did you mean 'checkpoint export'?"),
  ('pretrain a --lr=1', "did you mean '--learning_rate'?"),
  ('pretrain a --learning-rate=1', "did you mean '--learning_rate'?"),
  ('pretrain a --num_train_epochs=1', "did you mean '--steps'?"),
  ('pretrain a --per_device_train_batch_size=1', "mean '--batch_size'?"),
  (
    'pretrain --output_dir=a',
    'RUN comes without a flag: synth-mtf pretrain RUN',
  ),
  ('pretrain a --resume', 'RUN comes without a flag'),
  ('pretrain a --model=R', "did you mean '--variant' or '--size'?"),
  ('pretrain a --gpus=1', "did you mean '--device=gpu'?"),
  ('pretrain a --num_layers=1', '--gin_param="num_layers = N"'),
  ('pretrain a my.txt', "did you mean '--text=my.txt'?"),
  ('finetune a --model_name_or_path=b', "did you mean '--from'?"),
  ('finetune a b', "did you mean '--from=b'?"),
  ('finetune a --mixture=b', "did you mean '--task'?"),
  ('evaluate a --checkpoint=3', 'RUN/model.ckpt-STEP comes without a flag'),
  (
    'predict a --prompt=b',
    'TEXT comes without a flag: synth-mtf predict RUN T',
  ),
  ('predict a b --num_beams=1', "did you mean '--beams'?"),
  ('predict a b --output=c', 'TEXT > FILE comes without a flag'),
  ('demo --output_dir=a', "did you mean '--out'?"),
  ('transformer --lr=0.1', 'give --gin_param="learning_rate = 0.1"'),
  ('transformer --epochs=3', 'give --gin_param="utils.run.train_steps = 3"'),
  ('transformer --output_dir=a', "did you mean '--model_dir'?"),
]


@pytest.mark.parametrize(('words', 'hint'), GUESSES)
def test_a_guess_leads_to_our_word(words, hint, capsys):
  status: Any
  try:
    status = cli.main(words.split())
  except SystemExit as end:  # of argparse
    status = end.code
  assert status == 2
  assert hint in capsys.readouterr().err


def test_every_suggestion_is_a_command_or_a_flag():
  parser = cli.parser()
  subparsers: Any
  (subparsers,) = [x.choices for x in parser._actions if x.choices]  # noqa: SLF001
  flags = {'--model_dir'}
  for subparser in subparsers.values():
    flags |= {*subparser._option_string_actions}  # noqa: SLF001
  for command in other_words._COMMANDS:  # noqa: SLF001
    assert command.split()[0] in subparsers
  for ours in other_words._FLAGS.values():  # noqa: SLF001
    for word in ours:
      name = re.split('[=/ ]', word)[0]
      assert name in flags or name in ('RUN', 'TEXT')
