"""The four lines of Python, against NumPy and in batches of any size."""

import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import gin
import numpy as np
import pytest

import synth_mtf
from synth_mtf.checkpoints import identity
from synth_mtf.checkpoints.folder import Folder
from synth_mtf.errors import UserError
from synth_mtf.tasks import vocabulary
from tests import model
from tests.checkout import CHECKOUT
from tests.cli import command, t5_main
from tests.cli.attention_test import MODULE

pytestmark = pytest.mark.slow  # decodes

BINDINGS = (
  "utils.run.sequence_length = {'inputs': 64, 'targets': 16}",
  "get_vocabulary.mixture_or_task_name = 'synth_text_span_corruption'",
)
INPUTS = ['cola sentence: A.', 'b', 'rte sentence1: The boat is red.']
TARGETS = ['yes', 'no', 'entailment']


def write(folder, *bindings, variant='random_vanilla'):
  """Writes a run of a tiny model of bytes, with random weights."""
  most = 'Unitransformer.max_length = 64'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(model, 'VOCAB', 384)
    model.write(folder, variant, [*BINDINGS, most, *bindings])
  (folder / 'operative_config.gin').write_text(gin.config_str())
  gin.clear_config()
  identity.record_vocabulary(vocabulary.load('bytes'), Folder(str(folder)))
  return folder


PROGRAM = """
import sys
import synth_mtf
model = synth_mtf.load(sys.argv[1])
model.predict(['cola sentence: A.'])
model.score(['cola sentence: A.'], ['yes'])
"""


def printed(folder, *words):
  """Returns what a process prints, with TensorFlow's log as we set it."""
  environment = {**os.environ, 'SYNTH_MTF_PROGRESS_SECONDS': '900'}
  environment.pop('TF_CPP_MIN_LOG_LEVEL', None)
  done = subprocess.run(
    words,
    capture_output=True,
    text=True,
    cwd=folder,
    env=environment,
    timeout=900,
    check=False,
  )
  assert not done.returncode, done.stderr
  return done.stdout, done.stderr


def test_nothing_is_printed(folder, tmp_path):
  words = sys.executable, '-c', PROGRAM, folder
  assert printed(tmp_path, *words) == ('', '')


def test_a_command_prints_its_own_lines_alone(folder, tmp_path):
  words = command.PROGRAM, 'attention', folder, '--text=a'
  line = 'Syn (R+V), step 7, 1 example: attention.npz\n'
  assert printed(tmp_path, *words) == (line, '')


def test_tables_limit_the_length_if_the_run_does_not(tmp_path):
  """As after `checkpoint import`; their size is no power of two."""
  limits = 'utils.run.sequence_length = None', 'Random.max_length = 21'
  write(tmp_path, *limits, 'Random.memory_max_length = None')
  with synth_mtf.load(tmp_path) as trained:
    assert len(trained.predict(['a' * 20])) == 1
    with pytest.raises(UserError, match='has 22 tokens, and .* takes 21'):
      trained.predict(['a' * 21])


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return write(tmp_path_factory.mktemp('trained'))


def test_batches_change_nothing_and_gin_is_left_alone(folder, tmp_path):
  gin.parse_config('SelfAttention.num_heads = 77')
  before = gin.config_str()
  copy = shutil.copytree(folder, tmp_path / 'run')
  with (
    synth_mtf.load(copy, step=7) as one,
    synth_mtf.load(folder, step=7) as other,
  ):
    shutil.rmtree(copy)
    assert gin.config_str() == before
    for beams in (1, 4):
      texts = one.predict(INPUTS, beams=beams)
      assert texts == [other.predict([x], beams=beams)[0] for x in INPUTS]
    scores = one.score(INPUTS, TARGETS)
    alone = [
      one.score([x], [y])[0] for x, y in zip(INPUTS, TARGETS, strict=True)
    ]
    np.testing.assert_allclose(scores, alone, rtol=1e-4)
    assert max(scores) < 0 and one.predict([]) == []
    found = one.attention(INPUTS, TARGETS)
    assert found.stacks['cross'].weights.shape == (2, 3, 3, 11, 32)
  assert gin.config_str() == before
  with pytest.raises(UserError, match='closed'):
    one.predict(INPUTS)


