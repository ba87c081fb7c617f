"""alpha over training, as it is drawn."""

import numpy as np
import pytest

from synth_mtf.errors import UserError
from synth_mtf.results.alphas import Path
from tests.results.figures.made import legend, panel

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.results.figures import alpha  # noqa: E402  after what it needs


def test_alpha():
  values = np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.7, 0.3], [0.9, 0.1]]])
  path = Path('encoder', 1, ['R', 'V'], np.array([0, 100]), values)
  figure = alpha.draw('Syn (R+V)', [path])
  lines = panel(figure, 'encoder, layer 1').lines
  mean = [line for line in lines if line.get_label() == 'R'][0]
  np.testing.assert_allclose(mean.get_ydata(), [0.5, 0.8])
  assert len(lines) == 2 * (2 + 1)
  assert legend(figure) == ['R', 'V']
  with pytest.raises(UserError, match='mixes no functions'):
    alpha.draw('Syn (R)', [])
