"""The settings of a run, each resolved when it is asked for."""

import gin
import mesh_tensorflow as mtf
import pytest

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host.run_config import RunConfig
from synth_mtf.tasks import vocabulary


def test_settings_are_those_of_gin_or_else_the_hosts_or_given():
  gin_files.parse(
    [], ["utils.run.model_type = 'lm'", 'utils.run.mode = %M', "M = 'eval'"]
  )
  run = RunConfig(model_dir='folder')
  assert (run.model_type, run.mode, run.model_dir) == ('lm', 'eval', 'folder')
  assert (run.init_checkpoint, run.dataset_split) == (None, 'train')
  assert run.lengths == {'inputs': 512, 'targets': 512}
  with pytest.raises(AttributeError, match="no attribute 'nothing'"):
    run.nothing  # noqa: B018


def test_a_function_is_called_only_for_its_own_setting():
  """Such as the one for a TPU's mesh, which needs the TPU's name."""
  gin_files.parse([])
  run = RunConfig()
  assert run.layout
  with pytest.raises(RuntimeError, match='tpu_mesh_shape'):
    run.mesh  # noqa: B018
  with pytest.raises(RuntimeError, match='tpu_mesh_shape'):
    run.resolve()


def test_without_any_configuration():
  gin.clear_config()
  run = RunConfig()
  assert run.lengths is None
  assert str(run.layout) == str(mtf.convert_to_layout_rules(''))


@pytest.mark.parametrize('length', [3, {'inputs': 3, 'targets': 3}])
def test_one_length_is_that_of_both_features(length):
  gin_files.parse([], [f'utils.run.sequence_length = {length}'])
  assert RunConfig().lengths == {'inputs': 3, 'targets': 3}


def test_vocabularies_are_those_of_the_run_or_of_its_task(monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_VOCABULARY', 'bytes')
  task = "get_vocabulary.mixture_or_task_name = 'synth_glue_sst2_v002'"
  gin_files.parse([], [task])
  for known in RunConfig().vocabularies:
    assert known.encode('a') == [100]
  given = vocabulary.load('bytes')
  with gin.unlock_config():
    gin.bind_parameter('run.vocabulary', (given, given))
  assert [x.vocab_size for x in RunConfig().vocabularies] == [359, 359]


@pytest.mark.parametrize(
  'length',
  [
    "{'inputs': 8, 'targets': 0}",
    "'32'",
    '[1, 2]',
    "{'inputs': 'x'}",
    '-1',
    '0',
  ],
)
def test_lengths_of_another_type(length):
  """Nobody checks the types in the configuration of another run."""
  gin_files.parse([], [f'utils.run.sequence_length = {length}'])
  with pytest.raises(UserError, match='sequence_length = .*; expected lengths'):
    RunConfig().lengths  # noqa: B018
