"""Checks where the examples of a run come from: its files, or a cache.

Official files and task files are read in Python, so that only this process can
read them. Where another process runs the input pipeline, such as the host of a
TPU that --tpu names, the run needs a cache by `synth-mtf cache`.
"""

import gin
import seqio

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.host.run_config import RunConfig
from synth_mtf.run import inputs
from synth_mtf.run.ways import Way
from synth_mtf.storage import filesystem
from synth_mtf.tasks import cached
from synth_mtf.tasks.files.source import FilesDataSource

_READERS = (
  'mesh_train_dataset_fn',
  'mesh_eval_dataset_fn',
  'mesh_inference_dataset_fn',
)


def check(run: RunConfig, way: Way) -> bool:
  """Checks that a run can read its examples; returns whether from a cache.

  If the settings name a cache, T5's functions are bound to read it.
  """
  cache_dir = tasks.settings().cache_dir
  if cache_dir is not None:
    seqio.add_global_cache_dirs([cache_dir])
    with gin.unlock_config():
      for function in _READERS:
        gin.bind_parameter(f'{function}.use_cached', True)
  reader = _reader(run)
  if reader is None:
    return False
  settings = gin.get_bindings(reader)
  name = settings.get('mixture_or_task_name')
  if not name:
    return False
  if settings.get('use_cached'):
    if not seqio.get_global_cache_dirs():
      raise UserError(
        f'{reader}.use_cached is True, but no cache is set: give --cache_dir '
        f'(SYNTH_MTF_CACHE_DIR), or --gin_param="{reader}.use_cached = False" '
        'to read the files themselves.'
      )
    split = settings.get('dataset_split', run.dataset_split)
    with filesystem.named_by(tasks.data_settings.name_of('cache_dir')):
      cached.check(name, split)
    return True
  other_reader = way.other_reader()
  if other_reader:
    _check_needs_no_files(name, other_reader)
  return False


def _reader(run: RunConfig) -> str | None:
  """Returns the name of T5's function that reads the examples of a mode."""
  if run.mode == 'train':
    return 'mesh_train_dataset_fn'
  if 'eval' in run.mode or run.mode == 'score_from_dataset':
    return 'mesh_eval_dataset_fn'
  if run.mode == 'infer' and not inputs.decodes_a_file():
    return 'mesh_inference_dataset_fn'
  return None


def _check_needs_no_files(name: str, other_reader: str) -> None:
  """Refuses tasks whose files only this process can read."""
  unreadable = []
  for task in seqio.get_subtasks(tasks.get(name)):
    source = getattr(task.source, 'chosen', task.source)
    if isinstance(source, FilesDataSource):
      unreadable.append(task.name)
  if unreadable:
    raise UserError(
      f'{other_reader} reads the data of this run in another process, and the '
      f'files of {", ".join(unreadable)} are read in this one. Write them to a '
      'folder or bucket that it can read:\n'
      f'{cached.command(name, "gs://BUCKET/cache")}\n'
      'and give the run --cache_dir=gs://BUCKET/cache'
    )
