"""Lines to decode or to score, checked before a run reads them."""

import gin
import pytest

from synth_mtf.errors import UserError
from synth_mtf.run import config, text_files
from synth_mtf.tasks import vocabulary

LENGTHS = {'inputs': 32, 'targets': 8}


@pytest.fixture
def inputs(tmp_path):
  path = tmp_path / 'inputs.txt'
  path.write_text('a\nb\n')
  return path


def check(mode, **run):
  settings = {'mode': mode, 'sequence_length': LENGTHS, 'mesh_shape': '', **run}
  for name, value in settings.items():
    gin.bind_parameter(f'utils.run.{name}', value)
  gin.bind_parameter('utils.run.vocabulary', vocabulary.load('bytes'))
  text_files.check(config.read('folder'))


def decode(inputs, outputs, **run):
  gin.parse_config(f"""
      infer_model.decode_fn = @decode_from_file
      decode_from_file.input_filename = {str(inputs)!r}
      decode_from_file.output_filename = {str(outputs)!r}
  """)
  check('infer', **run)


def score(targets, inputs=None, scores=None):
  gin.parse_config(f"""
      score_from_strings.inputs = {inputs!r}
      score_from_strings.targets = {targets!r}
      save_scores.scores_filename = {scores!r}
  """)
  check('score_from_strings')


def test_what_can_be_decoded(inputs, tmp_path):
  inputs.write_text('x' * 31 + '\n' + 'ä' * 15)
  decode(inputs, tmp_path / 'not' / 'made' / 'yet' / 'outputs.txt')
  decode(inputs, 'gs://nobody/outputs.txt')
  inputs.write_text('x' * 32)  # a language model reads no end of its inputs
  decode(inputs, tmp_path / 'outputs.txt', model_type='lm')


def test_other_modes_and_other_ways_to_decode_read_no_files():
  for mode in ('eval', 'perplexity_eval', 'score_from_dataset'):
    check(mode)
  gin.parse_config('infer_model.decode_fn = @utils.decode')
  check('infer')


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda path: path.unlink(), "puts.txt' cannot be read.*No such file"),
    (lambda path: (path.unlink(), path.mkdir()), "inputs.txt' is empty"),
    (lambda path: path.write_text(''), "inputs.txt' is empty"),
    (lambda path: path.write_text('\n'), "inputs.txt' is empty"),
    (lambda path: path.write_text('  \n'), "inputs.txt' is empty"),
    (
      lambda path: path.write_bytes('Käse\n'.encode('latin1')),
      'is not UTF-8 .byte 1',
    ),
    (
      lambda path: path.write_text(f'short\n{"x" * 32}\n{"x" * 31}\n'),
      r'takes 32 .* of 1 lines \(line 2 has 33 tokens\)',
    ),
    (
      lambda path: path.write_text(f'{"x" * 32}\n' * 7),
      r'of 7 lines .*line 5 has 33 tokens\)',
    ),
  ],
  ids=['missing', 'folder', 'empty', 'line', 'blank', 'latin', 'long', 'many'],
)
def test_what_cannot(inputs, tmp_path, make, message):
  make(inputs)
  with pytest.raises(UserError, match=f'(?s){message}'):
    decode(inputs, tmp_path / 'outputs.txt')


def test_outputs_that_cannot_be_written(inputs):
  with pytest.raises(UserError, match='output_filename .*cannot be written'):
    decode(inputs, '/dev/null/outputs.txt')
  gin.parse_config('decode_from_file.output_filename = %gin.REQUIRED')
  with pytest.raises(UserError, match='output_filename is not set'):
    check('infer')


@pytest.mark.parametrize(
  ('inputs', 'targets'), [(2, 2), (2, 4), (2, 1), (1, 3), (None, 3)]
)
def test_texts_that_pair(inputs, targets):
  score(['a'] * targets, inputs and ['b'] * inputs)


@pytest.mark.parametrize(('inputs', 'targets'), [(2, 3), (3, 2)])
def test_texts_that_do_not(inputs, targets):
  with pytest.raises(UserError, match=f'{inputs} inputs and {targets} targets'):
    score(['a'] * targets, ['b'] * inputs)


def test_scores_of_files(inputs, tmp_path):
  targets = tmp_path / 'targets.txt'
  targets.write_text('short\nlonger than 8\n')
  with pytest.raises(
    UserError, match='targets: the model takes 8 .*line 2 has 14'
  ):
    score(str(targets), str(inputs))
  with pytest.raises(UserError, match='scores_filename .* cannot be written'):
    score(['a'], scores='/dev/null/scores')
  with pytest.raises(UserError, match='score_from_strings.targets is not set'):
    score(None)


@pytest.mark.parametrize('mode', ['export', 'export_infer', 'export_score'])
def test_an_export_needs_a_folder(mode):
  with pytest.raises(UserError, match='export_path is not set'):
    check(mode)
  check(mode, export_path='exported')
