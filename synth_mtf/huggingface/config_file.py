"""config.json: the settings of a model, as transformers has them.

What changes the computation is read or refused, and nothing is ignored.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from synth_mtf.checkpoints import files
from synth_mtf.errors import UserError
from synth_mtf.huggingface import stored
from synth_mtf.huggingface.settings_synthesizer import from_file, to_file
from synth_mtf.storage import filesystem, json_files

CONFIG = 'config.json'
GENERATION_CONFIG = 'generation_config.json'
# Mesh-TensorFlow's, in all of T5; None and a missing id are these.
SPECIAL_IDS = {
  'pad_token_id': 0,
  'eos_token_id': 1,
  'decoder_start_token_id': 0,
}
_CODE = 'modeling_synthesizer'
_CLASS = 'SynthesizerForConditionalGeneration'
# The class that transformers takes for a folder.
_OURS = {
  'model_type': 'synthesizer',
  'architectures': [_CLASS],
  'auto_map': {
    'AutoConfig': 'configuration_synthesizer.SynthesizerConfig',
    'AutoModel': f'{_CODE}.SynthesizerModel',
    'AutoModelForSeq2SeqLM': f'{_CODE}.{_CLASS}',
    'AutoModelForSequenceClassification': (
      f'{_CODE}.SynthesizerForSequenceClassification'
    ),
  },
}
_PLAIN = {'model_type': 't5', 'architectures': ['T5ForConditionalGeneration']}
# Settings that only our class has; with these values, the model is a plain T5.
_DEFAULTS_OF_OURS: dict[str, Any] = {
  'attention': {},
  'positions': {},
  'shared_positions': False,
  'use_bias': False,
  'true_layer_norm': False,
}
# What transformers assumes unless it is given, by `model_type`.
_DEFAULTS_OF_T5: dict[str, Any] = {
  'vocab_size': 32128,
  'd_model': 512,
  'd_kv': 64,
  'd_ff': 2048,
  'num_layers': 6,
  'num_decoder_layers': None,
  'num_heads': 8,
  'relative_attention_num_buckets': 32,
  'relative_attention_max_distance': 128,
  'layer_norm_epsilon': 1e-6,
  'feed_forward_proj': 'relu',
  'tie_word_embeddings': True,
  **_DEFAULTS_OF_OURS,
}
_DEFAULTS_OF_MT5 = {
  **_DEFAULTS_OF_T5,
  'vocab_size': 250112,
  'd_ff': 1024,
  'num_layers': 8,
  'num_heads': 6,
  'feed_forward_proj': 'gated-gelu',
}
_DEFAULTS = {
  't5': _DEFAULTS_OF_T5,
  'synthesizer': _DEFAULTS_OF_T5,
  'mt5': _DEFAULTS_OF_MT5,
}
_ALIASES = {
  'hidden_size': 'd_model',
  'num_attention_heads': 'num_heads',
  'num_hidden_layers': 'num_layers',
  'head_dim': 'd_kv',
}
# Settings of models that are not T5; each is harmless if it has this value.
_REFUSED = {
  'tie_encoder_decoder': False,
  'pruned_heads': {},
  'quantization_config': None,
  'per_layer_config': None,
  'transformers_weights': None,
}


@dataclasses.dataclass(frozen=True)
class ConfigFile:
  """What config.json says: `read` finds the settings that `write` was given.

  Attributes:
    settings: of the model, under the names of `layout.config`; those that are
      read are complete.
    gin: the gin configuration of the model, or ''.
    step: after which the model was exported, or 0.
    vocabulary: its description, or None.
    head_is_tied: whether `lm_head.weight` is the embedding if the file lacks
      it, also in a model that does not share them.
  """

  settings: Mapping[str, Any]
  gin: str = ''
  step: int = 0
  vocabulary: Mapping[str, Any] | None = None
  head_is_tied: bool = False

  @property
  def is_plain(self) -> bool:
    """Whether `transformers`' own T5 has these settings."""
    return all(
      self.settings[name] == value for name, value in _DEFAULTS_OF_OURS.items()
    )

  def write(self, folder: pathlib.Path) -> None:
    """Writes the file."""
    content = {
      **self.settings,
      **SPECIAL_IDS,
      'is_encoder_decoder': True,
      'synth_mtf': {
        'gin': self.gin,
        'step': self.step,
        'vocabulary': self.vocabulary,
      },
    }
    if self.is_plain:
      content |= _PLAIN
    else:
      content = to_file(content) | _OURS
    json_files.write(folder / CONFIG, content)

  @classmethod
  def read(cls, folder: str) -> 'ConfigFile':
    """Reads the file of an export, or of any T5.

    Raises:
      UserError: if it is damaged, or no gin file describes such a model.
    """
    content = _content(folder)
    recorded = content['synth_mtf']
    return cls(
      _settings(folder, content),
      recorded['gin'],
      recorded['step'],
      recorded.get('vocabulary'),
      head_is_tied=content.get('tie_word_embeddings') is not False,
    )


