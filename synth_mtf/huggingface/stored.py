"""A folder of transformers: its settings and weights, as transformers reads it.

What changes the computation is read or refused, and nothing is ignored.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf

from synth_mtf import filesystem
from synth_mtf.checkpoints import files
from synth_mtf.errors import UserError
from synth_mtf.huggingface import extra, layout

_WEIGHTS = 'model.safetensors'
_INDEX = f'{_WEIGHTS}.index.json'
_DTYPES = {
  'F64': np.float64,
  'F32': np.float32,
  'F16': np.float16,
  'BF16': tf.bfloat16.as_numpy_dtype,
}
# What transformers assumes unless it is given, by `model_type`.
_OF_T5: dict[str, Any] = {
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
  # Of our class.
  'attention': {},
  'positions': {},
  'shared_positions': False,
  'use_bias': False,
  'true_layer_norm': False,
}
_OF_MT5 = {
  **_OF_T5,
  'vocab_size': 250112,
  'd_ff': 1024,
  'num_layers': 8,
  'num_heads': 6,
  'feed_forward_proj': 'gated-gelu',
}
_DEFAULTS = {'t5': _OF_T5, 'synthesizer': _OF_T5, 'mt5': _OF_MT5}
_ALIASES = {
  'hidden_size': 'd_model',
  'num_attention_heads': 'num_heads',
  'num_hidden_layers': 'num_layers',
  'head_dim': 'd_kv',
}
# Mesh-TensorFlow's, in all of T5; None and a missing id are these.
_SPECIAL_IDS = {
  'pad_token_id': 0,
  'eos_token_id': 1,
  'decoder_start_token_id': 0,
}
# Settings of models that are not T5; each is harmless if it has this value.
_REFUSED = {
  'tie_encoder_decoder': False,
  'pruned_heads': {},
  'quantization_config': None,
  'per_layer_config': None,
  'transformers_weights': None,
}

Array = npt.NDArray[Any]


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


def read_config(folder: str) -> dict[str, Any]:
  """Returns config.json; its `synth_mtf` is what `export` recorded, if any."""
  path = os.path.join(folder, layout.CONFIG)
  filesystem.check_entries(folder)
  try:
    config = _json(path)
    recorded = {'gin': '', 'step': 0, **config.get('synth_mtf', {})}
    if not isinstance(recorded['gin'], str):
      raise ValueError('its synth_mtf.gin is not a text')
    step = recorded['step']
    if type(step) is not int or not 0 <= step < 2**63:
      raise ValueError(f'its synth_mtf.step is {step!r:.80}')
    if not isinstance(recorded.get('vocabulary', {}), dict):
      raise ValueError('its synth_mtf.vocabulary is not an object')
    config['synth_mtf'] = recorded
  except Exception as error:  # depends on what is there instead
    raise UserError(
      f'{path} is missing or damaged ({error}); expected a folder of '
      "Hugging Face's T5, with config.json and model.safetensors."
      + files.instead(folder)
    ) from error
  return config


def settings(folder: str, config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns all settings of the model, under the names of `layout.config`.

  Args:
    folder: which holds the configuration.
    config: of `read_config`.

  Raises:
    UserError: if no gin file describes such a model.
  """
  kind = config.get('model_type', 't5')
  if not isinstance(kind, str) or kind not in _DEFAULTS:
    raise UserError(
      f'{folder} has a model of the type {kind!r:.80}; expected '
      f'{", ".join(_DEFAULTS)}'
    )
  _refuse_others(folder, config, kind)
  _check_special_ids(folder, config)
  complete = {**_DEFAULTS[kind], **config}
  for alias, name in _ALIASES.items():
    if alias in config:
      complete[name] = config[alias]
  if complete['num_decoder_layers'] is None:
    complete['num_decoder_layers'] = complete['num_layers']
  # `tie_word_embeddings` is true of all that transformers saves.
  tied = complete['tie_word_embeddings']
  complete['tie_word_embeddings'] = complete.get('scale_decoder_outputs', tied)
  if kind == 'mt5':
    complete['tie_word_embeddings'] = False
  # `feed_forward` is that of our class.
  complete['feed_forward_proj'] = activation(
    str(config.get('feed_forward', complete['feed_forward_proj'])),
    config.get('dense_act_fn'),
    config.get('is_gated_act'),
  )
  return complete


