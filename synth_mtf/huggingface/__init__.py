"""Models in PyTorch: their classes, and a run's model as such a model and back.

    import synth_mtf.huggingface
    model = AutoModelForSeq2SeqLM.from_pretrained('my_model')

The import registers the configuration and the models with the Auto classes of
transformers, which then need no `trust_remote_code`. The `synth-mtf` command
does without, and so does not need PyTorch.
"""

import warnings

from synth_mtf.paths import is_command

if not is_command():
  try:
    from synth_mtf.huggingface import modeling_synthesizer as _modeling
  except ImportError as error:
    warnings.warn(
      f'{error}. Models in PyTorch are not available; they need '
      "pip install -c constraints.txt '.[hf]'",
      stacklevel=2,
    )
  else:
    _modeling.register()
    SynthesizerConfig = _modeling.SynthesizerConfig
    SynthesizerForConditionalGeneration = (
      _modeling.SynthesizerForConditionalGeneration
    )
    SynthesizerForSequenceClassification = (
      _modeling.SynthesizerForSequenceClassification
    )
    SynthesizerModel = _modeling.SynthesizerModel