def activation(
  name: str, function: str | None = None, is_gated: bool | None = None
) -> str:
  """Returns the name of a feed-forward layer that transformers computes.

  Args:
    name: its `feed_forward_proj`.
    function: its `dense_act_fn`; by default, as in the name.
    is_gated: its `is_gated_act`; by default, as in the name.
  """
  if function is None:
    function = name.removeprefix('gated-')
    if name == 'gated-gelu':  # not the function of that name
      function = 'gelu_new'
  if is_gated is None:
    is_gated = name.startswith('gated-')
  function = {'swish': 'silu'}.get(function, function)
  return f'gated-{function}' if is_gated else function


def _content(folder: str) -> dict[str, Any]:
  """Returns the file; its `synth_mtf` is what was recorded, if any."""
  path = os.path.join(folder, CONFIG)
  filesystem.check_entries(folder)
  try:
    content = stored.read_json(path)
    recorded = {'gin': '', 'step': 0, **content.get('synth_mtf', {})}
    if not isinstance(recorded['gin'], str):
      raise ValueError('its synth_mtf.gin is not a text')
    step = recorded['step']
    if type(step) is not int or not 0 <= step < 2**63:
      raise ValueError(f'its synth_mtf.step is {step!r:.80}')
    vocabulary = recorded.get('vocabulary')
    if vocabulary is not None and not isinstance(vocabulary, dict):
      raise ValueError('its synth_mtf.vocabulary is not an object')
    content['synth_mtf'] = recorded
  except Exception as error:  # depends on what is there instead
    raise UserError(
      f'{path} is missing or damaged ({error}); expected a folder of '
      "Hugging Face's T5, with config.json and model.safetensors."
      + files.instead(folder)
    ) from error
  return content


def _settings(folder: str, content: Mapping[str, Any]) -> dict[str, Any]:
  """Returns all settings of the model."""
  kind = content.get('model_type', 't5')
  if not isinstance(kind, str) or kind not in _DEFAULTS:
    raise UserError(
      f'{folder} has a model of the type {kind!r:.80}; expected '
      f'{", ".join(_DEFAULTS)}'
    )
  _refuse_others(folder, content, kind)
  _check_special_ids(folder, content)
  complete = {**_DEFAULTS[kind], **from_file(content)}
  for alias, name in _ALIASES.items():
    if alias in content:
      complete[name] = content[alias]
  if complete['num_decoder_layers'] is None:
    complete['num_decoder_layers'] = complete['num_layers']
  # `tie_word_embeddings` is true of all that transformers saves.
  tied = complete['tie_word_embeddings']
  complete['tie_word_embeddings'] = complete.get('scale_decoder_outputs', tied)
  if kind == 'mt5':
    complete['tie_word_embeddings'] = False
  complete['feed_forward_proj'] = activation(
    str(complete['feed_forward_proj']),
    content.get('dense_act_fn'),
    content.get('is_gated_act'),
  )
  return complete


def _refuse_others(folder: str, content: Mapping[str, Any], kind: str) -> None:
  """Refuses what transformers computes in another way than T5."""
  for name, value in _REFUSED.items():
    given = content.get(name, value)
    if given != value and given is not None:
      raise UserError(
        f'{folder}: {CONFIG} has {name} = {given!r:.80}; a T5 with it '
        'cannot be imported'
      )
  if kind != 'synthesizer' and content.get('auto_map'):
    raise UserError(
      f'{folder}: {CONFIG} asks for custom code (auto_map = '
      f"{content['auto_map']!r:.80}); expected transformers' own T5"
    )
  adapter = os.path.join(folder, 'adapter_config.json')
  if os.path.exists(adapter):
    raise UserError(
      f'{adapter}: transformers would add the weights of this adapter. Merge '
      'it there (merge_and_unload), or remove it to leave it out'
    )


def _check_special_ids(folder: str, content: Mapping[str, Any]) -> None:
  """Refuses ids that are not Mesh-TensorFlow's."""
  generation = os.path.join(folder, GENERATION_CONFIG)
  given = {os.path.join(folder, CONFIG): content}
  if os.path.exists(generation):
    try:
      given[generation] = dict(stored.read_json(generation))
    except Exception as error:  # depends on what is there instead
      raise UserError(f'{generation} is damaged: {error}') from error
  for path, values in given.items():
    for name, expected in SPECIAL_IDS.items():
      value = values.get(name)
      if value not in (None, expected, [expected]):
        raise UserError(
          f'{path} has {name} = {value!r:.80}; in Mesh-TensorFlow it is always '
          f'{expected}, so that the model would start, end or pad its texts '
          'elsewhere'
        )
