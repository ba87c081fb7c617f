"""The packages of the extra [hf]."""

import os
from typing import Any

from synth_mtf.errors import UserError


def safetensors() -> Any:
  """Imports safetensors, if what export and import need is installed."""
  # Without PyTorch, which only the use of the folder needs.
  os.environ.setdefault('TRANSFORMERS_NO_ADVISORY_WARNINGS', '1')
  try:
    import safetensors.numpy
    from transformers import TokenizersBackend  # noqa: F401
  except ImportError as error:
    raise UserError(
      f'{error}. This needs transformers 5.1 to 5.24: '
      "pip install -c constraints.txt '.[hf]'"
    ) from error
  return safetensors
