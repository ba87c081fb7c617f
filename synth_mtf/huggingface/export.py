"""Writes a model as Hugging Face's T5, and makes a checkpoint of such a T5."""

import json
import os
import pathlib
import shutil
from typing import Any

import gin
import numpy as np
import seqio
import tensorflow.compat.v1 as tf
from sentencepiece import sentencepiece_model_pb2
from t5.models import mesh_transformer

from synth_mtf import atomic, json_files, paths, tasks
from synth_mtf.attention import opening
from synth_mtf.checkpoints import comparison, files, identity
from synth_mtf.errors import UserError
from synth_mtf.host import explanations, foreign, model as models
from synth_mtf.host.run_config import RunConfig
from synth_mtf.huggingface import layout
from synth_mtf.results import labels, printing, runs

CONFIG = 'config.json'
_CODE = 'modeling_synthesizer'
_CLASS = 'SynthesizerForConditionalGeneration'
_OF_OUR_CLASS = {
  'model_type': 'synthesizer',
  'architectures': [_CLASS],
  'auto_map': {
    'AutoConfig': f'{_CODE}.SynthesizerConfig',
    'AutoModelForSeq2SeqLM': f'{_CODE}.{_CLASS}',
  },
}
_OF_T5 = {'model_type': 't5', 'architectures': ['T5ForConditionalGeneration']}
# What shapes do not show, and what transformers assumes unless it is given.
_DEFAULTS = {
  'num_heads': 8,
  'd_kv': 64,
  'feed_forward_proj': 'relu',
  'vocab_size': 32128,
  'tie_word_embeddings': True,
  'layer_norm_epsilon': 1e-6,
  'relative_attention_max_distance': 128,
  'attention': {},
}
# Old files repeat the embedding, and have a variable that T5 does not use.
_COPIES = (
  'encoder.embed_tokens.weight',
  'decoder.embed_tokens.weight',
  'lm_head.weight',
)
_UNUSED = (
  'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight'
)
_DTYPES = {
  'F64': np.float64,
  'F32': np.float32,
  'F16': np.float16,
  'BF16': tf.bfloat16.as_numpy_dtype,
}
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
# Both tokenizers must agree on these.
_TEXTS = (
  'cola sentence: The book was read by.',
  '  two  spaces,\ttab\nand lines ',
  'Größe “naïve” ﬁ Ａ１ 漢字 🙂 x\u200by\u00a0z',
  '<extra_id_0> spans <extra_id_99>',
)


def export(
  checkpoint: files.Checkpoint, out: str, vocabulary: str | None = None
) -> None:
  """Writes the model that gin configures, with the weights of a checkpoint.

  Args:
    checkpoint: of the run.
    out: the folder to write; must not exist.
    vocabulary: as in `--vocabulary`. Default: the run's.
  """
  safetensors = _safetensors()
  checkpoint.verify()
  with foreign.bounded():
    model = models.build(checkpoint.vocab_size)
  identity.check_model(model.transformer, checkpoint.path)
  comparison.require_same(model.variables.values(), checkpoint)
  settings = layout.config(model)
  text = gin.operative_config_str()
  opening.choose_vocabulary(vocabulary, os.path.dirname(checkpoint.path))
  with explanations.explained():  # T5's own vocabulary needs a network
    pieces = tasks.vocabulary.load(tasks.settings().vocabulary)
    identity.check_vocabulary(pieces, checkpoint.path)
  decoding = gin.get_bindings('Bitransformer.decode')
  length = (RunConfig().lengths or {}).get('inputs') or 512
  generation = {
    'decoder_start_token_id': 0,
    'pad_token_id': 0,
    'eos_token_id': 1,
    'max_new_tokens': decoding.get('max_decode_length') or length,
    # Of beam search; transformers' own ignores the last.
    'length_penalty': decoding.get('alpha', 0.6),
    'early_stopping': 'never',
    'num_prefilter': gin.get_bindings('beam_search.beam_search').get(
      'num_prefilter', 2
    ),
  }
  is_plain = layout.is_plain(settings)
  config = {
    **settings,
    **(_OF_T5 if is_plain else _OF_OUR_CLASS),
    **{k: v for k, v in generation.items() if k.endswith('_id')},
    'is_encoder_decoder': True,
    'synth_mtf': {
      'gin': text,
      'step': checkpoint.step,
      'vocabulary': identity.describe_vocabulary(pieces),
    },
  }
  with atomic.new_folder(out) as new:
    _tokenizer(pieces, length).save_pretrained(new)
    for name, content in (
      (CONFIG, config),
      ('generation_config.json', generation),
    ):
      json_files.write(new / name, content)
    if not is_plain:
      shutil.copy(pathlib.Path(__file__).with_name(f'{_CODE}.py'), new)
    weights = {
      layout.name_of(name): layout.weight_of(name, checkpoint[name])
      for name in model.variables
    }
    safetensors.numpy.save_file(
      weights, new / 'model.safetensors', {'format': 'pt'}
    )
    name = pathlib.Path(out).name
    atomic.write(new / 'README.md', _card(checkpoint, name, is_plain))


