"""A plugin of JAX for the chips of a made-up TPU: they say `tpu`.

A CPU computes, divided into 8 chips; on a slice of several hosts, each has one,
as JAX 0.4 connects no more CPUs. JAX finds the plugin, like that of
`made_up_gpu.py`, in the namespace package `jax_plugins`.
"""

import os
from typing import Any

import jax
from jax._src import distributed, xla_bridge

_QUICK = '--xla_backend_optimization_level=0'
_CHIPS = '--xla_force_host_platform_device_count=8'


def initialize() -> None:
  """Registers the plugin; JAX calls it."""
  jax.Device.platform = property(lambda _: 'tpu')
  xla_bridge.register_backend_factory(
    'tpu', _client, priority=500, fail_quietly=False
  )


def _client() -> Any:
  if distributed.global_state.num_processes in (None, 1):
    os.environ['XLA_FLAGS'] = f'{_QUICK} {_CHIPS}'
  else:
    os.environ['XLA_FLAGS'] = _QUICK
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  return xla_bridge.make_cpu_client()
