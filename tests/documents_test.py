"""What the documents say of the checkout is so: files and order."""

import pathlib
import re

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [
  'README.md',
  *(f'docs/{p.name}' for p in CHECKOUT.glob('docs/*.md')),
]
# What a path in a document may be relative to.
ROOTS = [CHECKOUT, CHECKOUT / 'synth_mtf', CHECKOUT / 'gin']


@pytest.mark.parametrize('document', DOCUMENTS)
def test_every_file_that_is_named_is_there(document):
  text = (CHECKOUT / document).read_text(encoding='utf-8')
  names = re.findall(r'`([\w*./-]+/[\w*-]+\.(?:gin|md|py|toml))`', text)
  missing = [n for n in names if not any(list(r.glob(n)) for r in ROOTS)]
  assert not missing
  folder = (CHECKOUT / document).parent
  for image in re.findall(r'!\[[^]]*\]\((?!http)(.*?)\)', text):
    assert (folder / image).is_file(), image


def test_the_order_of_the_package_is_the_contract():
  (contract,) = re.findall(
    r'^name = "The order of the subpackages"$.*?^layers = \[(.*?)^\]',
    (CHECKOUT / 'pyproject.toml').read_text(),
    re.M | re.S,
  )
  (table,) = re.findall(
    r'^\| `synth_mtf\.` \|.*?\n\|---\|---\|\n(.*?)\n\n',
    (CHECKOUT / 'docs' / 'architecture.md').read_text(encoding='utf-8'),
    re.M | re.S,
  )
  first_cells = re.sub(r'^\| (.*?) \|.*$', r'\1', table, flags=re.M)
  documented = re.findall(r'`(\w+)`', first_cells)
  assert documented == re.findall(r'synth_mtf\.(\w+)', contract)
