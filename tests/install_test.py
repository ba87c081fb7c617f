"""A reader who follows the documents in their order has what they name."""

import re

from tests import readme_test

NAME = re.compile(r'\bmy_(?:runs/)?[A-Za-z]\w*(?:\.\w+)?')
# How a command names what it makes.
MADE = (
  r'> (my_\S+)$',
  r"(?:--out[= ]|_filename = '|export_path = '|cache_dir=)(my_[^'\s]+)",
  r'^cp -r \S+ (\S+)',
  r'--model_dir=(\S+).* --gin_file=runs/(?:pretrain|finetune)',
  r'checkpoint convert \S+ (\S+)',
)


def test_a_reader_has_made_what_commands_name():
  """But for the data, which are a reader's own, or the demo's."""
  made = {'my_data'}
  commands = [
    (block.where, command)
    for block in readme_test.BLOCKS
    if block.where.startswith(('README', 'docs/tutorial', 'docs/variants'))
    for command in block.commands
  ]
  assert len(commands) > 15
  for where, command in commands:
    made |= {name for pattern in MADE for name in re.findall(pattern, command)}
    missing = set(NAME.findall(command)) - made
    assert not missing, f'{where}: {command} names {missing}'
