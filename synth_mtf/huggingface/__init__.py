"""Models in PyTorch: their classes, and a run's model as such a model and back.

    import synth_mtf.huggingface
    model = AutoModelForSeq2SeqLM.from_pretrained('my_model')

The import registers the configuration and the models with the Auto classes of
transformers, which then need no `trust_remote_code`. The `synth-mtf` command
does without, and so does not need PyTorch.
"""

from typing import Any

from synth_mtf.paths import is_command

_CLASSES = (
  'SynthesizerConfig',
  'SynthesizerForConditionalGeneration',
  'SynthesizerForSequenceClassification',
  'SynthesizerModel',
)

if not is_command():
  try:
    from synth_mtf.huggingface import modeling_synthesizer as _modeling
  except ModuleNotFoundError as error:
    _fault = (
      f"{error}. Models in PyTorch need pip install -c constraints.txt '.[hf]'"
    )
  except ImportError as error:  # of an untried release; says what to do
    _fault = str(error)
  else:
    _fault = ''
    _modeling.register()


def __getattr__(name: str) -> Any:
  """Returns a class of a model, which needs PyTorch."""
  if name not in _CLASSES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  if _fault:
    raise ImportError(f'{name}: {_fault}')
  return getattr(_modeling, name)
