"""Serves decoding by Hugging Face's T5, of random weights; see `_server`.

python -m benchmarks._torch_t5 '{"batch": 4, "beams": 1, ...}' eager sdpa

Needs torch and transformers, and nothing of this project's environment.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks._server import serve

# T5 (Base), as in gin/sizes/base.gin.
_BASE = {
  'vocab_size': 32128,
  'd_model': 768,
  'd_kv': 64,
  'd_ff': 3072,
  'num_layers': 12,
  'num_decoder_layers': 12,
  'num_heads': 12,
  'pad_token_id': 0,
  'eos_token_id': 1,
  'decoder_start_token_id': 0,
}


def decoding(
  attention: str, ids: list[list[int]], beams: int, targets: int
) -> Callable[[], object]:
  """Returns what decodes `targets` tokens with a cache, and no fewer.

  Args:
    attention: how transformers computes it.
    ids: the tokens of the encoder; 0 is padding.
    beams: 1 is greedy decoding.
    targets: tokens of the decoder.
  """
  torch.manual_seed(0)
  model = transformers.T5ForConditionalGeneration(
    transformers.T5Config(**_BASE, attn_implementation=attention)
  ).eval()
  inputs = torch.tensor(np.array(ids))

  def run() -> Any:
    with torch.inference_mode():
      output = model.generate(
        inputs,
        attention_mask=(inputs != 0).long(),
        max_new_tokens=targets,
        min_new_tokens=targets,
        num_beams=beams,
        do_sample=False,
      )
    assert output.shape[1] == targets + 1
    return output

  return run


if __name__ == '__main__':
  settings = json.loads(sys.argv[1])
  torch.set_num_threads(settings.pop('threads'))
  serve({name: decoding(name, **settings) for name in sys.argv[2:]})
