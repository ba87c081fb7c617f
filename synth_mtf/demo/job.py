"""Runs a demo: the checks, the data, then the stages of all variants.

The folder of a demo holds:

    run.json                    the configuration, which must not change
    data/, vocabulary.model     unless given by flags
    <run>/pretrain, finetune    checkpoints, TensorBoard summaries, evaluations
    <run>/<stage>.done          marks a finished stage
    table.md, metrics.json, report.html, log

<run> is the variant or, with several seeds, <variant>/seed_<seed>.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from synth_mtf import paths, tasks
from synth_mtf.demo import corpus, processes, running
from synth_mtf.demo.stages import Configuration, Stage, stages
from synth_mtf.errors import UserError
from synth_mtf.host import explanations, gin_files
from synth_mtf.results import layouts, runs
from synth_mtf.run import checks, config, model_dir, output, ways
from synth_mtf.storage import json_files

_PRETRAINING_TASK = 'synth_text_span_corruption'


def run(
  configuration: Configuration,
  variants: Sequence[str],
  out: pathlib.Path,
  console: output.Console,
  command: processes.Command,
) -> list[str]:
  """Runs the remaining stages, and writes metrics.json.

  Mistakes are found before anything is written or trained; if a stage fails,
  the same command resumes.

  Args:
    configuration: of all variants.
    variants: their names.
    out: the folder of the demo.
    console: shows progress.
    command: runs the command line of a stage.

  Returns:
    The variants in the folder whose seeds are all done, requested ones first.
  """
  # As run.json stores it: tuples become lists.
  record = json.loads(json.dumps(dataclasses.asdict(configuration)))
  _check_folder(out, record)
  # The stages' processes inherit these.
  os.environ['SYNTH_MTF_DATA_DIR'] = configuration.data_dir or f'{out}/data'
  os.environ['SYNTH_MTF_VOCABULARY'] = (
    configuration.vocabulary or f'{out}/vocabulary.model'
  )
  # Two stages can share a GPU.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  os.environ['PYTHONHASHSEED'] = '0'  # makes results reproducible
  all_stages = stages(variants, configuration, out)
  remaining = [stage for stage in all_stages if not stage.done.exists()]
  with console.task('check data, gin files and models'), output.kept():
    notes = processes.result_of(_check, configuration, remaining)
  for note in notes:
    console.line(f'warning: {note}')
  out.mkdir(parents=True, exist_ok=True)
  with model_dir.locked(str(out)):
    json_files.write(out / 'run.json', record)
    _make_data(configuration, out, console)
    running.Runner(all_stages, out, console, command).run()
    models = _metrics(configuration, variants, out)
    json_files.write(
      out / 'metrics.json', {'configuration': record, 'models': models}
    )
  return list(models)


def _check_folder(out: pathlib.Path, record: Mapping[str, Any]) -> None:
  """Rejects a folder with other content or another configuration."""
  recorded = json_files.read(str(out), 'run.json', dict)
  if recorded is None:
    _check_empty(out)
    return
  differences = []
  for name, value in record.items():
    before = recorded.get(name)
    if before != value:
      differences.append(f'  {name}: {before!r} there, {value!r} now')
  if differences:
    raise UserError(
      f'--out {out} holds a demo of another configuration; nothing was '
      'changed. Choose another --out, or give what it was made with:\n'
      + '\n'.join(differences)
    )


def _check_empty(out: pathlib.Path) -> None:
  """Rejects a folder with more than what a killed process leaves."""
  names = os.listdir(out) if out.exists() else []
  if not all(name.startswith(('.', model_dir.LOCK)) for name in names):
    raise UserError(
      f'--out {out} holds something other than a demo; nothing was changed. '
      'Give an empty folder or one that does not exist.'
    )


def _check(
  configuration: Configuration, remaining: Sequence[Stage]
) -> list[str]:
  """Checks data, gin files and models; returns what is odd about the data.

  Parsing gin files finds unknown names; only building a model finds a sequence
  longer than a table, or an argument that a layer does not have.
  """
  notes = []
  tasks.get(configuration.mixture)
  if configuration.data_dir is not None:
    names = [_PRETRAINING_TASK, configuration.mixture]
    with explanations.explained():
      notes = tasks.check(names, ['train', 'validation'])
  # A vocabulary that is trained later fits any model, as bytes do.
  vocabulary = configuration.vocabulary or 'bytes'
  setting = f'synth_mtf.tasks.settings.vocabulary = {vocabulary!r}'
  # The seed cannot make a model invalid, so one stage of each kind is checked.
  distinct = {(stage.name, stage.gin_files): stage for stage in remaining}
  for stage in distinct.values():
    with explanations.explained():
      gin_files.parse(stage.gin_files, [*stage.gin_params, setting])
      checks.build(config.read(str(stage.model_dir)), ways.InSession())
  return notes


def _make_data(
  configuration: Configuration, out: pathlib.Path, console: output.Console
) -> None:
  text, vocabulary = out / 'data/corpus/packages.txt', out / 'vocabulary.model'
  if configuration.data_dir is None and not text.exists():
    with console.task('copy samples, gather documentation text'):
      shutil.copytree(paths.samples_path(), out / 'data', dirs_exist_ok=True)
      corpus.write(text)  # last, since it marks the data as complete
  if configuration.vocabulary is None and not vocabulary.exists():
    with console.task('train vocabulary'), output.to_log(str(out / 'log')):
      processes.result_of(_train_vocabulary, vocabulary)


def _train_vocabulary(path: pathlib.Path) -> None:
  rows = tasks.get(_PRETRAINING_TASK).source.chosen.examples('train')
  tasks.vocabulary.train((row['text'] for row in rows), path)


def _metrics(
  configuration: Configuration, variants: Sequence[str], out: pathlib.Path
) -> dict[str, Any]:
  """Returns the metrics of variants with all seeds done, `variants` first."""
  models = {}
  for variant in dict.fromkeys([*variants, *sorted(os.listdir(out))]):
    seeds = {
      seed: configuration.folder(out, variant, seed)
      for seed in configuration.seeds
    }
    if all((folder / 'evaluate.done').exists() for folder in seeds.values()):
      models[variant] = _measured_seeds(seeds)
  return models


def _measured_seeds(
  seeds: Mapping[int, pathlib.Path],
) -> list[dict[str, Any]]:
  """Returns the metrics of a variant's runs, given their folders by seed."""
  measured = runs.read(*map(str, seeds.values()))
  return [
    {'seed': seed, **_measured(run)}
    for seed, run in zip(seeds, measured, strict=True)
  ]


def _measured(run: runs.Run) -> dict[str, Any]:
  metrics: dict[str, float | None] = {}
  standard_errors: dict[str, float | None] = {}
  counts: dict[str, int | None] = {}
  measured: dict[str, Any] = {
    'metrics': metrics,
    'standard_errors': standard_errors,
    'n': counts,
    'steps_per_second': run.steps_per_second,
    'parameters': run.parameters,
  }
  for result in run.results:
    if result.metric == layouts.LOG_PERPLEXITY:
      # T5's metric is the negative of the paper's.
      value = result.value
      measured['log_perplexity'] = None if value is None else -value
      measured['tokens'] = result.n
    elif result.task != _PRETRAINING_TASK:
      name = f'{result.task}/{result.metric}'
      metrics[name] = result.value
      standard_errors[name] = result.standard_error
      counts[result.task] = result.n
  return measured
