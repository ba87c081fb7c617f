"""Names, numbers and paths on the command line."""

import dataclasses

import pytest

from synth_mtf.demo import configuration
from synth_mtf.demo.configuration import Configuration
from synth_mtf.errors import UserError

GOOD = Configuration()


def test_every_gin_file_is_a_choice():
  assert {'tiny', 'small', 'base'} <= set(configuration.gin_names('size'))
  variants = configuration.gin_names('variant')
  assert {'vanilla', 'random', 'random_vanilla', 'dense'} <= set(variants)
  for variant in variants:
    configuration.check(GOOD, [variant])


@pytest.mark.parametrize(
  'changes, variants, message',
  [
    ({}, ['vanila'], "unknown variant 'vanila'; did you mean 'vanilla'"),
    ({}, ['zzzz'], "unknown variant 'zzzz'; expected one of .*random_vanilla"),
    ({}, [], 'no variant'),
    ({}, ['random', 'random'], 'named twice'),
    ({'size': 'tny'}, ['random'], "unknown size 'tny'; did you mean 'tiny'"),
    ({'finetune_steps': 0}, ['random'], '--finetune_steps is 0; expected 1'),
    ({'pretrain_steps': -1}, ['random'], '--pretrain_steps is -1; expected 0'),
    ({'pretrain_steps': 0}, ['random'], 'give an --init_checkpoint'),
    (
      {'init_checkpoint': '/no/such/model.ckpt-3'},
      ['random'],
      '/no/such/model.ckpt-3 is not an existing checkpoint',
    ),
    ({'init_checkpoint': 'gs://a/b'}, ['random'], 'such as <folder>/model.c'),
    ({'eval_examples': -1}, ['random'], '--eval_examples is -1'),
    ({'seeds': (0, -1)}, ['random'], '--seeds has -1; expected 0 or more'),
    ({'seeds': (3, 3)}, ['random'], '--seeds names a seed twice: 3 3'),
    (
      {'data_dir': '/no/such'},
      ['random'],
      '--data_dir /no/such is not a folder',
    ),
    ({'data_dir': __file__}, ['random'], '--data_dir .* is not a folder'),
    (
      {'vocabulary': '/no.model'},
      ['random'],
      '--vocabulary /no.model is not a',
    ),
  ],
)
def test_bad_values(changes, variants, message):
  with pytest.raises(UserError, match=message):
    configuration.check(dataclasses.replace(GOOD, **changes), variants)


def test_all_faults_are_reported_at_once():
  with pytest.raises(UserError) as error:
    configuration.check(
      dataclasses.replace(GOOD, finetune_steps=0, size='x'), ['y']
    )
  assert len(str(error.value).splitlines()) == 3
