"""Meshes that do not divide a model are refused with the sizes that do."""

import pytest

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files
from synth_mtf.host import model as host_model
from synth_mtf.run import mesh as meshes
from tests import model

LAYOUT = 'batch:batch,d_ff:model,heads:model,vocab:model'
LENGTHS = {'inputs': 16, 'targets': 8}


@pytest.fixture(scope='module')
def tiny():
  gin_files.parse(model.files('random_vanilla'), model.TINY)
  return host_model.build(model.VOCAB)


@pytest.mark.parametrize(
  'mesh, batch, message',
  [
    ('model:2', 8, 'heads = 3 is laid on model = 2; .* works: 1, 3'),
    ('batch:3', 8, 'batch = 8 is laid on batch = 3; .* works: 1, 2, 4, 8'),
    ('model:8', 8, 'd_ff = 20 .* 1, 2, 4, 5, 10, 20.*heads = 3'),
    ('model:3', 8, 'vocab = 128 is laid on model = 3'),
    ('batch:2', ('tokens_per_batch', 100), '100 is not divisible by 16'),
  ],
)
def test_is_refused(tiny, mesh, batch, message):
  with pytest.raises(UserError, match=message):
    meshes.check(tiny, mesh, LAYOUT, batch, LENGTHS)


@pytest.mark.parametrize('batch', [8, ('tokens_per_batch', 128)])
def test_passes(tiny, batch):
  meshes.check(tiny, 'batch:4', LAYOUT, batch, LENGTHS)
  meshes.check(tiny, '', LAYOUT, batch, LENGTHS)
