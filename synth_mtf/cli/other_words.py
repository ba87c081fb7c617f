"""Words of T5, T5X, transformers and lm-eval for what has another name here.

The parsers of commands suggest ours in their place.
"""

import re
from collections.abc import Collection, Mapping

_COMMANDS = {
  'pretrain': 'train|fit|run',
  'finetune': 'train|tune|fit|sft',
  'evaluate': 'eval|score|test|benchmark|validate|lm_eval',
  'predict': 'generate|infer|inference|decode|complete|chat|serve',
  'vocabulary': 'vocab|tokenizer|tokenize|spm|spm_train|sentencepiece',
  'tasks': 'list|ls|datasets|data|mixtures',
  'checkpoint inspect': 'inspect|show|info',
  'checkpoint compare': 'compare|diff',
  'checkpoint convert': 'convert',
  'checkpoint export': 'export|save|push',
  'checkpoint import': 'import|load|download',
  'checkpoint keep': 'keep|clean|prune|delete|rm|remove',
  'table': 'compare|results|summary|summarize|scores',
  'report': 'page|html|dashboard|tensorboard',
  'cost': 'flops|params|parameters|profile|memory',
  'doctor': 'check|env|version|diagnose|setup',
  'attention': 'attn|weights|visualize',
  'plot': 'figures|draw|curves|graph',
}
# What a flag is called elsewhere, and what it may be here, in this order: a
# flag, or an argument without one (its metavar).
_FLAGS: Mapping[str, tuple[str, ...]] = {
  'lr|rate|(base|peak|max)_lr|adam_lr': ('--learning_rate',),
  '(num_|max_|n_)?(train_)?epochs?|(max|num|n|total|training)_steps|'
  '(num_)?train_steps|iterations|iters': ('--steps',),
  r'(per_device_)?(train_|eval_|global_)?(batch_size|batch|bs)': (
    '--batch_size',
  ),
  '(random|rng|training)_seed|seeds': ('--seed',),
  'variants?|arch|architecture|attention|synthesizer|model(_type)?': (
    '--variant',
    '--variants',
  ),
  'sizes?|model|model_size|model_type': ('--size',),
  r'(eval_)?step|(\w+_)?checkpoint_step|checkpoint': ('RUN/model.ckpt-STEP',),
  r'resume\w*|continue\w*': ('RUN',),  # the same command goes on
  r'model|pretrained(_model)?|\w*checkpoint(_path)?|ckpt|init_from\w*|'
  r'model_(name_or_path|path|name|args)|source|start': ('--from', 'RUN'),
  r'out|o|output|output_(file|path)|outfile': ('--out', 'TEXT > FILE'),
  '(output|out|save|work)_?dir|model_prefix': ('--out', '--model_dir', 'RUN'),
  '(model|run|log|ckpt)_?dir|folder|name|runs?': (
    '--model_dir',
    'RUN',
    '--out',
  ),
  r'data|dataset|corpus|input|file|\w+_(file|data|path)|text_dir|files': (
    '--text',
  ),
  r'data|dataset|\w+_file|csv|file|yaml|config': ('--task_file',),
  r'data|dataset_dir|data_path|dataset_path|datadir': ('--data_dir',),
  r'tasks|mixtures?|task_names?|dataset_name|mixture_or_task_name': (
    '--task',
    '--mixture',
  ),
  r'vocab|vocab_(file|path|model)|tokenizer\w*|spm\w*|spiece\w*': (
    '--vocabulary',
  ),
  'vocab_size': ('--vocabulary_size', '--size'),
  'gpus?|cuda|use_gpu|num_gpus|n_gpus|accelerator': ('--device=gpu',),
  'tpus?|use_tpu|tpu_name': ('--device=tpu',),
  'cpu|no_cuda|use_cpu': ('--device=cpu',),
  'texts?|prompts?|sentences?|inputs?|query': (
    'TEXT',
    '--text',
  ),
  r'inputs?_(file|path)|prompts?_file|text_file': ('--input',),
  'num_beams|beam_size|beam|beam_width': ('--beams',),
  'max_(new_tokens|decode_length|target_length|tokens|gen_toks)': (
    '--max_length',
  ),
  'layout|format': ('--layout', '--format'),
  r'(max_)?(seq|sequence|source|input|context)_?(len|length)s?|block_size': (
    '--gin_param="utils.run.sequence_length = ..."',
  ),
  'dropout|dropout_(rate|prob)': ('--gin_param="dropout_rate = N"',),
  'num_layers|num_heads|d_model|d_ff|d_kv': ('--gin_param="{} = N"',),
  'save_(steps|every|interval)|save_checkpoints_steps': (
    '--gin_param="utils.run.save_checkpoints_steps = N"',
  ),
  'dry|plan|print|verbose_only': ('--dry_run',),
}


def commands(name: str, known: Collection[str]) -> list[str]:
  """Returns the commands that a word of others may stand for."""
  word = name.lower().replace('-', '_')
  return [
    command
    for command, others in _COMMANDS.items()
    if command.split()[0] in known and re.fullmatch(others, word)
  ]


def arguments(flag: str, known: Collection[str]) -> list[str]:
  """Returns what a flag of others may be.

  Args:
    flag: such as '--lr'.
    known: the flags of a command, and the names of its arguments without one.

  Returns:
    Flags, if there are any; else names of other arguments.
  """
  name = flag.lstrip('-').replace('-', '_')
  if f'--{name}' in known:  # with hyphens
    return [f'--{name}']
  found = []
  for others, ours in _FLAGS.items():
    if re.fullmatch(others, name):
      present = [x for x in ours if re.split('[=/ ]', x)[0] in known]
      found += [x.replace('{}', name) for x in present[:1]]
  flags = [x for x in found if x.startswith('-')]
  return [*dict.fromkeys(flags or found)]
