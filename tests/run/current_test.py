"""Which run a process is in."""

from synth_mtf.run import current


def test_a_run_ends_with_its_block():
  before = current.run()
  assert current.run() is before
  with current.begun(current.Run()) as new:
    assert current.run() is new is not before
  assert current.run() is before
