"""`synth-mtf transformer`: runs T5's own main with our layer and tasks.

It takes the flags of `t5_mesh_transformer`; `synth_mtf.run.main` lists the
differences. PYTHONHASHSEED defaults to 0, because Mesh-TF derives seeds from
hashes of names.
"""

import argparse
from collections.abc import Iterator, Sequence

from synth_mtf import cli
from synth_mtf.cli import arguments, early, other_words
from synth_mtf.commands import command, variants
from synth_mtf.errors import UserError, nearest, question
from synth_mtf.run import flags_of_model_api, main, output, process
from synth_mtf.storage import remembered

# Those that are defined only when T5's main runs.
_FLAGS_OF_ABSL = ('flagfile', 'help', 'helpfull', 'helpshort', 'undefok')
_COMPLETED_FLAGS = (
  '--data_dir=',
  '--device=',
  '--gin_param=',
  '--model_dir=',
  '--task_file=',
  '--tpu=',
  '--vocabulary=',
)
# With them, a command may have more flags than its words show, or run nothing.
_NO_CHECKS = {'flagfile', 'help', 'helpfull', 'helpshort', 'helpxml'}
_FOLDER_OF_T5 = '/tmp/transformer_standalone'
# Flags of `pretrain` and `finetune`, and the words that have their effect.
_OF_OTHER_COMMANDS = {
  'size': ['--gin_file=sizes/{}.gin'],
  'variant': ['--gin_file=variants/{}.gin'],
  'task': ["--gin_param=MIXTURE_NAME = '{}'"],
  'steps': ['--gin_param=utils.run.train_steps = {}'],
  'batch_size': ['--gin_param=utils.run.batch_size = {}'],
  'learning_rate': ['--gin_param=learning_rate = {}'],
  'from': ["--gin_param=utils.run.init_checkpoint = '{}/model.ckpt-STEP'"],
  'seed': [
    '--gin_file=runs/repeatable.gin',
    '--gin_param=mesh_train_dataset_fn.seed = {0}',
    '--gin_param=synth_mtf.train_with_progress.seed = {0}',
  ],
}
# TensorFlow Hub comes with TensorFlow Text for 2.12, and not with newer ones.
_FLAGS_OF_HUB = ('tfhub_cache_dir', 'tfhub_model_load_format')
# All arguments are passed to T5's main unchanged.
PARSER_OPTIONS = {'add_help': False, 'prefix_chars': '\0'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Accepts all arguments after the command."""
  parser.add_argument('flags', nargs=argparse.REMAINDER, type=_Words())


class _Words(arguments.Completed):
  """A flag of T5's main, which checks all but the gin files itself."""

  def __call__(self, word: str) -> str:
    return word

  def known(self) -> Sequence[str]:
    files = [f'--gin_file={file}' for file in arguments.GinFile().known()]
    return [*files, *_COMPLETED_FLAGS]


def run(args: argparse.Namespace) -> int:
  """Runs T5's main with the flags."""
  if not {'--help', '-help', '-h'}.isdisjoint(args.flags):
    print(remembered.get('transformer') or flags_help(), end='')
    return 0
  _check_flags(args.flags)
  early.check_flags_of_t5(args.flags)
  _check_folder(args.flags)
  process.fix_hash_seed()
  return main.run(args.flags)


def _check_flags(words: Sequence[str]) -> None:
  """Refuses a command without flags, and flags that T5's main would ignore."""
  if not words:
    raise UserError(
      'no flags are given: a run needs at least a folder and gin files. '
      f'Example: synth-mtf transformer {cli.EXAMPLES["transformer"]}\n'
      '`synth-mtf transformer --help` lists all flags.'
    )
  given = dict(_given(words))
  if not _NO_CHECKS.isdisjoint(given):
    return
  if given.get('use_model_api', 'false').lower() in ('false', 'f', '0', 'no'):
    flags_of_model_api.refuse(given)


def _check_folder(words: Sequence[str]) -> None:
  """Refuses a run without a folder: T5 has one for all runs of a machine."""
  given = dict(_given(words))
  if 'model_dir' not in given and _NO_CHECKS.isdisjoint(given):
    raise UserError(
      'give the folder of the run, --model_dir=my_runs/NAME: without one, T5 '
      f'would use {_FOLDER_OF_T5} for every run'
    )


def _given(words: Sequence[str]) -> Iterator[tuple[str, str]]:
  """Yields the flags and their values; refuses what is almost a flag.

  T5's main checks all others; modules may define some.
  """
  known = remembered.get('flags') or []
  booleans = {
    form
    for name in known
    if f'no{name}' in known
    for form in (name, f'no{name}')
  }
  has_modules = any('module_import' in word for word in words)
  rest = [*words]
  while rest:
    word = rest.pop(0)
    name, equals, value = word.lstrip('-').partition('=')
    if not word.startswith('-'):
      raise UserError(_without_flag(word))
    is_next = rest and not rest[0].startswith('-')
    if not equals and name not in booleans and is_next:
      value = rest.pop(0)
    if name and name not in (*known, *_FLAGS_OF_ABSL, *_FLAGS_OF_HUB):
      hint = _hint(name, value, known)
      if hint and not has_modules:
        raise UserError(f'there is no flag --{name}{hint}')
    yield name, 'true' if name in booleans and not equals else value


def _hint(name: str, value: str, known: Sequence[str]) -> str:
  """Says what T5's main has for a flag of another command, or of T5X."""
  if name.startswith('gin.'):
    word = command.quoted(f'--gin_param={name[4:]} = {value}')
    return f': give {word}'
  flags = {f'--{x}' for x in (*_OF_OTHER_COMMANDS, *known)}
  names = [x.lstrip('-') for x in other_words.arguments(name, flags)]
  names = [name] if name in _OF_OTHER_COMMANDS else names
  meant = [_words_for(x, value) for x in names if x in _OF_OTHER_COMMANDS]
  if meant:
    return f': give {", or ".join(meant)}'
  return question(f'--{x}' for x in names) or nearest(name, known)


def _words_for(name: str, value: str) -> str:
  """Returns the words that have the effect of a flag of another command."""
  if name == 'variant':
    value = variants.paper_file(value) or value
  words = [word.format(value) for word in _OF_OTHER_COMMANDS[name]]
  return ' '.join(map(command.quoted, words))


def _without_flag(word: str) -> str:
  """Explains a word that T5's main would ignore."""
  message = f'{word!r} belongs to no flag'
  if word.endswith('.gin'):
    return f'{message}: give each gin file its own, --gin_file={word}'
  return (
    f'{message}; quote a value that has spaces, such as '
    '--gin_param="utils.run.train_steps = 1000"'
  )


def flag_names() -> list[str]:
  """Returns the names of all flags, and of the negations of booleans.

  They are the same with every TensorFlow.
  """
  with output.kept():
    main.prepare()
  from absl import flags

  names = []
  for name in {*flags.FLAGS} - {*_FLAGS_OF_HUB}:
    names.append(name)
    if flags.FLAGS[name].boolean:
      names.append(f'no{name}')
  return sorted(names)


def flags_help() -> str:
  """Returns the help of all flags, of T5's main and ours."""
  with output.kept():
    main.prepare()
  from absl import flags

  ignored = ', '.join(f'--{name}' for name in flags_of_model_api.BINDINGS)
  parts = [
    f'{cli.COMMANDS["transformer"]}.',
    *map(flags.FLAGS.module_help, main.FLAG_MODULES),
    'Only with --use_model_api, and else an error that names the binding of '
    f'gin with the same effect: {ignored}.',
  ]
  return '\n'.join(parts) + '\n'
