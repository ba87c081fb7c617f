"""Files and images that the documents name are in the checkout."""

import re

import pytest

from tests.checkout import CHECKOUT

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
