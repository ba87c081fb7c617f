"""Checks a run of T5's main before its first step.

The host waits forever for a missing checkpoint, restarts from step 0 if the
file `checkpoint` is missing, and resumes from checkpoints of other models.
These checks report such mistakes instead.
"""

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import gin
import mesh_tensorflow as mtf
import seqio
from absl import logging
from mesh_tensorflow.transformer import utils

from synth_mtf import tasks
from synth_mtf.checkpoints import comparison, files, identity
from synth_mtf.checkpoints.folder import Folder, exists
from synth_mtf.errors import UserError
from synth_mtf.host import explanations, model as models
from synth_mtf.host.run_config import RunConfig
from synth_mtf.run import (
  config,
  current,
  datasets,
  flags_of_model_api,
  inputs,
  model_dir as model_dirs,
  origin,
  output,
  ways,
)
from synth_mtf.storage import atomic, filesystem
from synth_mtf.tasks import inspection


@contextlib.contextmanager
def checked_run(model_dir: str, tpu: str | None) -> Iterator[dict[str, Any]]:
  """Checks a run of T5's main and, if it trains, locks its folder meanwhile.

  Args:
    model_dir: as in --model_dir.
    tpu: as in --tpu.

  Yields:
    Arguments of `utils.run`: the folder in which the run may write, and what
    neither gin nor the caller sets.
  """
  given = current.run()
  with contextlib.ExitStack() as held:
    way = ways.chosen(given.way, tpu)
    if way is not given.way:
      run = dataclasses.replace(given, way=way)
      held.enter_context(current.begun(run))
      model_dir = held.enter_context(way.joined(model_dir))
      held.enter_context(way.entered())
    more = check_run(model_dir, way, held)
    yield {'model_dir': model_dir, **more}


def takes_types_of_gin() -> bool:
  """Whether gin decides in which type the run without --tpu computes."""
  return ways.chosen(current.run().way, None).takes_types_of_gin()


def check_run(
  model_dir: str, way: ways.Way, held: contextlib.ExitStack
) -> dict[str, Any]:
  """Checks the configured run; if it trains, locks and marks its folder.

  Returns arguments of `utils.run` that nothing sets.

  Args:
    model_dir: as in --model_dir; created if it does not exist.
    way: where the run computes.
    held: keeps the lock until the run ends.
  """
  with explanations.explained():
    flags_of_model_api.check()
    model_dirs.check(model_dir)
    config.check_values()
    more = _default_mesh(way)
    run = config.read(model_dir, way.tpu)
    trains = run.mode == 'train'
    way.check(run)
    with filesystem.named_by('--model_dir'):
      if trains:
        folder = _locked(model_dir, held)
        checkpoint, is_new = training_start(run, folder)
        checkpoints = [checkpoint] if checkpoint else []
      else:
        folder = Folder(model_dir)
        checkpoints, is_new = _evaluated(run, folder), False
    _check_has_data(run)
    is_cached = datasets.check(run, way)
    if run.vocabulary is not None:
      for path in checkpoints:
        with filesystem.named_by(_setting_of_checkpoint(is_new)):
          identity.check_vocabulary(run.vocabulary, path)
    model = build(run, way)
    if model is not None:
      _check_model(run, way, model, checkpoints, is_new)
    check_task(run, is_cached)
    if trains and run.vocabulary is not None:
      identity.record_vocabulary(run.vocabulary, folder)
      origin.record(run.vocabulary, current.run().started, model_dir)
    if trains and model is not None:
      identity.record_model(model.transformer, folder)
  return more


def _default_mesh(way: ways.Way) -> dict[str, Any]:
  """Sets the mesh of a run that divides nothing among devices, and says so.

  That is one without a mesh, or with a mesh of one core, as gin/runs/cpu.gin
  has it and each run that continues from it.

  Returns it as an argument of `utils.run`: it belongs to the devices that are
  here, and operative_config.gin does not keep what a caller gives.
  """
  run, mesh = RunConfig(), way.default_mesh
  cores = mtf.convert_to_shape(mesh).size
  is_one_of_many = run.names_mesh and run.mesh.size == 1 < cores
  if not mesh or (run.names_mesh and not is_one_of_many):
    return {}
  text = f'Mesh: {mesh}, all devices'
  if is_one_of_many:
    text += f', in place of one core ({run.mesh.to_string})'
  text += '; utils.run.mesh_shape sets another one.'
  if not is_one_of_many and run.model_parallelism != 1:
    text += (
      ' utils.tpu_mesh_shape.model_parallelism = '
      f'{run.model_parallelism!r} has no effect without tpu_topology.'
    )
  output.console().line(text)
  with gin.unlock_config():
    gin.bind_parameter('utils.run.mesh_shape', mesh)
  return {'mesh_shape': mesh}


def _setting_of_checkpoint(is_new: bool) -> str:
  """Returns what brought the checkpoint that a run reads."""
  return 'utils.run.init_checkpoint' if is_new else '--model_dir'


