"""Whether a folder will do as --model_dir, found before anything is made."""

import os
import tempfile
from collections.abc import Callable
from typing import Optional

import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError

_PATTERNS = '*?[\\'


def check_name(model_dir: str) -> None:
  """Checks the name of a model folder.

  Raises:
    UserError: TensorFlow would take it for something else than it says.
  """
  if not model_dir:
    raise UserError(
      '--model_dir is empty: give the folder that the checkpoints are, or are '
      'to be, in.'
    )
  if model_dir != model_dir.strip():
    raise UserError(
      f'--model_dir {model_dir!r} begins or ends with white space: is that '
      'meant? Give a name without.'
    )
  found = ' '.join(sorted(set(_PATTERNS).intersection(model_dir)))
  if found:
    raise UserError(
      f'--model_dir {model_dir} contains {found} : TensorFlow takes the name '
      'for a pattern and would not find its own checkpoints, or another '
      "folder's. Give a name without * ? [ and \\."
    )
  if model_dir.startswith('~'):
    raise UserError(
      f'--model_dir={model_dir}: the shell replaces ~ only at the start of a '
      f'word, so that a folder named {model_dir.split("/")[0]} would be made '
      f'here. Write {os.path.expanduser(model_dir)}.'
    )


def check_folder(model_dir: str) -> None:
  """Checks that a model folder is there or can be made, and makes it.

  Raises:
    UserError: it is not a folder, a link that leads nowhere, or cannot be made.
  """
  for path in _and_parents(model_dir):
    if os.path.islink(path) and not os.path.exists(path):
      raise UserError(
        f'--model_dir {model_dir}: the link {path} leads to '
        f'{os.readlink(path)}, which is not there. Make that folder, or give '
        'another.'
      )
    if os.path.exists(path) and not os.path.isdir(path):
      raise UserError(
        f'--model_dir {model_dir} cannot be made: {path} is a file. Give a '
        'folder.'
      )
  try:
    tf.io.gfile.makedirs(model_dir)
  except tf.errors.OpError as error:
    raise UserError(
      f'--model_dir {model_dir} cannot be made: {error.message}. Give a folder '
      'that you may write to.'
    ) from error


def check_writable(model_dir: str) -> None:
  """Checks that files can be made in a model folder.

  Raises:
    UserError: they cannot.
  """
  if '://' in model_dir:
    return
  try:
    tempfile.TemporaryFile(dir=model_dir).close()
  except OSError as error:
    raise UserError(
      f'--model_dir {model_dir} cannot be written to: {error.strerror}. Give a '
      'folder that you may write to.'
    ) from error


def is_writable(model_dir: str) -> bool:
  """Whether files can be made in a model folder."""
  try:
    check_writable(model_dir)
  except UserError:
    return False
  return True


def explainer(model_dir: str) -> Callable[[BaseException], Optional[str]]:
  """Returns what explains an error by a model folder that is not writable."""

  def explain(error: BaseException) -> Optional[str]:
    if isinstance(error, (tf.errors.OpError, OSError)):
      try:
        check_writable(model_dir)
      except UserError as fault:
        return str(fault)
    return None

  return explain


def _and_parents(path: str) -> list[str]:
  """A local path and the folders above it, the topmost first."""
  if '://' in path:
    return []
  parents = [path]
  while os.path.dirname(parents[0]) not in ('', parents[0]):
    parents.insert(0, os.path.dirname(parents[0]))
  return parents
