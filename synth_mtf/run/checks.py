"""What is checked before the first step of a run of T5's main.

The host waits for ever for a checkpoint or a TPU that does not come, starts
again from step 0 over checkpoints whose pointer is missing, and resumes from
checkpoints of other models. These checks say so instead. Each concern has a
module; here they are put in order.
"""

import os
import re
import socket
import traceback
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from absl import flags, logging
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer

from synth_mtf import tasks
from synth_mtf.checkpoints import comparison, folder, layer_settings
from synth_mtf.checkpoints import vocabulary as vocabularies
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import errors
from synth_mtf.host import model as models
from synth_mtf.run import (
  checkpoint_choice,
  devices,
  lock,
  packing,
  perplexity,
  settings,
  text_files,
)
from synth_mtf.run import mesh as meshes
from synth_mtf.run import model_dir as model_dirs

_MAIN = 'mesh_transformer_main.py'
_TPU_SECONDS = 10
_WHOLE_ROWS = ('train', 'perplexity_eval')  # the others decode
_HOST_PERPLEXITY_STEPS = 100
_EVALUATIONS = ('eval', 'score_eval', 'perplexity_eval')


def check_run(config: Mapping[Any, Any]) -> None:
  """Checks the run that gin describes; a finalize hook of gin.

  Does nothing where gin is used by anything other than T5's main.

  Args:
    config: gin's bindings, as every finalize hook gets them.

  Raises:
    UserError: the run cannot do what it is asked to.
  """
  del config  # get_bindings also resolves macros.
  if not _is_run_of_main():
    return
  model_dir = flags.FLAGS.model_dir
  model_dirs.check_name(model_dir)
  model_dirs.check_folder(model_dir)
  _check_tpu(flags.FLAGS.tpu)
  settings.check()
  run = gin.get_bindings(utils.run)
  settings.check_lengths(run)
  devices.check(None if flags.FLAGS.tpu else run.get('mesh_devices'))
  mode = run.get('mode', 'train')
  split = run.get('dataset_split', 'train')
  started: list[str] = []
  if mode == 'train':
    model_dirs.check_writable(model_dir)
    lock.take(model_dir)
    read = list(filter(None, [folder.latest(model_dir)]))
    _check_init_checkpoint(run.get('init_checkpoint'))
    started = list(filter(None, [None if read else run.get('init_checkpoint')]))
    _check_masters()
    _check_train_split(split)
  else:
    read = checkpoint_choice.check(model_dir, mode, run)
    _check_split(mode, split)
    if mode in _EVALUATIONS:
      model_dirs.check_writable(run.get('eval_summary_dir') or model_dir)
    text_files.check(mode, run)
  _check_data(mode, split)
  _check_vocabulary([*read, *started], run)
  _check_model(read, run)
  _check_layer_settings(read, started, run)
  if mode in _WHOLE_ROWS and run.get('sequence_length'):
    _tell_packing(run['sequence_length'])
  if mode == 'perplexity_eval':
    _tell_rows(run, split)
  if mode == 'train':
    _record(model_dir, run)


def _is_run_of_main() -> bool:
  """Whether gin is finalized for `utils.run` by T5's main.

  Other programs may read the same gin files, also in a process whose flags have
  been parsed.
  """
  calls = (frame.f_code for frame, _ in traceback.walk_stack(None))
  by_main = any(
    call.co_name == 'main' and call.co_filename.endswith(_MAIN)
    for call in calls
  )
  return by_main and not flags.FLAGS.use_model_api


def _check_tpu(tpu: Optional[str]) -> None:
  """Refuses an address that does not answer; the host would wait for ever."""
  address = urllib.parse.urlsplit(tpu or '')
  if address.scheme != 'grpc':
    return
  try:
    target = address.hostname, address.port or 8470
    socket.create_connection(target, _TPU_SECONDS).close()
  except (OSError, ValueError) as error:
    raise UserError(
      f'--tpu={tpu} does not answer: {error}. Is the TPU running, and this '
      'machine in its network and zone?'
    ) from error


def _check_init_checkpoint(path: Optional[str]) -> None:
  if path and not folder.exists(path):
    beside = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    raise UserError(
      f'utils.run.init_checkpoint: there is no checkpoint {path}; expected a '
      'path without the .index, such as <folder>/model.ckpt-1000.'
      + folder.holding(beside)
    )


def _check_masters() -> None:
  """Refuses the host's default type of checkpoints if nobody has chosen it."""
  if 'master_dtype' not in gin.get_bindings(utils.get_variable_dtype):
    raise UserError(
      "weights would be kept in bfloat16, Mesh-TensorFlow's default, and "
      'rounded at each resume: give '
      '--gin_param="utils.get_variable_dtype.master_dtype = \'float32\'" (as '
      "sizes/*.gin do), or 'bfloat16' if that is meant."
    )


