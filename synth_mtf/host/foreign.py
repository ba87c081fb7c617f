"""Loads the configuration of somebody else's run as data, not as a program.

gin would import modules, include files and call functions. Here, its parser
reads the statements, and only two kinds of bindings reach gin: those of classes
and functions that make models, and a few settings without references. The user
may trust other modules (`--module_import`).
"""

import contextlib
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import gin
from gin import config_parser

from synth_mtf.errors import UserError
from synth_mtf.host import bounds, gin_files, model as models, user_modules

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
  r'|mesh_tensorflow\.beam_search\.beam_search\.\w+'
  r'|synth_mtf\.tasks\.settings\.(data_dir|skip_bad_rows|task_data_dirs|text|'
  r'vocabulary)'
)
_DATA = re.compile(
  r'synth_mtf\.tasks\.settings\.(data_dir|task_data_dirs|text)'
)


def parse(text: str, file: str) -> list[str]:
  """Loads the model that gin text describes; returns the skipped statements.

  Replaces gin's configuration: `host.described` keeps that of the process.

  Raises a UserError if the model needs code that is not ours or the host's,
  and not of a module that the user named.
  """
  skipped: list[str] = []
  kept: list[config_parser.BindingStatement] = []
  unknown: set[str] = set()  # macros whose values are not kept
  for statement in gin_files.statements(text, file):
    if isinstance(statement, config_parser.IncludeStatement):
      skipped.append(f'include {statement.filename!r}')
    elif isinstance(statement, config_parser.ImportStatement):
      if _MODULES.fullmatch(statement.module):
        _register(statement.module)
      elif not _is_expected(statement.module):
        skipped.append(statement.format())
    elif isinstance(statement, config_parser.BindingStatement):
      line = f'{file}:{statement.location.line_num}'
      if _describes_model(statement, line):
        kept.append(statement)
      elif not statement.arg_name:
        unknown.add(f'%{gin_files.name_of(statement)}')
  # On a TPU, a function returns the mesh's shape; it is not called here.
  bindings = ["mesh_tensorflow.transformer.utils.run.mesh_shape = ''"]
  for statement in kept:
    # T5 calls a function for the length of targets: then lengths are unknown.
    is_of_model = _makes_models(_selectors(statement.selector))
    if is_of_model or unknown.isdisjoint(_leaves(statement.value)):
      bindings.append(f'{gin_files.name_of(statement)} = {statement.value!r}')
  try:
    gin_files.parse([], bindings)
  except (UserError, ValueError) as error:  # gin adds the whole configuration
    fault = str(error).partition(' in config string')[0]
    raise UserError(f'{file}: {fault}') from error
  return skipped


def _is_expected(module: str) -> bool:
  """Whether a module is part of the host, ours, or named by the user."""
  package = module.partition('.')[0]
  return package in _OURS_AND_THE_HOSTS or user_modules.is_trusted(module)


def _register(module: str) -> None:
  """Imports a module, whose classes register themselves with gin."""
  with models.explained(), gin.unlock_config():
    importlib.import_module(module)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
  """Explains errors of somebody else's model; ends it if it takes forever."""
  with models.explained(), bounds.bounded():
    yield


def _describes_model(
  binding: config_parser.BindingStatement, line: str
) -> bool:
  """Whether to keep a binding; refuses a model that calls anything else."""
  references = [x for x in _leaves(binding.value) if x.startswith('@')]
  owners = _selectors(binding.selector)
  if binding.arg_name and not _makes_models(owners):
    names = [f'{owner}.{binding.arg_name}' for owner in owners]
    return not references and _are_settings(names)
  foreign = [x for x in references if not _makes_models(_selectors(x))]
  if foreign and binding.arg_name:
    raise UserError(
      f'{line}: {gin_files.name_of(binding)} refers to {foreign[0]}, which is '
      'not a model or layer of synth_mtf or Mesh-TensorFlow; the configuration '
      'of another run is only read, and calls nothing else but what is in the '
      'modules that you name with --module_import'
    )
  return not foreign


def _are_settings(names: Sequence[str]) -> bool:
  """Whether all names that a binding may mean are among those to keep."""
  if os.environ.get('SYNTH_MTF_DATA_DIR') and any(map(_DATA.match, names)):
    return False  # whoever reads the run has chosen the data
  return bool(names) and all(map(_SETTINGS.fullmatch, names))


def _leaves(value: Any) -> Iterator[gin_files.Written]:
  """Yields the references and macros inside a value."""
  if isinstance(value, gin_files.Written):
    yield value
  elif isinstance(value, dict):
    yield from _leaves([*value.items()])
  elif isinstance(value, (list, tuple)):
    for element in value:
      yield from _leaves(element)


def _selectors(name: str) -> list[str]:
  """Returns the full names in gin's registry that a name may mean."""
  name = name.rpartition('/')[2].lstrip('@').removesuffix('()')
  return gin.config._REGISTRY.matching_selectors(name)


def _makes_models(selectors: Sequence[str]) -> bool:
  """Whether all classes and functions of these names make models."""
  if not selectors:
    return False
  for selector in selectors:
    function = gin.config._REGISTRY[selector].wrapped
    if user_modules.is_trusted(function.__module__):
      continue
    if not _MODULES.fullmatch(function.__module__):
      return False
    if function.__name__ in _READING_CHECKPOINTS:
      return False
  return True