def _locked(model_dir: str, held: contextlib.ExitStack) -> Folder:
  """Locks a folder, and removes what an interrupted save left there."""
  atomic.check_writable(model_dir)
  is_locked = held.enter_context(model_dirs.locked(model_dir))
  folder = Folder(model_dir)
  if is_locked:
    model_dirs.clear(folder)
  return folder


def _evaluated(run: RunConfig, folder: Folder) -> list[str]:
  """Returns the checkpoints that a run reads, and checks its other files."""
  checkpoints = inputs.checkpoints(run, folder)
  if 'eval' not in run.mode:
    inputs.check_files(run)
  elif run.dataset_split == 'train':  # T5's default
    raise UserError(
      f'mode {run.mode!r} would measure on the split that was trained on: '
      'give --gin_param="utils.run.dataset_split = \'validation\'".'
    )
  elif run.eval_summary_dir:
    setting = 'utils.run.eval_summary_dir'
    atomic.check_writable(run.eval_summary_dir, setting)
  else:
    atomic.check_writable(run.model_dir)
  return checkpoints


def training_start(run: RunConfig, folder: Folder) -> tuple[str | None, bool]:
  """Checks where a training run starts.

  Returns the checkpoint to read, and whether the run is new or resumes.
  """
  latest = folder.latest()
  if latest:
    _forget_others(folder)
  start = run.init_checkpoint
  with filesystem.named_by('utils.run.init_checkpoint'):
    if start and not exists(start):
      raise filesystem.Unreadable(
        f'there is no checkpoint {start}; expected a path without the .index, '
        f'such as <folder>/model.ckpt-1000.{files.instead(start)}'
      )
  if 'master_dtype' not in gin.get_bindings(utils.get_variable_dtype):
    raise UserError(
      "weights would be kept in bfloat16, Mesh-TensorFlow's default, and "
      'rounded at each resume: give '
      '--gin_param="utils.get_variable_dtype.master_dtype = \'float32\'" (as '
      "sizes/*.gin do), or 'bfloat16' if you mean it."
    )
  if run.dataset_split != 'train':
    raise UserError(
      f"utils.run.dataset_split = {run.dataset_split!r}, but mode 'train' "
      "trains on the split 'train': set it to that, or give another mode."
    )
  checkpoint = latest or start
  if checkpoint and isinstance(run.train_steps, int):
    with filesystem.named_by(_setting_of_checkpoint(is_new=not latest)):
      step = files.Checkpoint(checkpoint).step
    if step > run.train_steps or (step == run.train_steps and not latest):
      raise UserError(
        f'utils.run.train_steps = {run.train_steps}, but {checkpoint} is '
        f'already at step {step}, and the run continues from there: give more '
        f'than {step}.'
      )
  return checkpoint, not latest


def _forget_others(folder: Folder) -> None:
  """Keeps a run from removing checkpoints that are not of its folder."""
  forgotten = folder.forget_others()
  if forgotten:
    logging.warning(
      'the file %s listed what is not a checkpoint of this folder, for '
      'utils.run.keep_checkpoint_max to remove: %s. It is left alone.',
      os.path.join(folder.path, 'checkpoint'),
      comparison.listed(forgotten),
    )


def _check_has_data(run: RunConfig) -> None:
  trains = run.mode == 'train'
  dataset_fn = run.train_dataset_fn if trains else run.eval_dataset_fn
  if dataset_fn is None and (trains or 'eval' in run.mode):
    raise UserError(
      f'mode {run.mode!r} has no data: give a run file after the size and '
      'the variant, such as --gin_file=runs/pretrain_text.gin.'
    )
  if trains and run.optimizer is None:
    raise UserError(
      "mode 'train' has no optimizer: give --gin_param=\"utils.run.optimizer = "
      '@AdafactorOptimizer".'
    )


def check_task(run: RunConfig, is_cached: bool) -> None:
  """Checks the files of a run's task, and what its metrics need."""
  trains = run.mode == 'train'
  reader = 'mesh_train_dataset_fn' if trains else 'mesh_eval_dataset_fn'
  task = gin.get_bindings(reader).get('mixture_or_task_name')
  if (
    task and not is_cached and run.mode in ('train', 'eval', 'perplexity_eval')
  ):
    tasks.check([task], [run.dataset_split])
  if task and trains:
    inspection.check_rates(task, run.dataset_split)
  if task and run.mode == 'eval':
    _check_has_metric(task)
  vectors = tasks.settings().word_vectors
  if vectors and not os.path.isfile(vectors):
    setting = tasks.data_settings.name_of('word_vectors')
    raise UserError(f'{setting}: there is no local file {vectors}')
  has_metrics = find_spec('pycocoevalcap') or vectors
  if task == 'synth_personachat' and run.mode == 'eval' and not has_metrics:
    raise UserError(
      f'{task} cannot be scored without its metrics: '
      "pip install -c constraints.txt '.[metrics]'"
    )


