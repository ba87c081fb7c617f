"""Which checkpoints a run reads that does not train."""

from typing import get_args

import gin
import pytest

from synth_mtf.errors import UserError
from synth_mtf.run import checkpoint_choice, config

READING = [mode for mode in get_args(config.Mode) if mode != 'train']


@pytest.fixture
def folder(tmp_path):
  """A folder with the checkpoints of two steps; what they hold is not read."""
  for step in (0, 2):
    for suffix in ('index', 'data-00000-of-00001'):
      (tmp_path / f'model.ckpt-{step}.{suffix}').touch()
  (tmp_path / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-2"')
  return tmp_path


def chosen(folder, mode, **run):
  run = {'mode': mode, 'sequence_length': 8, 'mesh_shape': '', **run}
  for name, value in run.items():
    gin.bind_parameter(f'utils.run.{name}', value)
  return checkpoint_choice.check(config.read(str(folder)))


@pytest.mark.parametrize(
  ('mode', 'setting', 'step', 'steps'),
  [
    ('eval', 'eval_checkpoint_step', 0, [0]),
    ('eval', 'eval_checkpoint_step', [2, 0], [2, 0]),
    ('eval', 'eval_checkpoint_step', -1, [2]),
    # The host waits for more to come, and begins with the latest.
    ('infer', 'eval_checkpoint_step', None, [2]),
    # The host's own: after step 0.
    ('perplexity_eval', 'eval_checkpoint_step', 'all', [2]),
    ('score_from_strings', 'eval_checkpoint_step', -1, [2]),
    ('score_from_dataset', 'eval_checkpoint_step', 0, [0]),
    ('export_infer', 'export_checkpoint_step', 2, [2]),
    ('export_score', 'export_checkpoint_step', None, [2]),
    ('export', 'export_checkpoint_step', 0, [2]),
  ],
)
def test_what_is_read(folder, mode, setting, step, steps):
  assert chosen(folder, mode, **{setting: step}) == [
    str(folder / f'model.ckpt-{n}') for n in steps
  ]


@pytest.mark.parametrize('mode', READING)
def test_no_mode_does_without_a_checkpoint(tmp_path, mode):
  with pytest.raises(UserError, match=f'mode {mode!r} needs a checkpoint'):
    chosen(tmp_path, mode)


@pytest.mark.parametrize('mode', READING)
def test_no_mode_takes_the_latest_without_the_pointer(folder, mode):
  (folder / 'checkpoint').unlink()
  with pytest.raises(UserError, match='holds model.ckpt-2, but the file'):
    chosen(folder, mode, eval_checkpoint_step=-1)


@pytest.mark.parametrize('mode', READING)
def test_nor_where_its_index_is_lost(folder, mode):
  (folder / 'model.ckpt-2.index').unlink()
  with pytest.raises(
    UserError, match='points at .*ckpt-2, which is not .*holds model.ckpt-0'
  ):
    chosen(folder, mode, eval_checkpoint_step=-1)


def test_data_without_any_index(folder):
  for path in folder.glob('*.index'):
    path.unlink()
  with pytest.raises(UserError, match='needs a checkpoint.*ckpt-2 lacks its'):
    chosen(folder, 'eval')


def test_all_of_which_one_has_no_index(folder):
  (folder / 'model.ckpt-2.index').unlink()
  with pytest.raises(UserError, match='ckpt-2 lacks its .index file: rem'):
    chosen(folder, 'eval', eval_checkpoint_step='all')


@pytest.mark.parametrize('step', [7, [2, 7], -2, 1.5, 'last', True, []])
def test_a_step_that_is_not_there(folder, step):
  with pytest.raises(
    UserError,
    match='eval_checkpoint_step = .*: .*holds model.ckpt-0, model.ckpt-2',
  ):
    chosen(folder, 'eval', eval_checkpoint_step=step)


def test_a_step_to_export_that_is_not_there(folder):
  with pytest.raises(
    UserError, match='export_checkpoint_step = 7: there is no model.ckpt-7'
  ):
    chosen(folder, 'export_infer', export_checkpoint_step=7)


def test_the_nearest_may_be_asked_for(folder):
  gin.parse_config('get_checkpoint_iterator.find_closest = True')
  found = chosen(folder, 'eval', eval_checkpoint_step=7)
  assert found == [str(folder / f'model.ckpt-{step}') for step in (0, 2)]


def test_none_later_than_where_all_begins(folder):
  gin.parse_config('get_checkpoint_iterator.skip_until = 2')
  with pytest.raises(UserError, match='no checkpoint .* is later than step 2'):
    chosen(folder, 'eval', eval_checkpoint_step='all')


@pytest.mark.parametrize('step', [None, [0, 2]])
def test_scores_are_of_one(folder, step):
  with pytest.raises(UserError, match='reads one checkpoint, but .* is '):
    chosen(folder, 'score_from_strings', eval_checkpoint_step=step)
