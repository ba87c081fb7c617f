"""What is checked before the first step of a run of T5's main.

The host waits for ever for a checkpoint or a TPU that does not come, starts
again from step 0 over checkpoints whose pointer is missing, and resumes from
checkpoints of other models. These checks say so instead.
"""

import inspect
import os
import re
import socket
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Optional

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from absl import flags
from mesh_tensorflow.transformer import utils
from t5.models import mesh_transformer

from synth_mtf import tasks
from synth_mtf.analysis import packing
from synth_mtf.checkpoints import comparison, folder
from synth_mtf.checkpoints import vocabulary as vocabularies
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host import errors
from synth_mtf.host import model as models
from synth_mtf.run import mesh as meshes
from synth_mtf.run import perplexity

_MAIN = 'mesh_transformer_main.py'
_TPU_SECONDS = 10
_WHOLE_ROWS = ('train', 'perplexity_eval')  # the others decode
_HOST_PERPLEXITY_STEPS = 100
_EVALUATIONS = ('eval', 'score_eval', 'perplexity_eval')


def check_writable(model_dir: str) -> None:
  """Checks that the model folder is there or can be made.

  Raises:
    UserError: it cannot.
  """
  try:
    tf.io.gfile.makedirs(model_dir)
  except tf.errors.OpError as error:
    raise UserError(
      f'--model_dir {model_dir} cannot be made: {error.message}. Give a folder '
      'that you may write to.'
    ) from error


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
  _check_tpu(flags.FLAGS.tpu)
  run = gin.get_bindings(utils.run)
  mode = run.get('mode', 'train')
  model_dir = flags.FLAGS.model_dir
  split = run.get('dataset_split', 'train')
  if mode == 'train':
    _check_resume(model_dir)
    _check_init_checkpoint(run.get('init_checkpoint'))
    _check_masters()
  else:
    _check_has_checkpoint(model_dir, mode)
    _check_split(mode, split)
  _check_data(mode, split)
  _check_vocabulary(model_dir, run)
  _check_model(model_dir, run)
  if mode in _WHOLE_ROWS and run.get('sequence_length'):
    _tell_packing(run['sequence_length'])
  if mode == 'perplexity_eval':
    _tell_rows(run, split)
  if mode == 'train' and run.get('vocabulary') is not None:
    vocabularies.record(run['vocabulary'], model_dir)


def _is_run_of_main() -> bool:
  """Whether gin is finalized for `utils.run` by T5's main.

  Other programs may read the same gin files, also in a process whose flags have
  been parsed.
  """
  calls = inspect.stack(0)
  by_main = any(
    call.function == 'main' and call.filename.endswith(_MAIN) for call in calls
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


def _check_resume(model_dir: str) -> None:
  """Refuses to start at step 0 over checkpoints that are there."""
  written = folder.written(model_dir)
  pointer = os.path.join(model_dir, folder.POINTER)
  if written and not tf.io.gfile.exists(pointer):
    raise UserError(
      f'{model_dir} holds {written[-1]}, but the file {pointer} that points at '
      'it is missing: training would start again at step 0 and overwrite it. '
      f'Write the line `{folder.pointer_line(written[-1])}` into that file '
      'to resume, or choose another --model_dir.'
    )
  latest = tf.train.latest_checkpoint(model_dir)
  pointed = tf.train.get_checkpoint_state(model_dir)
  if pointed and not latest:
    raise UserError(
      f'{pointer} points at {pointed.model_checkpoint_path}, which is not '
      'there or has no .index file.' + _holding(model_dir)
    )


def _check_init_checkpoint(path: Optional[str]) -> None:
  if path and not tf.train.checkpoint_exists(path):
    raise UserError(
      f'utils.run.init_checkpoint: there is no checkpoint {path}; expected a '
      'path without the .index, such as <folder>/model.ckpt-1000.'
      + _holding(os.path.dirname(path))
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


def _check_has_checkpoint(model_dir: str, mode: str) -> None:
  if not folder.written(model_dir):
    raise UserError(
      f'mode {mode!r} needs a checkpoint, and --model_dir {model_dir} has '
      'none. Give the folder of a run that has trained.'
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


def _check_vocabulary(model_dir: str, run: Mapping[str, Any]) -> None:
  """Refuses checkpoints that were trained with another vocabulary."""
  latest = tf.train.latest_checkpoint(model_dir)
  checkpoints = [latest] if latest else [run.get('init_checkpoint')]
  for checkpoint in filter(None, checkpoints):
    if run.get('vocabulary') is not None:
      vocabularies.check(run['vocabulary'], checkpoint)


def _check_model(model_dir: str, run: Mapping[str, Any]) -> None:
  """Refuses what does not fit: mesh, checkpoint, choice of variables.

  The host loads values of another shape without complaint, and if all shapes of
  a layer agree with each other, it trains that other model.
  """
  latest = tf.train.latest_checkpoint(model_dir)
  mesh = mtf.convert_to_shape(run['mesh_shape'])
  trained = run.get('variable_filter')
  vocabulary = run.get('vocabulary')
  if vocabulary is None or not (latest or mesh.size > 1 or trained):
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
  if latest:
    differences = comparison.of_graph(model.graph, Checkpoint(latest)).message()
    if differences:
      raise UserError(differences)


def _tell_packing(lengths: Mapping[str, int]) -> None:
  with errors.explained():
    notice = packing.notice(lengths)
  if notice:
    tf.logging.warning('%s', notice)


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


def _holding(path: str) -> str:
  found = folder.written(path)
  return f' {path} holds {", ".join(found)}.' if found else ''
