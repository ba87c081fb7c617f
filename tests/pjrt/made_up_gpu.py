"""A plugin of JAX for a made-up GPU: it says `gpu`, and a CPU computes.

It stands for a machine with an NVIDIA GPU and `jax[cuda12]`, which brings
`cuda` but not `rocm`. JAX finds it, like the real one, in the namespace package
`jax_plugins`.
"""

import os
from typing import Any

import jax
from jax._src import distributed, hardware_utils, xla_bridge


def initialize() -> None:
  """Registers the plugin; JAX calls it."""
  hardware_utils.has_visible_nvidia_gpu = lambda: True  # since JAX 0.5
  jax.Device.platform = property(lambda _: 'gpu')
  xla_bridge.register_backend_factory(
    'cuda', _client, priority=500, fail_quietly=False
  )


def _client() -> Any:
  fault = os.environ.get('MADE_UP_FAULT')
  if fault:
    raise RuntimeError(fault)
  if distributed.global_state.num_processes not in (None, 1):
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  return xla_bridge.make_cpu_client()
