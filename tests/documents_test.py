"""What the documents name exists, and the order they give is the contract's."""

import ast
import re

import pytest

from synth_mtf import _public
from tests.checkout import CHECKOUT
from tests.readme_test import BLOCKS, DOCUMENTS

# What a path in a document may be relative to.
ROOTS = [CHECKOUT, CHECKOUT / 'synth_mtf', CHECKOUT / 'gin']
MY_FILE = r'my_\w+(?:\.\w+)?'
CREATED = re.compile(
  r'(?:OUT=|--(?:out|output|model_dir|output_cache_dir)[= ]|'
  r'(?:output_filename|scores_filename|export_path) = .|'
  r'> |(?:pretrain|finetune) |(?:cp -r|git clone|--(?:to|from)=hf) \S+ )'
  rf'({MY_FILE})'
)

each_document = pytest.mark.parametrize(
  'document',
  # CONTRIBUTING.md adds files as an example.
  [path for path in DOCUMENTS if path.name != 'CONTRIBUTING.md'],
  ids=lambda path: path.name,
)


@each_document
def test_every_file_that_is_named_is_there(document):
  text = document.read_text(encoding='utf-8')
  names = re.findall(r'`([\w*./-]+/[\w*-]+\.(?:gin|md|py|toml))`', text)
  missing = [n for n in names if not any(list(r.glob(n)) for r in ROOTS)]
  assert not missing
  for image in re.findall(r'!\[[^]]*\]\((?!http)(.*?)\)', text):
    assert (document.parent / image).is_file(), image


@each_document
def test_a_file_of_the_reader_is_created_before_it_is_used(document):
  """By a command above, or by one of the README."""
  created = set()
  for block in BLOCKS:
    path, _, _ = block.id.partition(':')
    if path in ('README.md', str(document.relative_to(CHECKOUT))):
      for command in block.values[-1]:
        created |= {*CREATED.findall(command)}
        assert {*re.findall(MY_FILE, command)} <= created, command


def test_the_order_of_the_subpackages_is_the_contracts():
  contracts = (CHECKOUT / 'pyproject.toml').read_text(encoding='utf-8')
  (layers,) = re.findall(
    r'"The order of the subpackages"\n(?:.*\n){2}layers = (\[[^]]*\])',
    contracts,
  )
  expected = re.findall(r'\w+', ' '.join(ast.literal_eval(layers)))
  text = (CHECKOUT / 'docs' / 'architecture.md').read_text(encoding='utf-8')
  table = text.partition('| `synth_mtf.` |')[2].partition('\n\n')[0]
  rows = re.findall(r'^\| (`.*?`) \| ', table, re.M)
  assert re.findall(r'`(\w+)`', ' '.join(rows)) == expected


def test_the_reference_has_every_public_name():
  text = (CHECKOUT / 'docs' / 'api.md').read_text(encoding='utf-8')
  for name in _public.__all__:
    value = getattr(_public, name)
    where = f'{value.__module__}.{value.__qualname__}'
    shown = 'synth_mtf.load' if name == 'load' else where
    assert f'::: {shown}\n' in text or f'`{name}`' in text, name
