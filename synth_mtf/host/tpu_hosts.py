"""How many hosts the TPU slice of this machine has.

The environment says it on Kubernetes, and the metadata server on Google's VMs.
A TPU elsewhere, as in a notebook, has neither, and one host.
"""

import http.client
import os
import re
import urllib.request

from synth_mtf.errors import UserError
from synth_mtf.host import tpu_runtime

# In the order in which JAX reads them.
_NAMES = 'TPU_PROCESS_ADDRESSES', 'TPU_WORKER_HOSTNAMES'
_SLICES = 'MEGASCALE_NUM_SLICES'
_SECONDS = 10  # for the metadata server, which is on the same machine


def count() -> int:
  """Returns the number of hosts of all slices of a run; 1 without a TPU."""
  if tpu_runtime.chips() is None:
    return 1
  known = [os.environ[name] for name in _NAMES if name in os.environ]
  addresses = known[0] if known else _attribute('worker-network-endpoints')
  return len(addresses.split(',')) * _slices()


def _slices() -> int:
  number = os.environ.get(_SLICES)
  if number is None:
    found = re.search(rf"{_SLICES}: *'?(\d+)", _attribute('tpu-env'))
    number = found[1] if found else '1'
  if not number.isdigit() or number == '0':
    raise UserError(f'{_SLICES} is {number!r}: expected the number of slices')
  return int(number)


def _attribute(name: str) -> str:
  """Returns what the metadata server knows; '' if there is none."""
  if 'TPU_SKIP_MDS_QUERY' in os.environ:
    return ''
  server = os.environ.get('GCE_METADATA_IP', 'metadata.google.internal')
  url = f'http://{server}/computeMetadata/v1/instance/attributes/{name}'
  try:
    request = urllib.request.Request(url, headers={'Metadata-Flavor': 'Google'})
    with urllib.request.urlopen(request, timeout=_SECONDS) as response:
      return str(response.read().decode(errors='replace'))
  except (OSError, ValueError, http.client.HTTPException):
    return ''
