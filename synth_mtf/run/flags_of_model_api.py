"""Flags of T5's main that belong to its Model API, and what gin has instead.

With gin, that is, without `--use_model_api`, T5's main ignores these flags:
`--train_steps=3` would train for as long as gin says.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem

# The binding with the same effect, for the value of the flag.
BINDINGS: Mapping[str, str] = {
  'mode': 'utils.run.mode = {!r}',
  'batch_size': 'utils.run.batch_size = {}',
  'input_sequence_length': (
    "utils.run.sequence_length = {{'inputs': {}, 'targets': 512}}"
  ),
  'target_sequence_length': (
    "utils.run.sequence_length = {{'inputs': 512, 'targets': {}}}"
  ),
  'tpu_topology': 'utils.tpu_mesh_shape.tpu_topology = {!r}',
  'model_parallelism': 'utils.tpu_mesh_shape.model_parallelism = {}',
  'train_steps': 'utils.run.train_steps = {}',
  'mixture_or_task': 'MIXTURE_NAME = {!r}',
  'pretrained_model_dir': (
    "utils.run.init_checkpoint = '{}/model.ckpt-<step>'"
  ),
  'checkpoint_mode': 'utils.run.eval_checkpoint_step = {!r}',
  'checkpoint_steps': 'utils.run.eval_checkpoint_step = {}',
  'eval_summary_dir': 'utils.run.eval_summary_dir = {!r}',
  'eval_split': 'utils.run.dataset_split = {!r}',
  'input_file': 'input_filename = {!r}',  # of T5's infer.gin
  'target_file': 'targets_filename = {!r}',  # of T5's score_from_file.gin
  'output_file': 'output_filename = {!r}',
  'export_dir': 'utils.run.export_path = {!r}',
  'beam_size': 'Bitransformer.decode.beam_size = {}',
  'temperature': 'Bitransformer.decode.temperature = {}',
  'keep_top_k': 'Bitransformer.decode.sampling_keep_top_k = {}',
}
# The values that differ: gin's modes, and None for the latest checkpoint.
_VALUES: Mapping[str, Mapping[str, str | None]] = {
  'mode': {
    'finetune': 'train',
    'predict': 'infer',
    'export_predict': 'export_infer',
    'score': 'score_from_strings',
  },
  'checkpoint_mode': {'latest': None, 'specific': '<steps>'},
}
# The flags of what a mode of the Model API reads and writes.
_LINES = {'predict': ('input_file',), 'score': ('input_file', 'target_file')}
_FOLDERS = {'finetune': ('pretrained_model_dir',)}
_WRITTEN = {
  'eval': ('eval_summary_dir',),
  'export_predict': ('export_dir',),
  'export_score': ('export_dir',),
}
_WRITTEN_FILES = {'predict': ('output_file',), 'score': ('output_file',)}


def check() -> None:
  """Refuses flags that the run would ignore, and names the bindings.

  Of those of the Model API itself, checks what they name.
  """
  from absl import flags  # here, because `refuse` is for who lacks it, too

  if not flags.FLAGS.is_parsed():
    return
  if flags.FLAGS.use_model_api:
    _check_paths(flags.FLAGS.mode)
    return
  refuse(
    {
      name: flags.FLAGS[name].value
      for name in BINDINGS
      if flags.FLAGS[name].present
    }
  )


def refuse(given: Mapping[str, Any]) -> None:
  """Refuses flags of the Model API, by their values, in a run without it."""
  faults = []
  for name, binding in BINDINGS.items():
    if name in given:
      value = _VALUES.get(name, {}).get(given[name], given[name])
      gin_param = binding.format(value)
      faults.append(f'--{name}: give --gin_param="{gin_param}"')
  if faults:
    raise UserError(
      'flags that T5 ignores without --use_model_api (its Model API), since '
      'gin describes the run:\n' + '\n'.join(faults)
    )


def _check_paths(mode: str | None) -> None:
  """Refuses paths that T5 would fail on, or take for an empty file."""
  for name, path in _given(_LINES, mode):
    with filesystem.named_by(f'--{name}'), filesystem.explained(path):
      text = filesystem.read(path, filesystem.DOCUMENT_BYTES).decode()
    if not text.strip():
      raise UserError(f'--{name} {path} is empty; expected lines of text.')
  for name, path in _given(_FOLDERS, mode):
    with filesystem.named_by(f'--{name}'):
      if not filesystem.has_folder(path):
        raise UserError(f'--{name} {path} does not exist; expected a folder.')
  for name, path in _given(_WRITTEN, mode):
    atomic.check_writable(path, f'--{name}')
  for name, path in _given(_WRITTEN_FILES, mode):
    atomic.check_writable(os.path.dirname(path) or '.', f'--{name}')


def _given(
  names: Mapping[str, Sequence[str]], mode: str | None
) -> Iterator[tuple[str, str]]:
  """Yields the flags of a mode that are set, with their values."""
  from absl import flags

  for name in names.get(mode or '', ()):
    path = flags.FLAGS[name].value
    if path:
      yield name, path
