"""A stand-in for Google's cloud and its command, `gcloud`.

It knows the words and flags of the documents' commands, as Google's reference
has them, and does what Google's program does where that may surprise: `storage`
skips links to folders, and says no to a folder that is not there.

A TPU VM is a folder for each of its hosts, the home of a user, in which `ssh`
starts a shell with a VM's environment and nothing of the caller's.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.made_up_gcs import Objects

_HERE = pathlib.Path(__file__).resolve()
_QUEUED, _VM = 'compute tpus queued-resources', 'compute tpus tpu-vm'
# As in docs/tpu.md.
_VERSIONS = {
  'v2': 'tpu-ubuntu2204-base',
  'v3': 'tpu-ubuntu2204-base',
  'v4': 'tpu-ubuntu2204-base',
  'v5litepod': 'v2-alpha-tpuv5-lite',
  'v5p': 'v2-alpha-tpuv5',
  'v6e': 'v2-alpha-tpuv6e',
}
_SECONDS = 60  # that a VM has to end what it runs


class Cloud:
  """The buckets and VMs of a project.

  Attributes:
    objects: in the buckets.
  """

  def __init__(self, folder: pathlib.Path) -> None:
    self.objects = Objects(folder / 'storage')
    self._folder = folder
    self._variables = folder / 'variables.json'

  def install(
    self, hosts: Sequence[Mapping[str, str]], *folders: pathlib.Path
  ) -> None:
    """Puts `gcloud` into folders.

    Args:
      hosts: the environment of each host that a VM has.
      *folders: in the PATH of who uses it.
    """
    self._folder.mkdir()
    self._variables.write_text(json.dumps(hosts))
    for folder in folders:
      program = folder / 'gcloud'
      program.write_text(
        f'#!/bin/sh\nPYTHONPATH={_HERE.parent.parent} '
        f'exec {sys.executable} {_HERE} {self._folder} "$@"\n'
      )
      program.chmod(0o755)

  def homes(self, vm: str) -> list[pathlib.Path]:
    """Returns the home of the user on each host of a VM."""
    return sorted(self._folder.glob(f'vms/{vm}/host-*'))

  def names(self) -> list[str]:
    """Returns the VMs."""
    return [vm.name for vm in self._folder.glob('vms/*')]

  def create(self, vm: str, script: str | None) -> None:
    """Creates a VM, whose hosts run a script."""
    for number, variables in enumerate(self._hosts()):
      home = self._folder / 'vms' / vm / f'host-{number}'
      home.mkdir(parents=True)
      if script:
        self._start(home, script, variables)

  def _start(
    self, home: pathlib.Path, script: str, variables: Mapping[str, str]
  ) -> None:
    """Runs a script as the system does at its start: without a home."""
    started = shutil.copy(script, home / 'startup-script')
    os.chmod(started, 0o755)
    with open(home / 'log', 'wb') as log:
      process = subprocess.Popen(
        [started],
        cwd='/',
        env=variables,
        stdout=log,
        stderr=log,
        start_new_session=True,
      )
    (home / 'process').write_text(str(process.pid))

  def delete(self, vm: str) -> str:
    """Ends what the hosts of a VM run; returns what their scripts printed.

    A VM that ends sends SIGTERM to all its processes.
    """
    self._signal(vm, signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS
    while self.is_running(vm) and time.monotonic() < deadline:
      time.sleep(0.1)
    self._signal(vm, signal.SIGKILL)
    logs = self._folder.glob(f'vms/{vm}/*/log')
    printed = ''.join(log.read_text() for log in logs)
    shutil.rmtree(self._folder / 'vms' / vm)
    return printed

  def is_running(self, vm: str) -> bool:
    """Whether a host of a VM runs its script."""
    return any(map(_is_alive, self._groups(vm)))

  def _signal(self, vm: str, number: int) -> None:
    for group in self._groups(vm):
      with contextlib.suppress(ProcessLookupError):  # all have ended
        os.killpg(group, number)

  def _groups(self, vm: str) -> list[int]:
    """Returns the process groups of the scripts."""
    files = self._folder.glob(f'vms/{vm}/*/process')
    return [int(file.read_text()) for file in files]

  def shells(
    self, vm: str, numbers: Sequence[int], words: Sequence[str]
  ) -> int:
    """Runs shells on hosts, at the same time; returns the worst status."""
    homes, hosts = self.homes(vm), self._hosts()
    running = [
      subprocess.Popen(
        ['bash', *words],
        cwd=homes[number],
        env={'HOME': str(homes[number]), **hosts[number]},
      )
      for number in numbers
    ]
    return max(each.wait() for each in running)

  def _hosts(self) -> list[dict[str, str]]:
    return json.loads(self._variables.read_text())


def _is_alive(process: int) -> bool:
  """Whether a process runs; one that has ended may wait for its parent."""
  try:
    status = pathlib.Path('/proc', str(process), 'stat').read_text()
  except FileNotFoundError:
    return False
  return status.rpartition(')')[2].split()[0] != 'Z'


def _main(folder: str, *words: str) -> int:
  for command, (run, usage) in _COMMANDS.items():
    length = len(command.split())
    if list(words[:length]) == command.split():
      given = _parser(command, usage).parse_args(words[length:])
      return run(Cloud(pathlib.Path(folder)), given) or 0
  raise SystemExit(f'gcloud has no such command: {words}')


def _parser(command: str, usage: str) -> argparse.ArgumentParser:
  """Returns the parser of a command; what is in brackets may be left out."""
  parser = argparse.ArgumentParser(f'gcloud {command}', allow_abbrev=False)
  for word in usage.split():
    name = word.strip('[]=')
    if not name.startswith('--'):
      parser.add_argument(name, nargs='+' if name == 'sources' else None)
    elif '=' in word:
      parser.add_argument(name, required='[' not in word)
    else:
      parser.add_argument(name, action='store_true')
  return parser


def _parts(url: str) -> tuple[str, str]:
  """Returns the bucket and the name of an object."""
  bucket, _, name = url.removeprefix('gs://').partition('/')
  return bucket, name


def _is_object(url: str) -> bool:
  return url.startswith('gs://')


def _create_bucket(cloud: Cloud, given: argparse.Namespace) -> None:
  cloud.objects.create(_parts(given.url)[0])


def _copy(cloud: Cloud, given: argparse.Namespace) -> None:
  """Copies single files; what happens to folders depends on the target."""
  for source in given.sources:
    content = _read(cloud, source)
    _write(cloud, _inside(given.to, os.path.basename(source)), content)


def _inside(target: str, name: str) -> str:
  is_folder = not _parts(target)[1] if _is_object(target) else False
  return f'{target}/{name}' if is_folder or os.path.isdir(target) else target


def _read(cloud: Cloud, source: str) -> bytes:
  if _is_object(source):
    return cloud.objects.read(*_parts(source))
  return pathlib.Path(source).read_bytes()


def _write(cloud: Cloud, target: str, content: bytes) -> None:
  if _is_object(target):
    cloud.objects.write(*_parts(target), content)
  else:
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(target).write_bytes(content)


def _synchronize(cloud: Cloud, given: argparse.Namespace) -> None:
  assert given.recursive, 'the folders of the source would be missing'
  for name in _names(cloud, given.source):
    if not (given.exclude and re.match(given.exclude, name)):
      content = _read(cloud, f'{given.source}/{name}')
      _write(cloud, f'{given.to}/{name}', content)


def _names(cloud: Cloud, source: str) -> Iterator[str]:
  """Yields the names below a folder or a prefix."""
  if _is_object(source):
    bucket, prefix = _parts(f'{source}/')
    for name in cloud.objects.names(bucket, prefix):
      if not name.endswith('/'):
        yield name.removeprefix(prefix)
    return
  assert os.path.isdir(source), f'Did not find existing container at: {source}'
  for folder, _, names in os.walk(source):  # which follows no links to folders
    for name in names:
      yield os.path.relpath(os.path.join(folder, name), source)


def _create(cloud: Cloud, given: argparse.Namespace) -> None:
  chip, _, _ = given.accelerator_type.partition('-')
  assert given.runtime_version == _VERSIONS[chip], given.runtime_version
  key, _, script = (given.metadata_from_file or '').partition('=')
  assert key in ('', 'startup-script'), key
  cloud.create(given.node_id, script)


def _describe(cloud: Cloud, given: argparse.Namespace) -> None:
  assert given.name in cloud.names(), given.name
  print('state:\n  state: ACTIVE')


def _delete(cloud: Cloud, given: argparse.Namespace) -> None:
  assert given.force, f'{given.name} still has its VM'
  cloud.delete(given.name)


def _list(cloud: Cloud, _: argparse.Namespace) -> None:
  print(*cloud.names(), sep='\n')


def _numbers(cloud: Cloud, vm: str, worker: str | None) -> list[int]:
  count = len(cloud.homes(vm))
  assert count, f'no VM {vm}'
  return [*range(count)] if worker == 'all' else [int(worker or 0)]


def _copy_to_vm(cloud: Cloud, given: argparse.Namespace) -> None:
  vm, _, path = given.to.partition(':')
  for number in _numbers(cloud, vm, given.worker):
    for source in given.sources:
      shutil.copy(source, cloud.homes(vm)[number] / path)


def _shell(cloud: Cloud, given: argparse.Namespace) -> int:
  assert given.command or given.worker != 'all', 'a command is needed'
  words = ['-c', given.command] if given.command else []
  numbers = _numbers(cloud, given.name, given.worker)
  return cloud.shells(given.name, numbers, words)


# What runs a command, and its words and flags.
_COMMANDS: dict[
  str, tuple[Callable[[Cloud, argparse.Namespace], int | None], str]
] = {
  'storage buckets create': (_create_bucket, 'url --location='),
  'storage cp': (_copy, 'sources to'),
  'storage rsync': (_synchronize, 'source to [--recursive] [--exclude=]'),
  f'{_QUEUED} create': (
    _create,
    'name --node-id= --zone= --accelerator-type= --runtime-version= [--spot] '
    '[--metadata-from-file=]',
  ),
  f'{_QUEUED} describe': (_describe, 'name --zone='),
  f'{_QUEUED} delete': (_delete, 'name --zone= [--force]'),
  f'{_VM} scp': (_copy_to_vm, 'sources to --zone= [--worker=]'),
  f'{_VM} ssh': (_shell, 'name --zone= [--worker=] [--command=]'),
  f'{_VM} list': (_list, '--zone='),
}

if __name__ == '__main__':
  sys.exit(_main(*sys.argv[1:]))