def _refuse_others(folder: str, config: Mapping[str, Any], kind: str) -> None:
  """Refuses what transformers computes in another way than T5."""
  for name, value in _REFUSED.items():
    given = config.get(name, value)
    if given != value and given is not None:
      raise UserError(
        f'{folder}: {layout.CONFIG} has {name} = {given!r:.80}; a T5 with it '
        'cannot be imported'
      )
  if kind != 'synthesizer' and config.get('auto_map'):
    raise UserError(
      f'{folder}: {layout.CONFIG} names code of its own (auto_map = '
      f"{config['auto_map']!r:.80}); expected transformers' own T5"
    )
  adapter = os.path.join(folder, 'adapter_config.json')
  if os.path.exists(adapter):
    raise UserError(
      f'{adapter}: transformers would add the weights of this adapter. Merge '
      'it there (merge_and_unload), or remove it to leave it out'
    )


def _check_special_ids(folder: str, config: Mapping[str, Any]) -> None:
  """Refuses ids that are not Mesh-TensorFlow's."""
  generation = os.path.join(folder, 'generation_config.json')
  given = {os.path.join(folder, layout.CONFIG): config}
  if os.path.exists(generation):
    try:
      given[generation] = dict(_json(generation))
    except Exception as error:  # depends on what is there instead
      raise UserError(f'{generation} is damaged: {error}') from error
  for path, values in given.items():
    for name, expected in _SPECIAL_IDS.items():
      value = values.get(name)
      if value not in (None, expected, [expected]):
        raise UserError(
          f'{path} has {name} = {value!r:.80}; in Mesh-TensorFlow it is always '
          f'{expected}, so that the model would start, end or pad its texts '
          'elsewhere'
        )


def _json(path: str) -> Any:
  text = filesystem.text(path)
  if text is None:
    raise ValueError('it is not there')
  return json.loads(text)


class Weights:
  """The weights of a folder, whose values are read when they are needed.

  Attributes:
    shapes: of all weights, by name.
  """

  def __init__(self, folder: str) -> None:
    self.shapes: dict[str, tuple[int, ...]] = {}
    self._parts: dict[str, str] = {}  # the file of each weight
    for part, expected in _parts(folder):
      for name, shape in _header(part).items():
        if name in self._parts:
          raise UserError(f'{name} is in {part} and in {self._parts[name]}')
        self.shapes[name] = shape
        self._parts[name] = part
      for name in expected:
        if self._parts.get(name) != part:
          raise UserError(
            f'{part} lacks {name}, which {_INDEX} places in it: copy the '
            'folder again'
          )

  def read(self) -> dict[str, Array]:
    """Returns the values; NumPy's reader in safetensors lacks bfloat16."""
    values = {}
    for part in dict.fromkeys(self._parts.values()):
      with open(part, 'rb') as stream:
        tensors = extra.safetensors().deserialize(stream.read())
      for name, tensor in tensors:
        value = np.frombuffer(tensor['data'], _DTYPES[tensor['dtype']])
        values[name] = value.reshape(tensor['shape'])
    return values


def _parts(folder: str) -> Iterator[tuple[str, Sequence[str]]]:
  """Yields the files that transformers would read, and what is due in each."""
  whole = os.path.join(folder, _WEIGHTS)
  index = os.path.join(folder, _INDEX)
  if os.path.exists(whole):
    yield whole, ()
    return
  if not os.path.exists(index):
    raise UserError(
      f'{folder} has no {_WEIGHTS} and no {_INDEX}. Other files, such as '
      'pytorch_model.bin, run code when they are read: load them in '
      'transformers, and call save_pretrained'
    )
  names: dict[str, list[str]] = {}
  try:
    for name, part in _json(index)['weight_map'].items():
      if os.path.basename(part) != part:
        raise ValueError(f'{name} is in {part!r:.80}, outside the folder')
      names.setdefault(part, []).append(name)
  except Exception as error:  # depends on what is there instead
    raise UserError(
      f'{index} is damaged ({error}); expected weight_map, with the file of '
      'each weight'
    ) from error
  for part in sorted(names):
    path = os.path.join(folder, part)
    if not os.path.exists(path):
      raise UserError(f'{path} is missing, which {_INDEX} names')
    yield path, names[part]


def _header(part: str) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of all weights in a file."""
  shapes = {}
  with filesystem.reading(part):  # refuses a pointer of Git LFS
    pass
  try:
    with extra.safetensors().safe_open(part, 'numpy') as stream:
      for name in stream.keys():  # noqa: SIM118  it is no mapping
        weight = stream.get_slice(name)
        if weight.get_dtype() not in _DTYPES:
          raise ValueError(
            f'{name} is {weight.get_dtype()}, expected {", ".join(_DTYPES)}'
          )
        shapes[name] = tuple(weight.get_shape())
  except Exception as error:  # the library has its own
    raise UserError(f'{part} cannot be read: {error}') from error
  return shapes