def _check_split(mode: str, split: str) -> None:
  """Refuses to evaluate on the training split, which T5 does by default."""
  if split == 'train' and mode in _EVALUATIONS:
    raise UserError(
      f'mode {mode!r} would measure on the split that was trained on: give '
      '--gin_param="utils.run.dataset_split = \'validation\'".'
    )


def _check_train_split(split: str) -> None:
  """Refuses what the host refuses, later and with a traceback."""
  if split != 'train':
    raise UserError(
      f"utils.run.dataset_split = {split!r}, but mode 'train' trains on the "
      "split 'train': give --gin_param=\"utils.run.dataset_split = 'train'\", "
      'or the mode that is meant.'
    )


def _check_data(mode: str, split: str) -> None:
  """Checks each row that the run will read from official files."""
  readers = {
    'train': mesh_transformer.mesh_train_dataset_fn,
    'eval': mesh_transformer.mesh_eval_dataset_fn,
    'perplexity_eval': mesh_transformer.mesh_eval_dataset_fn,
  }
  name = mode in readers and _task_name(readers[mode])
  if name:
    tasks.check([name], [split])


def _task_name(reader: Callable[..., Any]) -> Optional[str]:
  return gin.get_bindings(reader).get('mixture_or_task_name')


def _check_vocabulary(
  checkpoints: Iterable[str], run: Mapping[str, Any]
) -> None:
  """Refuses checkpoints that were trained with another vocabulary."""
  for checkpoint in checkpoints:
    if run.get('vocabulary') is not None:
      vocabularies.check(run['vocabulary'], checkpoint)


def _check_model(read: Sequence[str], run: Mapping[str, Any]) -> None:
  """Refuses what does not fit: mesh, checkpoints, choice of variables.

  The host loads values of another shape without complaint, and if all shapes of
  a layer agree with each other, it trains that other model.
  """
  if 'mesh_shape' not in run or 'layout_rules' not in run:
    return  # the host names them
  mesh = mtf.convert_to_shape(run['mesh_shape'])
  trained = run.get('variable_filter')
  vocabulary = run.get('vocabulary')
  if vocabulary is None or not (read or mesh.size > 1 or trained):
    return
  model = models.build(
    utils.inputs_vocabulary(vocabulary).vocab_size,
    utils.targets_vocabulary(vocabulary).vocab_size,
  )
  if run.get('sequence_length'):
    meshes.check(
      model,
      mesh,
      run['layout_rules'],
      run.get('batch_size', ('tokens_per_replica', 2048)),
      run['sequence_length'],
    )
  if isinstance(trained, str) and not any(
    re.search(trained, name) for name in model.variables
  ):
    raise UserError(
      f'utils.run.variable_filter = {trained!r} matches no variable: nothing '
      'would be trained. It is a regular expression over names such as '
      f'{next(iter(model.variables))}.'
    )
  for checkpoint in read:
    comparison.require_same(model.variables.values(), Checkpoint(checkpoint))


def _tell_packing(lengths: Mapping[str, int]) -> None:
  with errors.explained():
    notice = packing.notice(lengths)
  if notice:
    logging.warning('%s', notice)  # which is shown; TensorFlow's are not


def _tell_rows(run: Mapping[str, Any], split: str) -> None:
  name = _task_name(mesh_transformer.mesh_eval_dataset_fn)
  if not name:
    return
  batch = run.get('batch_size', ('tokens_per_replica', 2048))
  if not isinstance(batch, int):
    batch = utils.compute_batch_size(
      run['sequence_length'], run['mesh_shape'], run['layout_rules'], batch
    )
  steps = run.get('perplexity_eval_steps', _HOST_PERPLEXITY_STEPS)
  tf.logging.info(
    '%s', perplexity.notice(tasks.rows(name, split), batch * steps)
  )


def _check_layer_settings(
  read: Sequence[str], started: Sequence[str], run: Mapping[str, Any]
) -> None:
  """Refuses checkpoints whose shapes agree and which mean something else."""
  model = _stacks(run) if read or started else None
  if model is None:
    return
  for checkpoint in read:
    layer_settings.check_resumed(model, checkpoint)
  for checkpoint in started:
    layer_settings.check_started(model, checkpoint)


def _record(model_dir: str, run: Mapping[str, Any]) -> None:
  """Writes beside the checkpoints to be what later runs will want to know."""
  if run.get('vocabulary') is not None:
    vocabularies.record(run['vocabulary'], model_dir)
  model = _stacks(run)
  if model is not None:
    layer_settings.record(model, model_dir)


def _stacks(run: Mapping[str, Any]) -> Optional[models.Transformer]:
  """The model's layers, which are not called; None for the host's oddities."""
  vocabulary = run.get('vocabulary')
  if vocabulary is None or run.get('model_type') == 'bi_student_teacher':
    return None
  return models.make_transformer(
    utils.inputs_vocabulary(vocabulary).vocab_size,
    utils.targets_vocabulary(vocabulary).vocab_size,
  )
