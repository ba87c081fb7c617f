"""The folder of a demo run: what is where, whose it is, and what is done.

run.json               the configuration; no other may run here
data/, vocabulary.model    if the run makes its own
<run>/pretrain/        checkpoints and TensorBoard summaries
<run>/finetune/        the same, and validation_eval/
<run>/<stage>.json     the stage is done, and with what result
logs/                  TensorFlow's log of each stage
table.md, metrics.json the results
report.html            them and more, in a browser

A run is a variant's; with several seeds, <run> is <variant>/seed_<seed>.
"""

import dataclasses
import fcntl
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional

from synth_mtf import atomic
from synth_mtf.demo.configuration import Configuration
from synth_mtf.errors import UserError


class RunFolder:
  """A demo's output folder.

  Args:
    path: the folder; it need not exist.
    configuration: what is to run in it.
  """

  def __init__(self, path: str, configuration: Configuration) -> None:
    self.path = pathlib.Path(path).absolute()
    self._configuration = configuration

  @property
  def data(self) -> pathlib.Path:
    """The generated samples, if no data folder is given."""
    return self.path / 'data'

  @property
  def vocabulary(self) -> pathlib.Path:
    """The vocabulary that the run trains, if none is given."""
    return self.path / 'vocabulary.model'

  @property
  def index(self) -> pathlib.Path:
    """Row counts of the data."""
    return self.path / 'index'

  @property
  def table(self) -> pathlib.Path:
    """The results as Markdown."""
    return self.path / 'table.md'

  @property
  def page(self) -> pathlib.Path:
    """The page for a browser."""
    return self.path / 'report.html'

  @property
  def metrics(self) -> pathlib.Path:
    """The results as JSON."""
    return self.path / 'metrics.json'

  def run(self, variant: str, seed: int) -> pathlib.Path:
    """The folder of a variant that is trained with a seed."""
    folder = self.path / variant
    several = len(self._configuration.seeds) > 1
    return folder / f'seed_{seed}' if several else folder

  def log(self, *names: str) -> pathlib.Path:
    """The log of a piece of work."""
    return self.path / 'logs' / f'{"-".join(names)}.log'

  def check(self) -> None:
    """Checks that the folder is new or holds this configuration's run.

    Raises:
      UserError: it does not. Nothing has been changed.
    """
    if not self.path.exists():
      self._check_parent()
      return
    if not self.path.is_dir():
      raise UserError(f'--out {self.path} is a file; expected a folder.')
    if not os.access(self.path, os.W_OK | os.X_OK):
      raise UserError(f'--out {self.path} cannot be written to (permissions).')
    manifest = self._manifest()
    if manifest is None:
      if any(not one.name.startswith('.') for one in self.path.iterdir()):
        raise UserError(
          f'--out {self.path} holds something that is not a demo run; nothing '
          'was changed. Give an empty folder or one that does not exist.'
        )
      return
    self._check_same(manifest)

  def _check_parent(self) -> None:
    parent = next(one for one in self.path.parents if one.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
      raise UserError(
        f'--out {self.path} cannot be made: {parent} is not a folder that can '
        'be written to.'
      )

  def _check_same(self, manifest: dict[str, Any]) -> None:
    wanted = self._described()
    differences = [
      f'  {name}: {manifest.get(name)!r} there, {value!r} now'
      for name, value in wanted.items()
      if manifest.get(name) != value
    ]
    if differences:
      raise UserError(
        f"--out {self.path} holds another configuration's run; nothing was "
        'changed. Choose another --out, or give what it was made with:\n'
        + '\n'.join(differences)
      )

  @contextmanager
  def opened(self) -> Iterator[None]:
    """Makes the folder, marks it as this run's, and keeps other processes out.

    Raises:
      UserError: another process is running in it.
    """
    self.path.mkdir(parents=True, exist_ok=True)
    with open(self.path / '.lock', 'w') as lock:
      try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        raise UserError(
          f'another demo is running in {self.path}; wait for it, or choose '
          'another --out.'
        ) from None
      if self._manifest() is None:
        atomic.write(self.path / 'run.json', _json(self._described()))
      (self.path / 'logs').mkdir(exist_ok=True)
      yield

  def result(
    self, variant: str, seed: int, stage: str
  ) -> Optional[dict[str, Any]]:
    """Returns what a stage has found, or None if it is not done."""
    path = self._result(variant, seed, stage)
    return _read(path) if path.exists() else None

  def finish(
    self, variant: str, seed: int, stage: str, result: dict[str, Any]
  ) -> None:
    """Notes that a stage is done."""
    atomic.write(self._result(variant, seed, stage), _json(result))

  def rows(self, first: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Returns what was found for each variant that is done, seed by seed.

    Args:
      first: variants to begin with; others that were run here follow.
    """
    seeds = self._configuration.seeds
    done = sorted(
      path.name
      for path in self.path.iterdir()
      if all(self.result(path.name, seed, 'evaluate') for seed in seeds)
    )
    return {
      variant: [
        {
          'seed': seed,
          **(self.result(variant, seed, 'evaluate') or {}),
          **(self.result(variant, seed, 'finetune') or {}),
          **(self.result(variant, seed, 'perplexity') or {}),
          **(self.result(variant, seed, 'pretrain') or {}),
        }
        for seed in seeds
      ]
      for variant in [*first, *(one for one in done if one not in first)]
    }

  def report(self, rows: dict[str, list[dict[str, Any]]], table: str) -> None:
    """Writes the results as JSON and as Markdown."""
    configuration = self._configuration
    data = configuration.data_dir or (
      'generated samples, which are not the benchmarks'
    )
    examples = (
      f'the first {configuration.eval_examples}'
      if configuration.eval_examples
      else 'all'
    )
    seeds = configuration.seeds
    atomic.write(
      self.metrics, _json({'configuration': self._described(), 'models': rows})
    )
    atomic.write(
      self.table,
      f'# synth-mtf demo\n\n'
      f'Size {configuration.size}, {configuration.pretrain_steps} steps of '
      f'pretraining and {configuration.finetune_steps} of finetuning, '
      f'{"seed" if len(seeds) == 1 else "seeds"} {" ".join(map(str, seeds))}.\n'
      f'Data: {data}. Evaluated on {examples} validation examples of each '
      f'task.\n\n{table}\n',
    )

  def _result(self, variant: str, seed: int, stage: str) -> pathlib.Path:
    return self.run(variant, seed) / f'{stage}.json'

  def _described(self) -> dict[str, Any]:
    return json.loads(json.dumps(dataclasses.asdict(self._configuration)))

  def _manifest(self) -> Optional[dict[str, Any]]:
    path = self.path / 'run.json'
    if not path.exists():
      return None
    try:
      return _read(path)
    except ValueError as error:
      raise UserError(
        f'{path} does not parse ({error}), so what --out {self.path} holds is '
        'not known; nothing was changed. Choose another --out.'
      ) from error


def _read(path: pathlib.Path) -> dict[str, Any]:
  return json.loads(path.read_text())


def _json(value: Any) -> str:
  return json.dumps(value, indent=2) + '\n'
