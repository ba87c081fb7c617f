"""What pretrain, finetune, evaluate and predict make of their words."""

import pytest

from synth_mtf.cli import predict
from synth_mtf.errors import UserError
from tests.cli import command
from tests.commands import made

COMMON = (
  *('--dry_run', '--vocabulary=bytes', '--batch_size=2', '--device=cpu'),
  *('--gin_file=sizes/small.gin', '--gin_param=d_ff = 9'),
)
IN_COMMON = [
  '--device=cpu',
  '--vocabulary=bytes',
  '--gin_file=sizes/small.gin',
  'd_ff = 9',
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  """A pretrained and a finetuned run, and text."""
  monkeypatch.chdir(tmp_path)
  made.run('pretrained', made.PRETRAINED, steps=(2, 5))
  start = "run.init_checkpoint = 'pretrained/model.ckpt-5'\n"
  made.run('finetuned', made.FINETUNED + start, steps=(7, 8))
  (tmp_path / 'my.txt').write_text('Some text.\n')
  (tmp_path / 'in.txt').write_text('an input\n')
  return tmp_path


def printed(*words):
  status, out, err = command.run(*words, *COMMON)
  assert status == 0, err
  return out


TRAINING = '--learning_rate=0.5', '--seed=3'
OF_TRAINING = [
  'learning_rate = 0.5',
  'mesh_train_dataset_fn.seed = 3',
  'synth_mtf.train_with_progress.seed = 3',
  'utils.run.batch_size = 2',
]


@pytest.mark.parametrize(
  ('words', 'expected'),
  [
    (
      ('pretrain', 'new', '--variant=R+V', '--text=my.txt', *TRAINING),
      [
        *OF_TRAINING,
        *('--gin_file=sizes/tiny.gin', 'variants/random_vanilla.gin'),
        *('utils.run.train_steps = 1000', '--text=my.txt'),
      ],
    ),
    (
      (
        *('pretrain', 'new', '--variant=R', '--size=base', '--text=my.txt'),
        '--steps=4',
      ),
      [
        *('--gin_file=sizes/base.gin', '--gin_file=variants/random.gin'),
        'utils.run.train_steps = 4',
      ],
    ),
    (
      ('pretrain', 'pretrained', '--steps=6', *TRAINING),
      ['pretrained/operative_config.gin', 'train_steps = 6', *OF_TRAINING],
    ),
    (('pretrain', 'pretrained'), ['utils.run.train_steps = 9']),
    (
      ('finetune', 'new', '--from=pretrained', '--task=synth_glue_cola_v002'),
      [
        *("MIXTURE_NAME = 'synth_glue_cola_v002'", 'train_steps = 1005'),
        "init_checkpoint = 'pretrained/model.ckpt-5'",
      ],
    ),
    (
      (
        *('finetune', 'new', '--from=pretrained/model.ckpt-2', '--steps=4'),
        *('--task=synth_glue_cola_v002', *TRAINING),
      ),
      ["'pretrained/model.ckpt-2'", 'train_steps = 6', *OF_TRAINING],
    ),
    (
      ('finetune', 'finetuned', '--steps=6'),
      ['finetuned/operative_config.gin', 'utils.run.train_steps = 11'],
    ),
    (
      ('finetune', 'finetuned', '--from=pretrained'),
      ['finetuned/operative_config.gin', 'utils.run.train_steps = 9'],
    ),
    (
      ('evaluate', 'finetuned'),
      [
        *('eval.gin', 'eval_checkpoint_step = -1'),
        "dataset_split = 'validation'",
      ],
    ),
    (
      ('evaluate', 'finetuned', '--all', '--split=test'),
      ["eval_checkpoint_step = 'all'", "dataset_split = 'test'"],
    ),
    (('evaluate', 'finetuned/model.ckpt-7'), ['eval_checkpoint_step = 7']),
    (('evaluate', 'finetuned', '--perplexity'), ['perplexity_eval.gin']),
    (
      ('evaluate', 'pretrained', '--task=synth_glue_rte_v002'),
      ["MIXTURE_NAME = 'synth_glue_rte_v002'", '--gin_file=eval.gin'],
    ),
    (
      ('predict', 'finetuned', '--input=in.txt'),
      [
        *("input_filename = 'in.txt'", 'infer_checkpoint_step = 8'),
        *('beam_size = 4', 'max_decode_length = 512'),
      ],
    ),
    (
      (
        *('predict', 'finetuned/model.ckpt-7', '--input=in.txt'),
        *('--beams=1', '--max_length=6'),
      ),
      ['step = 7', 'beam_size = 1', 'max_decode_length = 6'],
    ),
  ],
)
def test_a_command_stands_for(words, expected):
  out = printed(*words)
  for text in [*IN_COMMON, *expected]:
    assert text in out, out


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (('pretrain', 'new', '--text=my.txt'), 'holds no run yet: give --variant'),
    (('pretrain', 'new', '--variant=R'), 'give the text to pretrain on'),
    (('pretrain', 'finetuned'), 'holds a model that was finetuned from'),
    (('pretrain', 'pretrained', '--steps=4'), 'has trained 5 steps'),
    (('finetune', 'new'), 'give the model to start from, --from=RUN'),
    (('finetune', 'new', '--from=pretrained'), 'give the task: --task=NAME'),
    (('finetune', 'pretrained'), 'holds a model that was not finetuned'),
    (
      ('finetune', 'finetuned', '--from=pretrained/model.ckpt-2'),
      'was finetuned from pretrained/model.ckpt-5, not from',
    ),
    (
      ('finetune', 'finetuned', '--task=synth_glue_rte_v002'),
      'is finetuned on synth_glue_cola_v002, not on synth_glue_rte_v002',
    ),
    (('evaluate', 'new'), 'new does not exist.*; expected the folder of a run'),
    (('evaluate', 'finetuned/model.ckpt-6'), 'no checkpoint of step 6'),
    (('predict', 'finetuned/model.ckpt-6'), 'no checkpoint of step 6'),
  ],
)
def test_what_cannot_be(words, message):
  status, out, err = command.run(*words, *COMMON)
  assert (status, out) == (2, '')
  assert message.split('.*')[0] in err and message.split('.*')[-1] in err, err


def test_an_input_is_one_line():
  lines = predict._lines  # noqa: SLF001
  assert lines(['a', 'b c']) == ['a', 'b c']
  for text in ('a\nb', ' ', ''):
    with pytest.raises(UserError, match='expected a text in one line'):
      lines(['a', text])
