"""Texts of commands that TensorFlow is needed to make, as shipped.

`python -m tests.cli.shipped_test` writes them. They hold for the versions of
the host that they were made with.
"""

import importlib.metadata
import json
import pathlib

_HOST = ('mesh-tensorflow', 't5', 'seqio-nightly', 'absl-py')


def text(name: str) -> str | None:
  """Returns what a command prints, or None with other versions of the host."""
  content = json.loads(path(name).read_text('utf-8'))
  return content['text'] if content['host'] == _versions() else None


def write(name: str, made: str) -> None:
  """Replaces a text."""
  content = {'host': _versions(), 'text': made}
  path(name).write_text(json.dumps(content, indent=1) + '\n', 'utf-8')


def path(name: str) -> pathlib.Path:
  """Returns the path of a text's file."""
  return pathlib.Path(__file__).with_name(f'{name}.json')


def _versions() -> dict[str, str]:
  versions = {}
  for name in _HOST:
    try:
      versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      versions[name] = 'none'
  return versions
