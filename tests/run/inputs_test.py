"""The checkpoints and lines that a run reads which does not train."""

import gin
import pytest
from mesh_tensorflow.transformer import utils

import synth_mtf.checked  # noqa: F401  leaves out byte order marks
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.run import config, inputs
from synth_mtf.tasks import vocabulary

LENGTHS = {'inputs': 32, 'targets': 8}
reading = pytest.mark.parametrize('mode', config.MODES[1:])


def read(mode, folder='folder', **run):
  run = {'mode': mode, 'sequence_length': LENGTHS, 'mesh_shape': '', **run}
  for name, value in run.items():
    gin.bind_parameter(f'utils.run.{name}', value)
  gin.bind_parameter('utils.run.vocabulary', vocabulary.load('bytes'))
  return config.read(str(folder))


def chosen(folder, mode, step=None, setting=None):
  kind = 'export' if 'export' in mode else 'eval'
  run = read(mode, folder, **{f'{kind}_checkpoint_step': step})
  gin.parse_config(setting)
  return inputs.checkpoints(run, Folder(run.model_dir))


@pytest.fixture
def folder(tmp_path):
  """A folder with the checkpoints of two steps; what they hold is not read."""
  for step in (0, 2):
    for suffix in ('index', 'data-00000-of-00001'):
      (tmp_path / f'model.ckpt-{step}.{suffix}').touch()
  (tmp_path / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-2"')
  return tmp_path


@pytest.mark.parametrize(
  ('mode', 'step', 'steps', 'setting'),
  [
    ('eval', 0, [0], ''),
    ('eval', [2, 0], [2, 0], ''),
    ('eval', -1, [2], ''),
    ('eval', 7, [0, 2], 'get_checkpoint_iterator.find_closest = True'),
    # The host waits for more to come, and begins with the latest.
    ('infer', None, [2], ''),
    ('perplexity_eval', 'all', [2], ''),  # the host's own: after step 0
    ('score_from_strings', -1, [2], ''),
    ('score_from_dataset', 0, [0], ''),
    ('export_infer', 2, [2], ''),
    ('export_score', None, [2], ''),
    ('export', 0, [2], ''),
  ],
)
def test_checkpoints_that_are_read(folder, mode, step, steps, setting):
  assert chosen(folder, mode, step, setting) == [
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
    ('model.ckpt-2.index', 'points at .*-2, which is not .*holds model.ckpt-0'),
  ],
)
@reading
def test_no_mode_takes_the_latest_where_it_is_lost(folder, mode, lost, message):
  (folder / lost).unlink()
  with pytest.raises(UserError, match=message):
    chosen(folder, mode, -1)


def test_data_without_an_index(folder, caplog):
  (folder / 'model.ckpt-3.data-00000-of-00001').touch()
  assert chosen(folder, 'eval', 'all') == [str(folder / 'model.ckpt-2')]
  assert 'skipped incomplete checkpoints: model.ckpt-3' in caplog.text
  assert gin.query_parameter('utils.run.eval_checkpoint_step') == [2]
  for step in (0, 2):
    (folder / f'model.ckpt-{step}.index').unlink()
  with pytest.raises(
    UserError, match='needs a checkpoint.*ckpt-2, .* lacks its'
  ):
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
    ('eval', [2, 'x'], 'expected a step'),
    ('eval', 'all', 'none is later than .*skip_until = 2'),
    ('export_infer', 7, 'there is no model.ckpt-7'),
    ('score_from_strings', None, 'reads one checkpoint'),
    ('score_from_strings', [0, 2], 'reads one checkpoint'),
  ],
)
def test_a_step_that_will_not_do(folder, mode, step, message):
  setting = f'{"export" if "export" in mode else "eval"}_checkpoint_step'
  message = f'run.{setting} = .*: .*{message}.*holds model.ckpt-0, model.ckpt-2'
  with pytest.raises(UserError, match=message):
    chosen(folder, mode, step, 'get_checkpoint_iterator.skip_until = 2')


@pytest.fixture
def lines(tmp_path):
  path = tmp_path / 'inputs.txt'
  path.write_text('a\nb\n')
  return path


def decode(lines, outputs, **run):
  gin.parse_config(f"""
      infer_model.decode_fn = @decode_from_file
      decode_from_file.input_filename = {str(lines)!r}
      decode_from_file.output_filename = {str(outputs)!r}
  """)
  inputs.check_files(read('infer', **run))


def score(targets, given=None, scores=None, **run):
  gin.parse_config(f"""
      score_from_strings.inputs = {given!r}
      score_from_strings.targets = {targets!r}
      save_scores.scores_filename = {scores!r}
  """)
  inputs.check_files(read('score_from_strings', **run))


