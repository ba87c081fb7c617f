"""Which checkpoints a run reads that does not train."""

import gin
import pytest

from synth_mtf.errors import UserError
from synth_mtf.run import checkpoint_choice, config, values

reading = pytest.mark.parametrize('mode', values.MODES[1:])


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


@reading
def test_no_mode_does_without_a_checkpoint(tmp_path, mode):
  with pytest.raises(UserError, match=f'mode {mode!r} needs a checkpoint'):
    chosen(tmp_path, mode)


@pytest.mark.parametrize(
  ('lost', 'message'),
  [
    ('checkpoint', 'holds model.ckpt-2, but the file'),
    (
      'model.ckpt-2.index',
      'points at .*ckpt-2, which is not .*holds model.ckpt-0',
    ),
  ],
)
@reading
def test_no_mode_takes_the_latest_where_it_is_lost(folder, mode, lost, message):
  (folder / lost).unlink()
  with pytest.raises(UserError, match=message):
    chosen(folder, mode, eval_checkpoint_step=-1)


def test_data_without_an_index(folder):
  (folder / 'model.ckpt-2.index').unlink()
  with pytest.raises(UserError, match='ckpt-2 lacks its .index file; rem'):
    chosen(folder, 'eval', eval_checkpoint_step='all')
  (folder / 'model.ckpt-0.index').unlink()
  with pytest.raises(UserError, match='needs a checkpoint.*ckpt-2 lacks its'):
    chosen(folder, 'eval')


@pytest.mark.parametrize(
  ('mode', 'step', 'message'),
  [
    ('eval', 7, 'there is no model.ckpt-7'),
    ('eval', [2, 7], r'there is no model.ckpt-7 \(to take'),
    ('eval', -2, 'there is no'),
    ('eval', 1.5, 'expected a step'),
    ('eval', 'last', 'expected a step'),
    ('eval', True, 'expected a step'),
    ('eval', [], 'expected a step'),
    ('export_infer', 7, 'there is no model.ckpt-7'),
    ('score_from_strings', None, 'reads one checkpoint'),
    ('score_from_strings', [0, 2], 'reads one checkpoint'),
  ],
)
def test_a_step_that_will_not_do(folder, mode, step, message):
  setting = f'{"export" if "export" in mode else "eval"}_checkpoint_step'
  with pytest.raises(
    UserError,
    match=f'run.{setting} = .*: .*{message}.*holds model.ckpt-0, model.ckpt-2',
  ):
    chosen(folder, mode, **{setting: step})


def test_the_nearest_may_be_asked_for(folder):
  gin.parse_config('get_checkpoint_iterator.find_closest = True')
  found = chosen(folder, 'eval', eval_checkpoint_step=7)
  assert found == [str(folder / f'model.ckpt-{step}') for step in (0, 2)]


def test_none_later_than_where_all_begins(folder):
  gin.parse_config('get_checkpoint_iterator.skip_until = 2')
  with pytest.raises(UserError, match='none is later than .*skip_until = 2'):
    chosen(folder, 'eval', eval_checkpoint_step='all')
