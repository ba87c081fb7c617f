"""What two hosts find out about each other before a step."""

import jax
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.pjrt.agreement import Agreement
from synth_mtf.pjrt.hosts import Group, Hosts
from synth_mtf.pjrt.placement import Devices

BATCH = {'inputs': np.arange(4), 'targets': np.ones([2, 3], np.int32)}


def agreement():
  """As on the first of two hosts, and its wishes."""
  hosts = Hosts(Group(2, 0))
  with tf.Graph().as_default():
    made = Agreement(Devices(jax.devices('cpu')[:1], hosts))
  return made, hosts.stop, hosts.save


def largest(*known):
  return np.max(known, axis=0)


def test_the_same_step_of_the_same_batch(tmp_path):
  made, stop, save = agreement()
  there = agreement()[0].here(5, dict(reversed(BATCH.items())))
  made.require(largest(made.here(5, BATCH), there))
  assert not stop.take() and not save.take()


def test_another_step_is_named():
  made, *_ = agreement()
  for here, there in ((5, 6), (6, 5)):
    with pytest.raises(UserError, match='at different steps, 5 to 6'):
      made.require(largest(made.here(here, BATCH), made.here(there, BATCH)))


@pytest.mark.parametrize('name', BATCH)
def test_another_batch_is_refused(name):
  made, *_ = agreement()
  other = {**BATCH, name: BATCH[name] + 1}
  for here, there in ((BATCH, other), (other, BATCH)):
    with pytest.raises(UserError, match='different batches for step 6'):
      made.require(largest(made.here(5, here), made.here(5, there)))


@pytest.mark.parametrize('asked', [0, 1])
def test_a_wish_of_one_host_is_granted_on_both(asked):
  here, *wishes_here = agreement()
  there, *wishes_there = agreement()
  wishes_there[asked].ask()
  found = largest(here.here(5, BATCH), there.here(5, BATCH))
  for made, wishes in ((here, wishes_here), (there, wishes_there)):
    assert not wishes[asked].take()
    made.require(found)
    assert [wish.take() for wish in wishes] == [asked == 0, asked == 1]
  again = largest(here.here(6, BATCH), there.here(6, BATCH))
  here.require(again)
  assert not wishes_here[asked].take(), 'it is asked once'
