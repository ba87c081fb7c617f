"""Prepares TFDS datasets from official files, without a download.

T5's tasks read datasets such as `glue/cola:1.0.0`. Here TFDS's own builders and
parsers generate them; a local folder replaces only the download, so that T5
reads the same data as anywhere else.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow_datasets as tfds


class _LocalFiles:
  """Replaces TFDS's download manager with one that downloads nothing."""

  def __init__(self, path: Any) -> None:
    self._path = path
    self.register_checksums = False
    self.downloaded_size = 0
    self.manual_dir = pathlib.Path(str(path))

  def download_and_extract(self, urls: Any) -> Any:
    del urls
    return self._path

  download = download_and_extract


def prepare(
  name: str,
  files: Any,
  tfds_dir: str,
  generators: Mapping[str, Iterator[tuple[Any, Any]]] | None = None,
) -> None:
  """Writes the dataset `name` below `tfds_dir`.

  Args:
    name: dataset, config and version, such as `glue/cola:1.0.0`.
    files: what replaces the builder's downloads: a folder, or a dict of files
      by the builder's own keys.
    tfds_dir: TFDS's data folder.
    generators: (key, example) pairs for each split, if the builder's own parser
      cannot run because it needs Apache Beam.
  """
  builder = tfds.builder(name, data_dir=tfds_dir)
  # TFDS has no public way to pass local files to a builder.
  own_splits = builder._split_generators  # noqa: SLF001

  def splits(manager: _LocalFiles, *unused_pipeline: Any) -> Any:
    if generators is not None:
      return dict(generators)
    return [split for split in own_splits(manager) if _is_there(split)]

  builder._make_download_manager = lambda **_: _LocalFiles(files)  # noqa: SLF001
  builder._split_generators = splits  # noqa: SLF001
  # TFDS reads older versions, but would generate only the newest one.
  builder.canonical_version = builder.version
  builder.download_and_prepare()


def _is_there(split: tfds.core.SplitGenerator) -> bool:
  kwargs = split.gen_kwargs
  files = kwargs.get('mrpc_files') or {
    key: path
    for key, path in kwargs.items()
    if key in ('data_file', 'filepath')
  }
  return all(os.path.exists(path) for path in files.values())
