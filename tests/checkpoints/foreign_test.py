"""`synth-mtf checkpoint convert` on a checkpoint that somebody else made."""

import gin
import pytest

from synth_mtf import cli
from synth_mtf.host import gin_files
from tests import model

pytestmark = pytest.mark.slow  # builds whole models


@pytest.fixture
def trap(tmp_path, monkeypatch):
  """A file that a module makes when it is imported."""
  (tmp_path / 'modules').mkdir()
  (tmp_path / 'modules' / 'synth_mtf_trap.py').write_text(
    f'open({str(tmp_path / "sprung")!r}, "w").close()\n'
  )
  monkeypatch.syspath_prepend(tmp_path / 'modules')
  return tmp_path / 'sprung'


CONFIG = """
import synth_mtf
import mesh_tensorflow.transformer.transformer_layers
SyntheticAttention.mixing = 'sum'
"""


@pytest.mark.parametrize(
  'statement',
  [
    'import synth_mtf_trap',
    'import synth_mtf_trap as t5',
    'from synth_mtf_trap import t5',
    'import synth_mtf_trap.synth_mtf',
    "include '{folder}/other.gin'",
  ],
)
def test_a_statement_that_may_run_code_is_left_out(tmp_path, trap, statement):
  statement = statement.format(folder=tmp_path)
  (tmp_path / 'other.gin').write_text('import synth_mtf_trap\n')
  assert gin_files.parse_foreign(statement + CONFIG, 'a.gin') == [statement]
  assert gin.query_parameter('SyntheticAttention.mixing') == 'sum'
  assert not trap.exists()


def test_a_statement_over_two_lines(trap):
  with pytest.raises(Exception, match='syntax'):
    gin_files.parse_foreign('import \\\n synth_mtf_trap' + CONFIG, 'a.gin')
  assert not trap.exists()


def test_the_command_runs_it_only_when_told(tmp_path, trap, capsys):
  source = model.write(tmp_path / 'source')
  config = tmp_path / 'source' / 'operative_config.gin'
  gin_files.parse(model.files('vanilla'), model.TINY)
  config.write_text('import synth_mtf_trap\n' + gin.config_str())
  gin.clear_config()
  words = [f'--gin_file={file}' for file in model.files('random_vanilla')]
  words += [f'--gin_param={binding}' for binding in model.TINY]
  command = ['checkpoint', 'convert', str(source)]
  assert cli.main([*command, str(tmp_path / 'one'), *words]) == 0
  assert 'skipped `import synth_mtf_trap`' in capsys.readouterr().out
  assert not trap.exists()
  trusted = f'--source_gin_file={config}'
  assert cli.main([*command, str(tmp_path / 'two'), *words, trusted]) == 0
  assert trap.exists()
