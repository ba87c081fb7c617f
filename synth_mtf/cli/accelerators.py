"""What `synth-mtf doctor` finds out about TPUs, and about JAX's devices.

It also runs on a broken installation: TensorFlow and JAX are imported inside
the check that needs them, JAX in a separate process.
"""

import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

from synth_mtf.cli.findings import Finding, counted
from synth_mtf.host import jax_support, tpu_runtime, xla_flags

_INSTALL = f'{tpu_runtime.INSTALL} (docs/tpu.md)'
_SECONDS = 60  # for JAX to list its devices, or for a server to answer
_WORKER = ('localhost', 8470)  # of a TPU slice: start_grpc_tpu_worker
# Prints the devices that JAX uses by default and then, if it has none of the
# given kind, the reason.
_LIST_DEVICES = """
import sys, jax
devices = jax.devices()
print(len(devices), devices[0].platform, devices[0].device_kind, sep=';')
try:
  jax.devices(sys.argv[1])
except RuntimeError as error:
  print(str(error).splitlines()[0])
"""


def packages() -> Iterator[Finding]:
  """Checks the packages with TensorFlow's TPU runtime, without importing it."""
  package = tpu_runtime.package()
  if tpu_runtime.are_mixed():
    text = (
      'tensorflow and tensorflow-tpu are both installed, in one folder, which '
      f'has the files of {package}'
    )
    if package == 'tensorflow-tpu':
      yield Finding('ok', text)
    else:
      fix = f'for --tpu, install tensorflow-tpu last: {_INSTALL}'
      yield Finding('note', f'{text}: --tpu finds no TPU', fix)
  library = tpu_runtime.libtpu()
  if library:
    text = tpu_runtime.described_libtpu(library)
    if tpu_runtime.missing_functions(library):
      yield Finding('ok', f'{text}, for JAX only: it has no stream executor')
    else:
      yield Finding('ok', f'{text} has the stream executor for TensorFlow')
  elif package == 'tensorflow-tpu':
    text = 'tensorflow-tpu is installed without libtpu'
    yield Finding('FAULT', text, _INSTALL)


def chips() -> Iterator[Finding]:
  """Lists TPU chips, the ways to use them, and what prevents that."""
  tpu = tpu_runtime.chips()
  if not tpu:
    return
  devices = ', '.join(tpu.devices) or 'no device'
  if tpu.has_stream_executor:
    ways = '--device=tpu (JAX) or --tpu=local (TensorFlow)'
  else:
    ways = "--device=tpu (JAX); TensorFlow's Estimator does not reach it"
  number = counted(tpu.number or 'no', 'chip')
  text = f'TPU {tpu.generation}: {number} ({devices}); use {ways}'
  yield Finding('ok', text)
  if not tpu.devices:
    yield Finding(
      'FAULT',
      'there is no /dev/accel* and no /dev/vfio/*, which lead to the chips',
      'create the VM with the software version for its chip (docs/tpu.md); a '
      'container needs the devices (docker run --privileged)',
    )
  load = os.environ.get('TPU_LOAD_LIBRARY')
  if load:
    effect = 'does not use the TPU' if load == '0' else 'uses it without a lock'
    yield Finding(
      'note',
      f'TPU_LOAD_LIBRARY={load}: TensorFlow {effect}',
      'unset it; only what drives the workers of a slice needs '
      'TPU_LOAD_LIBRARY=0',
    )
  holder = tpu_runtime.lock_holder()
  owner = tpu_runtime.lock_owner()
  if holder:
    yield Finding(
      'note',
      f'process {holder} uses the TPU (it holds {tpu_runtime.LOCK}): no other '
      'process finds it',
      f'wait for that process, or stop it: kill {holder}',
    )
  elif owner:
    yield Finding(
      'FAULT',
      f'{tpu_runtime.LOCK} belongs to {owner}, so that you find no TPU',
      f'if {owner} does not use the TPU: sudo rm {tpu_runtime.LOCK}',
    )


def jax_devices() -> Iterator[Finding]:
  """Lists the devices that JAX finds, or says why it finds none."""
  try:
    name = f'JAX {importlib.metadata.version("jax")}'
  except importlib.metadata.PackageNotFoundError:
    return  # seqio brings it, and is reported
  fault = xla_flags.fault(xla_flags.OF_XLA)
  if fault:
    yield Finding('FAULT', *fault.split('\n', 1))
    return
  wanted = 'cpu'
  if tpu_runtime.chips():
    wanted = 'tpu'
  elif shutil.which('nvidia-smi'):
    wanted = 'gpu'
  command = [sys.executable, '-c', _LIST_DEVICES, wanted]
  try:
    done = subprocess.run(
      command, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
  except subprocess.TimeoutExpired:
    text = f'{name} has not listed its devices in {_SECONDS} seconds'
    yield Finding('note', text, 'without a TPU: pip uninstall libtpu')
    return
  lines = done.stdout.splitlines()
  if done.returncode or not lines:
    (last,) = done.stderr.strip().splitlines()[-1:] or ['no message']
    text = f'{name} fails with status {done.returncode}: {last}'
    yield Finding('note', text, 'only --device needs it')
    return
  number, platform, kind = lines[0].split(';')
  yield Finding('ok', f'{name} finds: {number} {platform} ({kind})')
  if len(lines) > 1:
    fix = f'for --device={wanted}: '
    if tpu_runtime.package() == 'tensorflow-tpu':
      fix += 'in another environment, as this libtpu is for TensorFlow, '
      fix += jax_support.install(wanted)
    else:
      fix += jax_support.advice(wanted)
    yield Finding('note', f'{name} finds no {wanted}: {lines[1]}', fix)


def tensorflow_runtime() -> Iterator[Finding]:
  """Reports a TensorFlow without a TPU runtime where there are TPU chips."""
  import tensorflow as tf

  tpu = tpu_runtime.chips()
  if tpu and tpu.has_stream_executor and not tpu_runtime.has_runtime():
    text = f'TensorFlow {tf.__version__} was built without a TPU runtime'
    yield Finding('note', text, f'for --tpu=local: {_INSTALL}')


def worker() -> Iterator[Finding]:
  """Checks that a worker of a TPU slice on this machine has tensorflow_text."""
  address = ':'.join(map(str, _WORKER))
  try:
    socket.create_connection(_WORKER, timeout=1).close()
  except OSError:
    return
  import tensorflow.compat.v1 as tf
  import tensorflow_text

  from synth_mtf.host import explanations

  options = tf.ConfigProto(operation_timeout_in_ms=1000 * _SECONDS)
  with tf.Graph().as_default(), explanations.explained():
    # Any operation of tensorflow_text will do.
    words = tensorflow_text.WhitespaceTokenizer().tokenize(['a b'])
    with tf.Session(f'grpc://{address}', config=options) as session:
      session.run(words.flat_values)
  text = f'the TensorFlow server at {address} has tensorflow_text'
  yield Finding('ok', text)
