"""The shipped samples are in the official layouts."""

from synth_mtf import paths, tasks
from tests.official_files import VALIDATION_ROWS


def test_every_task_accepts_the_samples(tmp_path, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', paths.samples_path())
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path))
  names = ['synth_en_mix', 'synth_glue_wnli_v002']
  tasks.check(names, ['train', 'validation'])
  task = tasks.get('synth_glue_wnli_v002')
  assert task.source.num_input_examples('validation') == VALIDATION_ROWS
