"""Loads the configuration of somebody else's run as data, not as a program.

gin would import modules, include files and call functions. Here, its parser
reads the statements, and only two kinds of bindings reach gin: those of classes
and functions that make models, and a few settings without references.
"""

import contextlib
import importlib
import os
import re
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import gin
import tensorflow.compat.v1 as tf
from gin import config_parser

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as models

_OURS_AND_THE_HOSTS = ('synth_mtf', 'mesh_tensorflow', 't5', 'seqio')
# These make models, and neither read nor write files.
_MODULES = re.compile(
  r'mesh_tensorflow\.(layers|transformer\.(adaptive_softmax|evolved_transformer|'
  r'funnel_transformer|heterogeneous_moe|memory_layers|moe|transformer|'
  r'transformer_layers|universal_transformer|vocab_embeddings))'
  r'|synth_mtf\.(baselines|cpu|layer|synthesizers)(\.\w+)*'
)
_READING_CHECKPOINTS = ('StudentTeacher', 'make_bi_student_teacher')
_SETTINGS = re.compile(
  r'mesh_tensorflow\.transformer\.utils\.(get_variable_dtype\.\w+|'
  r'run\.(model_type|sequence_length|layout_rules))'
  r'|t5\.models\.mesh_transformer\.(get_vocabulary\.mixture_or_task_name|'
  r'mesh_(train|eval)_dataset_fn\.pack)'
  r'|synth_mtf\.tasks\.settings\.(data_dir|skip_bad_rows|task_data_dirs|'
  r'vocabulary)'
)
_DATA = re.compile(r'synth_mtf\.tasks\.settings\.(data_dir|task_data_dirs)')
# Functions that cannot be left halfway: gin would confuse its scopes.
_ENTERING = {'config_scope', '__enter__', '__exit__'}
_MOST_SECONDS = 10  # of the processor; T5's largest model takes three


def read(path: str) -> str | None:
  """Returns the text of a file, or None if there is none."""
  if not tf.io.gfile.exists(path):
    return None
  try:
    with tf.io.gfile.GFile(path) as stream:
      return stream.read()
  except (tf.errors.OpError, UnicodeDecodeError) as error:
    raise UserError(f'{path} cannot be read: {error}') from error


def parse(text: str, file: str) -> list[str]:
  """Loads the model that gin text describes; returns the skipped statements.

  Raises a UserError if the model needs code that is not ours or the host's.
  """
  # Of a TPU's mesh, a function that is not called here gives the shape.
  bindings = ["mesh_tensorflow.transformer.utils.run.mesh_shape = ''"]
  skipped, kept, unknown = [], [], set()
  for one in gin_files.statements(text, file):
    if isinstance(one, config_parser.IncludeStatement):
      skipped.append(f'include {one.filename!r}')
    elif isinstance(one, config_parser.ImportStatement):
      if _MODULES.fullmatch(one.module):
        # Its classes register themselves.
        with models.explained(), gin.unlock_config():
          importlib.import_module(one.module)
      elif one.module.split('.')[0] not in _OURS_AND_THE_HOSTS:
        skipped.append(one.format())
    elif isinstance(one, config_parser.BindingStatement):
      if _describes_model(one, f'{file}:{one.location.line_num}'):
        kept.append(one)
      elif not one.arg_name:
        unknown.add(f'%{gin_files.name_of(one)}')
  for one in kept:
    # T5 calls a function for the length of targets: then lengths are unknown.
    is_setting = not _makes_models(_selectors(one.selector))
    if not (is_setting and unknown.intersection(_leaves(one.value))):
      bindings.append(f'{gin_files.name_of(one)} = {one.value!r}')
  try:
    gin_files.parse([], bindings)
  except ValueError as error:  # gin adds the whole configuration
    what = str(error).partition(' in config string')[0]
    raise UserError(f'{file}: {what}') from error
  return skipped


@contextlib.contextmanager
def bounded() -> Iterator[None]:
  """Explains errors of somebody else's model; ends it if it takes forever."""
  with models.explained(), contextlib.ExitStack() as stack:
    # Only the main thread receives signals.
    if threading.current_thread() is threading.main_thread():
      before = signal.signal(signal.SIGPROF, _end)
      stack.callback(signal.signal, signal.SIGPROF, before)
      signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS, 0.01)
      stack.callback(signal.setitimer, signal.ITIMER_PROF, 0)
    yield


def _end(_signal: int, frame: FrameType | None) -> None:
  names = {f.f_code.co_name for f, _ in traceback.walk_stack(frame)}
  if not names & _ENTERING:  # else wait for the next signal
    raise UserError(
      f'the model takes more than {_MOST_SECONDS} seconds to build: no real '
      'one has so many layers, heads or references'
    )


def _describes_model(one: Any, place: str) -> bool:
  """Whether to keep a binding; refuses a model that calls anything else."""
  called = [x for x in _leaves(one.value) if x.startswith('@')]
  foreign = [x for x in called if not _makes_models(_selectors(x))]
  owners = _selectors(one.selector)
  if one.arg_name and not _makes_models(owners):
    names = [f'{owner}.{one.arg_name}' for owner in owners]
    if os.environ.get('SYNTH_MTF_DATA_DIR') and any(map(_DATA.match, names)):
      return False  # whoever reads the run has chosen the data
    return bool(names) and all(map(_SETTINGS.fullmatch, names)) and not called
  if foreign and one.arg_name:
    raise UserError(
      f'{place}: {gin_files.name_of(one)} refers to {foreign[0]}, which is no '
      "model or layer of ours or the host's; the configuration of another run "
      'is only read, and calls nothing else'
    )
  return not foreign


def _leaves(value: Any) -> Iterator[gin_files.Written]:
  """Yields the references and macros inside a value."""
  if isinstance(value, dict):
    value = [*value.items()]
  if isinstance(value, (list, tuple)):
    for one in value:
      yield from _leaves(one)
  elif isinstance(value, gin_files.Written):
    yield value


def _selectors(name: str) -> list[str]:
  """Returns the full names in gin's registry that a name may mean."""
  name = name.rpartition('/')[2].lstrip('@').removesuffix('()')
  return gin.config._REGISTRY.matching_selectors(name)


def _makes_models(selectors: Sequence[str]) -> bool:
  made_by = [gin.config._REGISTRY[one].wrapped for one in selectors]
  return bool(made_by) and all(
    _MODULES.fullmatch(one.__module__)
    and one.__name__ not in _READING_CHECKPOINTS
    for one in made_by
  )