def _card(checkpoint: files.Checkpoint, name: str, is_plain: bool) -> str:
  """Returns the model card of the model that gin configures."""
  folder = os.path.dirname(checkpoint.path) or '.'
  data = gin.get_bindings(mesh_transformer.get_vocabulary)
  card = _CARD.format(
    label=labels.kind(models.make_transformer()).label,
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


def read_config(folder: str) -> dict[str, Any]:
  """Returns config.json; its `synth_mtf` is what `export` recorded, if any."""
  path = os.path.join(folder, CONFIG)
  paths.check_entries(folder)
  text = foreign.read(path) or 'there is none'
  try:
    config = json.loads(text)
    ours = {'gin': '', 'step': 0, **config.get('synth_mtf', {})}
    config['synth_mtf'] = {
      **ours,
      'gin': str(ours['gin']),
      'step': np.int64(ours['step']),
    }
  except Exception as error:  # depends on what is there instead
    raise UserError(
      f'{path} is missing or damaged ({error}); expected a folder of '
      "Hugging Face's T5, with config.json and *.safetensors"
    ) from error
  return config


def load(folder: str, out: str) -> str:
  """Writes a checkpoint of the model that gin configures; returns its path.

  Args:
    folder: written by `export` or by `save_pretrained` of a T5.
    out: the folder to write; must not exist.
  """
  config = {**_DEFAULTS, **read_config(folder)}
  tied = config['tie_word_embeddings']  # always true of what transformers saves
  config['tie_word_embeddings'] = config.get('scale_decoder_outputs', tied)
  weights = _weights(folder)
  with foreign.bounded():
    model = models.build(config['vocab_size'])
  ours = {**layout.config(model), 'relative_attention_max_distance': 128}
  variables = model.variables
  values = {
    name: layout.weight_of(name, weights.pop(layout.name_of(name)))
    for name in variables
    if layout.name_of(name) in weights
  }
  embedding = values.get('shared/embedding', np.zeros(0))
  faults = [
    *(
      f'{key} is {config[key]!r:.80} in it, {ours[key]!r:.80} in the model'
      for key in _DEFAULTS
      if config[key] != ours[key]
    ),
    *(
      f'it lacks {layout.name_of(name)} ({name})'
      for name in variables
      if name not in values
    ),
    *(
      f'{name} is {value.shape} in it, {variables[name].shape} in the model'
      for name, value in values.items()
      if [*value.shape] != variables[name].shape.as_list()
    ),
    *(
      f'{name} is not in the model'
      for name, weight in weights.items()
      if name != _UNUSED
      and not (name in _COPIES and np.array_equal(weight, embedding))
    ),
  ]
  if faults:
    raise UserError(
      f'{folder} does not fit the model: {comparison.listed(faults)}. Give the '
      'gin files of its size and variant as --gin_file. To change the variant, '
      'use `synth-mtf checkpoint convert` afterwards.'
    )
  step = config['synth_mtf']['step']
  values = {
    name: value.astype(variables[name].dtype.base_dtype.as_numpy_dtype)
    for name, value in values.items()
  }
  with atomic.new_folder(out) as new:
    path = files.write(str(new), int(step), {**values, 'global_step': step})
    atomic.write(new / 'operative_config.gin', gin.operative_config_str())
    if vocabulary := config['synth_mtf'].get('vocabulary'):
      json_files.write(new / identity.VOCABULARY, vocabulary)
    identity.record_model(model.transformer, str(new))
  return os.path.join(out, os.path.basename(path))


def _weights(folder: str) -> dict[str, Any]:
  """Reads all weights; NumPy's reader in safetensors lacks bfloat16."""
  found = {}
  parts = sorted(pathlib.Path(folder).glob('*.safetensors'))
  if not parts:
    raise UserError(
      f'{folder} has no *.safetensors. Other files, such as pytorch_model.bin, '
      'run code when they are read: load them in transformers, and call '
      'save_pretrained'
    )
  for part in parts:
    try:
      for name, tensor in _safetensors().deserialize(part.read_bytes()):
        value = np.frombuffer(tensor['data'], _DTYPES[tensor['dtype']])
        found[name] = value.reshape(tensor['shape'])
    except Exception as error:  # the library has its own
      raise UserError(f'{part} cannot be read: {error}') from error
  return found


def _tokenizer(vocabulary: Any, length: int) -> Any:
  """Returns the tokenizer with a vocabulary's ids."""
  from transformers import ByT5Tokenizer, T5Tokenizer

  if isinstance(vocabulary, seqio.ByteVocabulary):
    made = ByT5Tokenizer(
      extra_ids=0, split_special_tokens=True, model_max_length=length
    )
  else:
    model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.sp_model)
    names = [p.piece.replace('▁<extra', '<extra') for p in model.pieces]
    made = T5Tokenizer(
      list(zip(names, (p.score for p in model.pieces), strict=True)),
      _spm_precompiled_charsmap=model.normalizer_spec.precompiled_charsmap,
      extra_ids=vocabulary.extra_ids,
      model_max_length=length,
    )
  for text in _TEXTS:
    if made(text)['input_ids'] != [*vocabulary.encode(text), 1]:
      raise UserError(
        'the vocabulary cannot be exported: transformers would make other ids '
        f'of {text!r}'
      )
  return made


def _safetensors() -> Any:
  # Without PyTorch, which only the use of the folder needs.
  os.environ.setdefault('TRANSFORMERS_NO_ADVISORY_WARNINGS', '1')
  try:
    import safetensors.numpy
    from transformers import TokenizersBackend  # noqa: F401
  except ImportError as error:
    raise UserError(
      f'{error}. This needs Python 3.10 or newer and transformers 5: '
      "pip install -c constraints.txt '.[hf]'"
    ) from error
  return safetensors