def test_what_can_be_decoded(lines, tmp_path):
  lines.write_text('x' * 31 + '\n' + 'ä' * 15)
  decode(lines, tmp_path / 'not' / 'made' / 'yet' / 'outputs.txt')
  decode(lines, f'file://{tmp_path}/outputs.txt')
  lines.write_text('x' * 32)  # a language model reads no end of its inputs
  decode(lines, tmp_path / 'outputs.txt', model_type='lm')


def test_a_blank_last_line(lines, tmp_path, caplog):
  for content, skipped in (('a\n\nb', False), ('a\n\nb\n\n', True)):
    lines.write_text(content)
    decode(lines, tmp_path / 'outputs.txt')
    message = f'{lines}:4: skipped the blank last line'
    assert (message in caplog.text) == skipped


def test_a_byte_order_mark_is_left_out(lines, tmp_path):
  lines.write_text('\ufeff' + 'x' * 31 + '\n\ufeffb\n')
  decode(lines, tmp_path / 'outputs.txt')
  assert utils.get_inputs_from_file(str(lines)) == ['x' * 31, '\ufeffb']
  lines.write_text('\ufeff\n')
  with pytest.raises(UserError, match="inputs.txt' is empty"):
    decode(lines, tmp_path / 'outputs.txt')


def test_other_modes_and_other_ways_to_decode_read_no_files():
  for mode in ('eval', 'perplexity_eval', 'score_from_dataset'):
    inputs.check_files(read(mode))
  gin.parse_config('infer_model.decode_fn = @utils.decode')
  inputs.check_files(read('infer'))


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (None, 'input_filename: .*puts.txt cannot be read.*No such file'),
    ('', "inputs.txt' is empty"),
    ('\n', "inputs.txt' is empty"),
    (' \n\n\n', "inputs.txt' is empty"),
    ('Käse\n', "puts.txt cannot be read: 'utf-8' .*position 1"),
    (f'short\n{"x" * 32}\n{"x" * 31}\n', r'takes 32 .*of 1 .*\(line 2 has 33 '),
    (f'{"x" * 32}\n' * 7, r'of 7 lines .*line 5 has 33 tokens\)'),
  ],
  ids=['missing', 'empty', 'line', 'blank', 'latin', 'long', 'many'],
)
def test_what_cannot(lines, tmp_path, content, message):
  lines.unlink()
  if content is not None:
    lines.write_text(content, 'latin1')
  with pytest.raises(UserError, match=f'(?s){message}'):
    decode(lines, tmp_path / 'outputs.txt')


def test_outputs_that_cannot_be_written(lines):
  with pytest.raises(UserError, match='output_filename: .*cannot be written'):
    decode(lines, '/dev/null/outputs.txt')
  (lines.parent / 'outputs-7').mkdir()
  with pytest.raises(UserError, match='outputs-7 is not a file that can'):
    decode(lines, lines.parent / 'outputs')
  with pytest.raises(UserError, match='output_filename is not set'):
    decode(lines, '')
  gin.parse_config('decode_from_file.output_filename = %gin.REQUIRED')
  with pytest.raises(UserError, match='output_filename is not set'):
    inputs.check_files(read('infer'))


def test_scores_of_files(lines, tmp_path):
  targets = tmp_path / 'targets.txt'
  targets.write_text('short\nlonger than 8\n')
  for message, *words in (
    ('targets: the model takes 8 .*line 2 has 14', str(targets), str(lines)),
    ('scores_filename: .* cannot be written', ['a'], None, '/dev/null/scores'),
    ('score_from_strings.targets is not set', None),
    (r'= \[1, 0\]: expected a path or a list of strings', [1, 0]),
    ('3 targets and 2 inputs; expected', ['a', 'b', 'c'], str(lines)),
  ):
    with pytest.raises(UserError, match=message):
      score(*words)


def test_a_language_model_scores_an_input_and_its_target_in_one_row():
  run = {'model_type': 'lm', 'sequence_length': {'targets': 8}}
  score(['x' * 8], **run)  # without an end
  score(['x' * 6], ['yy', 'y'], **run)
  score(['x' * 6, 'x', 'x', 'x' * 6], ['yy', 'y'], **run)
  with pytest.raises(UserError, match='takes 8 .*of 1 .*line 2 has 9 tokens'):
    score(['x' * 6, 'x' * 7, 'x', 'x'], ['yy', 'y'], **run)


@pytest.mark.parametrize('mode', ['export', 'export_infer', 'export_score'])
def test_an_export_needs_a_folder(mode):
  with pytest.raises(UserError, match='export_path is not set'):
    inputs.check_files(read(mode))
  inputs.check_files(read(mode, export_path='exported'))
  for path, message in (
    ('/dev/null/a', '/dev/null/a cannot be written'),
    ('~/a', '~/a: the shell replaces'),
  ):
    with pytest.raises(UserError, match=f'^utils.run.export_path: {message}'):
      inputs.check_files(read(mode, export_path=path))
