"""Flags of T5's main that belong to its Model API, and what gin has instead.

With gin, that is, without `--use_model_api`, T5's main ignores these flags:
`--train_steps=3` would train for as long as gin says.
"""

from collections.abc import Mapping

from absl import flags

from synth_mtf.errors import UserError

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


def check() -> None:
  """Refuses flags that the run would ignore, and names the bindings."""
  if not flags.FLAGS.is_parsed() or flags.FLAGS.use_model_api:
    return
  faults = []
  for name, binding in BINDINGS.items():
    flag = flags.FLAGS[name]
    if flag.present:
      value = _VALUES.get(name, {}).get(flag.value, flag.value)
      gin_param = binding.format(value)
      faults.append(f'--{name}: give --gin_param="{gin_param}"')
  if faults:
    raise UserError(
      'flags that T5 ignores without --use_model_api (its Model API), since '
      'gin describes the run:\n' + '\n'.join(faults)
    )
