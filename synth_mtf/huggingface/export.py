"""Writes a model as Hugging Face's T5."""

import os
import pathlib
import shutil
from typing import Any

import gin
from t5.models import mesh_transformer

from synth_mtf import tasks
from synth_mtf.attention import opening
from synth_mtf.checkpoints import comparison, files, identity
from synth_mtf.host import explanations, foreign, model as models
from synth_mtf.host.run_config import RunConfig
from synth_mtf.huggingface import config_file, extra, layout, tokenizer
from synth_mtf.results import labels, printing, runs
from synth_mtf.storage import atomic, json_files

_CODE = '*_synthesizer.py'  # the modules that a folder needs
_CARD = """---
library_name: transformers
pipeline_tag: text2text-generation
tags:
- synthesizer
- t5
---

# {label}

A T5 encoder-decoder with the attention of
[Synthesizer](https://arxiv.org/abs/2005.00743), trained with synth_mtf and
exported from Mesh-TensorFlow.

|   |   |
|---|---|
| parameters | {parameters:,} |
| data | {data} |
| steps | {step:,} |

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('{name}'{trust})
model = AutoModelForSeq2SeqLM.from_pretrained('{name}'{trust})
texts = ['...']
inputs = tokenizer(texts, return_tensors='pt', padding=True, truncation=True)
outputs = model.generate(**inputs)
print(tokenizer.batch_decode(outputs, skip_special_tokens=True))
```
"""


def export(
  checkpoint: files.Checkpoint, out: str, vocabulary: str | None = None
) -> None:
  """Writes the model that gin configures, with the weights of a checkpoint.

  Args:
    checkpoint: of the run.
    out: the folder to write; must not exist.
    vocabulary: as in `--vocabulary`. Default: the run's.
  """
  safetensors = extra.safetensors()
  checkpoint.verify()
  with foreign.bounded():
    model = models.build(checkpoint.vocab_size)
  settings = layout.config(model)
  identity.check_model(model.transformer, checkpoint.path)
  variables = model.variables.values()
  stored = comparison.same_under_other_names(variables, checkpoint)
  gin_text = gin.operative_config_str()
  opening.choose_vocabulary(vocabulary, os.path.dirname(checkpoint.path))
  with explanations.explained():  # T5's own vocabulary needs a network
    pieces = tasks.vocabulary.load(tasks.settings().vocabulary)
    identity.check_vocabulary(pieces, checkpoint.path)
  length = (RunConfig().lengths or {}).get('inputs') or 512
  converted = tokenizer.convert(pieces, length)
  config = config_file.ConfigFile(
    settings,
    gin_text,
    checkpoint.step,
    identity.describe_vocabulary(pieces),
  )
  weights = {
    layout.name_of(name): layout.weight_of(name, checkpoint[stored[name]])
    for name in model.variables
  }
  name = pathlib.Path(out).name
  with atomic.new_folder(out) as new:
    converted.save_pretrained(new)
    config.write(new)
    generation = _generation_config(length)
    json_files.write(new / config_file.GENERATION_CONFIG, generation)
    if not config.is_plain:
      for module in pathlib.Path(__file__).parent.glob(_CODE):
        shutil.copy(module, new)
    try:
      safetensors.numpy.save_file(
        weights, new / 'model.safetensors', {'format': 'pt'}
      )
    except safetensors.SafetensorError as error:  # such as of a full disk
      raise OSError(str(error)) from error
    atomic.write(new / 'README.md', _card(checkpoint, name, config.is_plain))


def _generation_config(length: int) -> dict[str, Any]:
  """Returns how the run that gin configures decodes.

  Args:
    length: the length limit of a run that has none.
  """
  decoding = gin.get_bindings('Bitransformer.decode')
  search = gin.get_bindings('beam_search.beam_search')
  return {
    **config_file.SPECIAL_IDS,
    'max_new_tokens': decoding.get('max_decode_length') or length,
    # Of beam search in our class; transformers' own ignores both. It has
    # `length_penalty`, but most releases refuse to save it without `num_beams`.
    'beam_alpha': decoding.get('alpha', 0.6),
    'num_prefilter': search.get('num_prefilter', 2),
  }


def _card(checkpoint: files.Checkpoint, name: str, is_plain: bool) -> str:
  """Returns the model card of the model that gin configures."""
  folder = os.path.dirname(checkpoint.path) or '.'
  data = gin.get_bindings(mesh_transformer.get_vocabulary)
  card = _CARD.format(
    label=labels.kind(models.make_transformer()).label,
    parameters=checkpoint.parameters,
    data=printing.code(data.get('mixture_or_task_name', 'unknown')),
    step=checkpoint.step,
    name=name,
    trust='' if is_plain else ', trust_remote_code=True',
  )
  scores = [
    [
      *map(printing.code, (x.task, x.split, x.metric)),
      f'{x.value:.4g}',
      printing.count(x.n),
      printing.code(x.data) if x.data else '',
    ]
    for x in runs.Run(folder, [folder]).results
    if x.step == checkpoint.step and x.value is not None
  ]
  if scores:
    headers = ['task', 'split', 'metric', 'value', 'n', 'data']
    table = printing.Grid('Scores:', headers, scores)
    card += f'\n{printing.markdown(table)}\n'
  return card
