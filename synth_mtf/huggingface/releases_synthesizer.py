"""The releases of transformers that the model works with, and what it needs."""

import inspect
import warnings
from collections.abc import Collection
from typing import Any

import transformers

try:
  from transformers import (
    Cache,
    GenerationMixin,
    T5ForConditionalGeneration,
  )
  from transformers.masking_utils import (
    create_masks_for_generate as create_masks_for_generate,
  )
  from transformers.models.t5.modeling_t5 import T5Attention, T5Stack
except ImportError as error:
  raise ImportError(
    f'transformers {transformers.__version__}; this model was tried with 5.1 '
    f'to 5.24, and needs what this release lacks ({error}): '
    'pip install "transformers>=5.1,<5.25"'
  ) from error

# The releases of transformers with which outputs were compared, with and
# without a cache. transformers 5.0 scales the outputs of each T5 1.1.
OLDEST, NEWEST = (5, 1), (5, 24)

# The argument for the cache is `cache` in transformers 5.24.
CACHE = (
  'cache'
  if 'cache' in inspect.signature(T5Attention.forward).parameters
  else 'past_key_values'
)

# The methods of transformers that the model calls, replaces or extends, with
# the arguments that it relies on.
RELIED_ON: tuple[tuple[type, str, tuple[str, ...]], ...] = (
  (
    T5Attention,
    'forward',
    ('hidden_states', 'mask', 'key_value_states', 'position_bias', CACHE),
  ),
  (
    T5Attention,
    '_relative_position_bucket',
    ('bidirectional', 'num_buckets', 'max_distance'),
  ),
  (
    T5Stack,
    'forward',
    (
      'input_ids',
      'attention_mask',
      'encoder_hidden_states',
      'encoder_attention_mask',
      'inputs_embeds',
      CACHE,
    ),
  ),
  (T5ForConditionalGeneration, 'forward', (CACHE,)),
  (Cache, 'update', ('key_states', 'value_states', 'layer_idx')),
  (GenerationMixin, '_prepare_generation_config', ('generation_config',)),
  (GenerationMixin, '_get_logits_processor', ('generation_config',)),
  (
    GenerationMixin,
    '_update_finished_beams',
    (
      'topk_running_sequences',
      'topk_log_probs',
      'is_early_stop_heuristic_unsatisfied',
      'is_sent_finished',
      'next_token_hits_stopping_criteria',
      'top_num_beam_mask',
      'cur_len',
      'decoder_prompt_len',
      'length_penalty',
    ),
  ),
)

# The other arguments that T5 passes on to its layers.
PASSED_ON = {
  CACHE,
  'cache_position',
  'num_items_in_batch',
  'output_attentions',
  'output_hidden_states',
  'query_length',
  'return_dict',
  'use_cache',
}


def check_release() -> None:
  """Warns of an untried release of transformers.

  Raises:
    ImportError: if it is too old, or lacks what the model relies on.
  """
  version = transformers.__version__
  oldest = '{}.{}'.format(*OLDEST)
  newest = '{}.{}'.format(*NEWEST)
  tried = (
    f'transformers {version}; this model was tried with {oldest} to {newest}'
  )
  advice = f'pip install "transformers>={oldest},<{NEWEST[0]}.{NEWEST[1] + 1}"'
  release = tuple(map(int, version.split('.')[:2]))
  missing = []
  for owner, name, arguments in RELIED_ON:
    method = getattr(owner, name, None)
    known = inspect.signature(method).parameters if method else ()
    missing += [
      f'{owner.__name__}.{name}({argument})'
      for argument in arguments
      if argument not in known
    ]
  if release < OLDEST:
    raise ImportError(f'{tried}, and does not work with older ones: {advice}')
  if missing:
    raise ImportError(f'{tried}, and needs {", ".join(missing)}: {advice}')
  if release > NEWEST:
    warnings.warn(
      f'{tried}. To be safe: {advice}. Otherwise, compare its outputs with '
      'those of model.generate(..., use_cache=False)',
      stacklevel=2,
    )


def refuse_unknown(
  arguments: dict[str, Any], known: Collection[str] = PASSED_ON
) -> None:
  """Raises a TypeError if there are arguments that would have no effect."""
  unknown = [name for name in arguments if name not in known]
  if unknown:
    raise TypeError(f'T5 has no argument {", ".join(unknown)}')


check_release()
