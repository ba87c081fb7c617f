"""Checks where the examples of a run come from: its files, or a cache.

Official files and task files are read in Python, so that only this process can
read them. Where another process runs the input pipeline, such as the host of a
TPU that --tpu names, the run needs a cache by `synth-mtf cache`.
"""

import json
import os

import gin
import seqio
import tensorflow.compat.v1 as tf

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.host import explanations
from synth_mtf.host.run_config import RunConfig
from synth_mtf.run import inputs
from synth_mtf.tasks import cached
from synth_mtf.tasks.files.source import FilesDataSource

_READERS = (
  'mesh_train_dataset_fn',
  'mesh_eval_dataset_fn',
  'mesh_inference_dataset_fn',
)
_SECONDS = 60  # to reach another process


def check(run: RunConfig) -> bool:
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
    cached.check(name, settings.get('dataset_split', run.dataset_split))
    return True
  machine = _other_process(run.tpu)
  if machine:
    _check_needs_no_files(name, machine)
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


def _check_needs_no_files(name: str, machine: str) -> None:
  """Refuses tasks whose files only this process can read."""
  unreadable = []
  for task in seqio.get_subtasks(tasks.get(name)):
    source = getattr(task.source, 'chosen', task.source)
    if isinstance(source, FilesDataSource):
      unreadable.append(task.name)
  if unreadable:
    raise UserError(
      f'{machine} reads the data of this run in another process, and the files '
      f'of {", ".join(unreadable)} are read in this one. Write them to a '
      'folder or bucket that it can read:\n'
      f'{cached.command(name, "gs://BUCKET/cache")}\n'
      'and give the run --cache_dir=gs://BUCKET/cache'
    )


def _other_process(tpu: str | None) -> str:
  """Returns what runs the input pipeline in another process; '' if none."""
  if tpu and tpu != 'local':
    return f'--tpu={tpu}'
  config = os.environ.get('TF_CONFIG') or '{}'
  try:
    master = json.loads(config).get('session_master')
  except (ValueError, AttributeError) as error:
    raise UserError(
      f'TF_CONFIG is {config!r}: {error}; expected JSON such as '
      '{"session_master": "grpc://HOST:PORT"}'
    ) from error
  if master and not _is_this_process(master):
    return f'the session master {master} (TF_CONFIG)'
  return ''


def _is_this_process(master: str) -> bool:
  """Whether a session can call a Python function of this process."""
  timeout = tf.ConfigProto(operation_timeout_in_ms=1000 * _SECONDS)
  with tf.Graph().as_default():
    called = tf.numpy_function(lambda: True, [], tf.bool)
    try:
      with tf.Session(master, config=timeout) as session:
        return bool(session.run(called))
    except (
      tf.errors.UnavailableError,
      tf.errors.DeadlineExceededError,
    ) as error:
      raise UserError(
        f'the session master {master} of TF_CONFIG does not answer: '
        f'{explanations.cause(error)}. Start it, or unset TF_CONFIG.'
      ) from error
    except tf.errors.OpError:  # it knows no such function
      return False
