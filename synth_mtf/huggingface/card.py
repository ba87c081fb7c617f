"""Writes the model card of an exported run."""

import os

import gin
from t5.models import mesh_transformer

from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.results import labels, printing, runs

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


def text(checkpoint: Checkpoint, name: str, is_plain: bool) -> str:
  """Returns the card of the model that gin configures."""
  folder = os.path.dirname(checkpoint.path) or '.'
  data = gin.get_bindings(mesh_transformer.get_vocabulary)
  card = _CARD.format(
    label=labels.kind().label,
    parameters=checkpoint.parameters,
    data=data.get('mixture_or_task_name', 'unknown'),
    step=checkpoint.step,
    name=name,
    trust='' if is_plain else ', trust_remote_code=True',
  )
  scores = [
    [x.task, x.split, x.metric, f'{x.value:.4g}', printing.count(x.n), x.data]
    for x in runs.Run(folder, [folder]).results
    if x.step == checkpoint.step and x.value is not None
  ]
  if scores:
    headers = ['task', 'split', 'metric', 'value', 'n', 'data']
    table = printing.Grid('Scores:', headers, scores)
    card += f'\n{printing.markdown(table)}\n'
  return card