def _check_has_metric(name: str) -> None:
  """Refuses a task that T5 would leave out without a word."""
  subtasks = seqio.get_subtasks(tasks.get(name))
  if not any(task.metric_fns for task in subtasks):
    raise UserError(
      f"{name} has no metric for mode 'eval'; its log perplexity is measured "
      "in mode 'perplexity_eval' (--gin_file=perplexity_eval.gin)."
    )


def build(run: RunConfig, way: ways.Way) -> models.ConfiguredModel | None:
  """Builds the model's graph; returns None if only the host can build it."""
  if run.vocabulary is None or run.model_type == 'bi_student_teacher':
    return None
  batch = run.examples if run.lengths else 1
  if run.mode == 'train':
    with models.explained(), contextlib.suppress(ValueError):
      # `check_mesh` reports a mesh that does not divide the batch.
      batch //= utils.serialize_num_microbatches(
        mtf.Dimension('batch', batch), run.lengths, run.mesh, run.layout
      )
  encoder, decoder = run.vocabularies
  return models.build(
    encoder.vocab_size,
    decoder.vocab_size,
    run.lengths or models.SHORT,
    mode='train' if run.mode == 'train' else 'eval',
    countable=way.is_compiled,
    batch=batch,
  )


def _check_model(
  run: RunConfig,
  way: ways.Way,
  model: models.ConfiguredModel,
  checkpoints: list[str],
  is_new: bool,
) -> None:
  """Rejects a mesh, variable filter or checkpoint that does not fit the model.

  The host silently loads values of a different shape, and if the shapes within
  a layer are consistent, it trains that different model.
  """
  check_mesh(run, way, model)
  pattern = run.variable_filter
  if isinstance(pattern, str) and not _matches_any(pattern, model.variables):
    raise UserError(
      f'utils.run.variable_filter = {pattern!r} matches no variable: nothing '
      'would be trained. It is a regular expression over names such as '
      f'{next(iter(model.variables))}.'
    )
  for path in checkpoints:
    with filesystem.named_by(_setting_of_checkpoint(is_new)):
      _check_fits(model, path, is_new)


def _check_fits(model: models.ConfiguredModel, path: str, is_new: bool) -> None:
  checkpoint = files.Checkpoint(path)
  if is_new:
    comparison.require_loadable(model.variables.values(), checkpoint)
  else:
    comparison.require_same(model.variables.values(), checkpoint)
  identity.check_model(model.transformer, path, starts=is_new)


def _matches_any(pattern: str, names: Iterable[str]) -> bool:
  return any(re.search(pattern, name) for name in names)


def check_mesh(
  run: RunConfig, way: ways.Way, model: models.ConfiguredModel
) -> None:
  """Checks that the mesh divides the model and that tensors fit in memory.

  Mesh-TensorFlow finds a wrong mesh only while lowering the graph, which takes
  minutes for a large model. The memory check is for the largest tensor alone.
  """

  def parts(dim: mtf.Dimension) -> int:
    return mtf.tensor_dim_to_mesh_dim_size(run.layout, run.mesh, dim)

  tensors = _tensors(model)
  dims: set[mtf.Dimension] = set()
  for tensor in tensors:
    dims.update(dim for dim in tensor.shape if dim.name != 'batch')
  if run.lengths or isinstance(run.batch_size, int):
    # With microbatches, the graph's batch is smaller.
    dims.add(mtf.Dimension('batch', run.examples))
  faults = []
  for dim in sorted(dims):
    if dim.size % parts(dim):
      faults.append(
        f'{dim.name} = {dim.size} is split into {parts(dim)} parts (possible: '
        f'{", ".join(map(str, _divisors(dim.size)))})'
      )
  if faults:
    raise UserError(
      f'the mesh {run.mesh.to_string} does not divide the model: '
      f'{". ".join(faults)}. Change utils.run.mesh_shape or '
      'utils.tpu_mesh_shape (layouts/*.gin), or the size itself; that of the '
      'batch is utils.run.batch_size.'
    )
  if not way.memory_is_here:
    return

  def bytes_of(tensor: mtf.Tensor) -> int:
    devices = math.prod(parts(dim) for dim in tensor.shape)
    return tensor.size * tensor.dtype.size // devices

  largest = max(tensors, key=bytes_of)
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  if bytes_of(largest) > memory:
    raise UserError(
      f'out of memory: {largest.name} with {largest.shape.to_string} takes '
      f'{bytes_of(largest) / 1e9:,.0f} GB, and this machine has '
      f'{memory / 1e9:,.0f} GB (utils.run.batch_size = {run.batch_size}).\n'
      f'{explanations.MEMORY_ADVICE}'
    )


def _tensors(model: models.ConfiguredModel) -> list[mtf.Tensor]:
  tensors = []
  for operation in model.mtf_graph.operations:
    tensors += operation.outputs
  return tensors


def _divisors(number: int) -> list[int]:
  return [n for n in range(1, number + 1) if number % n == 0]
