"""Beam search as in Mesh-TensorFlow, where that of transformers differs."""

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin, TopKLogitsWarper


class BeamSearch(GenerationMixin):
  """Beam search as in Mesh-TensorFlow; comes before T5's class."""

  def save_pretrained(self, *arguments: Any, **named: Any) -> None:
    """Saves a folder for `from_pretrained`, like that of an export."""
    rename_beam_settings(self.generation_config)
    super().save_pretrained(*arguments, **named)

  def _prepare_generation_config(
    self, generation_config: Any, **named: Any
  ) -> tuple[Any, dict[str, Any]]:
    """Searches as the run does, where the caller leaves it open."""
    chosen, others = super()._prepare_generation_config(
      generation_config, **named
    )
    alpha = getattr(chosen, 'beam_alpha', None)
    if alpha is None or chosen.num_beams == 1:
      return chosen, others
    of_run = {'length_penalty': alpha, 'early_stopping': 'never'}
    for name, value in of_run.items():
      given = (
        named.get(name),
        getattr(generation_config, name, None),
        getattr(self.generation_config, name),
      )
      if all(x is None for x in given):
        setattr(chosen, name, value)
    return chosen, others

  def _get_logits_processor(self, generation_config: Any, **others: Any) -> Any:
    """Considers only the best continuations of each beam, T5's shortcut."""
    processors = super()._get_logits_processor(generation_config, **others)
    count = getattr(generation_config, 'num_prefilter', 0)
    if count and generation_config.num_beams > 1:
      processors.append(TopKLogitsWarper(count))
    return processors

  def _update_finished_beams(
    self,
    topk_running_sequences: Tensor,
    topk_log_probs: Tensor,
    is_sent_finished: Tensor,
    next_token_hits_stopping_criteria: Tensor,
    cur_len: int,
    decoder_prompt_len: int,
    length_penalty: float,
    **others: Any,
  ) -> Any:
    """Accepts every beam that ends, and others only if none has ended.

    The length penalty is ((5 + length) / 6)^alpha (arXiv 1609.08144).
    """
    last = topk_running_sequences[:, :, cur_len]
    ended = (last == self.config.eos_token_id) & (topk_log_probs > -1e8)
    none_ended = ~(ended.any(-1, True) | is_sent_finished.any(-1, True))
    length = cur_len + 1 - decoder_prompt_len
    for mask in ('top_num_beam_mask', 'is_early_stop_heuristic_unsatisfied'):
      others[mask] = torch.ones_like(others[mask])
    return super()._update_finished_beams(
      topk_running_sequences=topk_running_sequences,
      topk_log_probs=topk_log_probs / ((5 + length) / 6) ** length_penalty,
      is_sent_finished=is_sent_finished,
      next_token_hits_stopping_criteria=ended
      | (none_ended & next_token_hits_stopping_criteria),
      cur_len=cur_len,
      decoder_prompt_len=decoder_prompt_len,
      length_penalty=0.0,
      **others,
    )


def rename_beam_settings(generation_config: Any) -> None:
  """Gives the settings of an earlier version's export their names of today.

  Until 5.22, transformers loads `length_penalty` without `num_beams`, but does
  not save it; `beam_alpha` is not among the settings that it knows.
  """
  is_old = (
    generation_config.num_beams is None
    and generation_config.early_stopping == 'never'
    and generation_config.length_penalty is not None
  )
  if is_old:
    generation_config.beam_alpha = generation_config.length_penalty
    generation_config.length_penalty = None
    generation_config.early_stopping = None
