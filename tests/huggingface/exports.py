"""Exports of tiny models, by the command."""

from tests import model
from tests.cli.command import run


def export(path, out, pieces, variant=None, bindings=()):
  """Returns the status of the command, and what it complained about."""
  words = [f'--gin_param={b}' for b in (*model.TINY, *bindings)]
  words += [f'--gin_file={name}' for name in model.files(variant)]
  status, _, err = run(
    *('checkpoint', 'export', '--to=hf', path, out, f'--vocabulary={pieces}'),
    *(words if variant != 'unknown' else ()),
  )
  return status, err


def exported(tmp_path, pieces, variant, bindings=()):
  """Returns the path of a checkpoint, and the folder of its export."""

  def change(name, value):
    if name == 'shared/embedding':
      value[1] *= 3.0  # so that sequences end
    # As in a trained model, some tokens stand out.
    return value * (3.0 if name == 'decoder/rms_norm/scale' else 1.0)

  path = model.write(tmp_path / 'run', variant, bindings, change=change)
  status, err = export(path, tmp_path / 'out', pieces, variant, bindings)
  assert status == 0, err
  return path, tmp_path / 'out'