def infer(folder, decoding):
  """Decodes `DECODED` with T5's main; returns the outputs."""
  texts, outputs = folder / 'inputs.txt', folder / 'outputs.txt'
  texts.write_text('\n'.join(DECODED))
  files = [folder / 'operative_config.gin', 'infer.gin', decoding]
  settings = [
    'infer_checkpoint_step = 7',
    f"input_filename = '{texts}'",
    f"output_filename = '{outputs}'",
    'utils.run.batch_size = 8',
    "utils.run.mesh_shape = 'model:1,batch:1'",
    "utils.run.mesh_devices = ['']",
    "utils.get_variable_dtype.activation_dtype = 'float32'",
    "utils.get_variable_dtype.slice_dtype = 'float32'",
  ]
  assert not t5_main.synth_mtf_transformer(
    f'--model_dir={folder}',
    '--vocabulary=bytes',
    *(f'--gin_file={file}' for file in files),
    *(f'--gin_param={setting}' for setting in settings),
  )
  return pathlib.Path(f'{outputs}-7').read_text().split('\n')[:-1]


DECODED = [f'{number} is a number' for number in range(0, 1600, 100)]


@pytest.mark.parametrize(
  'variant, bindings',
  [
    (None, []),
    ('random_vanilla', []),
    ('random_dense', ['Bitransformer.decode.alpha = 3.0']),
    ('dense', ['beam_search.beam_search.num_prefilter = 0']),
  ],
)
def test_it_decodes_what_the_run_decodes(tmp_path, variant, bindings):
  """With the host's prefilter, and what the run's gin files bind."""
  limit = 'Bitransformer.decode.max_decode_length = 12'
  write(tmp_path, limit, *bindings, variant=variant)
  with synth_mtf.load(tmp_path) as found:
    for decoding, beams in (('beam_search.gin', 4), ('greedy_decode.gin', 1)):
      expected = infer(tmp_path, decoding)
      lines = [
        ' '.join(text.splitlines())  # as in a file of one line each
        for text in found.predict(DECODED, beams=beams)
      ]
      assert lines == expected, beams


def test_a_fork_says_that_it_cannot_compute(folder):
  """Instead of waiting for threads that were not forked."""
  results: Any = multiprocessing.get_context('fork').SimpleQueue()
  with synth_mtf.load(folder) as one:
    for call in (lambda: one.predict(['a']), lambda: synth_mtf.load(folder)):
      child = os.fork()
      if not child:
        try:
          call()
        except UserError as error:
          results.put(str(error))
        finally:
          os._exit(0)
      deadline = time.monotonic() + 60
      while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
          os.kill(child, signal.SIGKILL)
          os.waitpid(child, 0)
          pytest.fail('the fork waits')
        time.sleep(0.1)
      assert not results.empty()
      assert "method 'spawn'" in results.get()


def test_the_vocabulary_of_a_task_of_a_module(tmp_path, monkeypatch):
  own = "get_vocabulary.mixture_or_task_name = 'task_of_the_own_module'"
  write(tmp_path / 'run', own)
  (tmp_path / 'run' / 'vocabulary.json').unlink()
  module = MODULE.replace('task_of_a_module', 'task_of_the_own_module')
  (tmp_path / 'own_module.py').write_text(module)
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(UserError, match='needs --module_import=<module>'):
    synth_mtf.load(tmp_path / 'run')
  with synth_mtf.load(tmp_path / 'run', module_import='own_module') as one:
    assert np.isfinite(one.score(INPUTS, TARGETS)).all()
  with pytest.raises(UserError, match="module_import nosuch: .*'nosuch'"):
    synth_mtf.load(tmp_path / 'run', module_import=['own_module', 'nosuch'])


def test_the_notebook(folder, tmp_path, monkeypatch):
  (tmp_path / 'docs').mkdir()
  (tmp_path / 'synth-mtf-demo').mkdir()
  os.symlink(folder, tmp_path / 'synth-mtf-demo' / 'random_vanilla')
  monkeypatch.chdir(tmp_path / 'docs')
  book = json.loads((CHECKOUT / 'docs' / 'python.ipynb').read_text())
  names: dict[str, Any] = {}
  for cell in book['cells']:
    if cell['cell_type'] == 'code':
      exec(''.join(cell['source']), names)
  assert len(names['outputs']) == len(names['scores']) == 2
