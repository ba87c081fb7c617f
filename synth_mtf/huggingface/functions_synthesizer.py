"""The synthesizing functions S(X) of the paper."""

from typing import Any

import torch
from torch import Tensor, nn


class Synthesizer(nn.Module):
  """A function S(X); the names of its parameters say which one.

  `trainable` is false for a Fixed Random Synthesizer.
  """

  def __init__(self, settings: dict[str, Any]) -> None:
    super().__init__()
    self.limits = settings['max_length'], settings['memory_max_length']
    self.tile_length = settings['tile_length']
    self.stddev = settings.get('stddev', 1.0)  # of R
    self.uniform = settings.get('uniform', False)  # not in earlier exports
    self.shapes = settings['parameters']
    for name, shape in self.shapes.items():
      value = torch.zeros(shape)
      trainable = settings['trainable']
      setattr(
        self, name, nn.Parameter(value) if trainable else nn.Buffer(value)
      )

  def check_lengths(self, *lengths: int) -> None:
    """Raises a ValueError if there are too many queries or keys."""
    for length, limit in zip(lengths, self.limits, strict=True):
      if limit and length > limit:
        raise ValueError(
          f'{length} tokens, but the model takes at most {limit}'
        )

  def forward(self, x: Any, q: Any, rows: Tensor, columns: Tensor) -> Tensor:
    self.check_lengths(len(rows), len(columns))
    if self.tile_length:
      columns = columns % self.tile_length
    if hasattr(self, 'R'):  # R, S(X) = R (eq. 4)
      return self.R[None, :, rows][..., columns]
    if hasattr(self, 'R1'):  # FR, S(X) = R1 R2^T (eq. 7)
      return self.R1[None, :, rows] @ self.R2[:, columns].mT
    h = self.hidden(x, q)
    if hasattr(self, 'W2'):  # D, S(x_i) = W2 h (eq. 1, 2)
      b2 = self.b2[..., None, columns] if hasattr(self, 'b2') else 0.0
      return h @ self.W2[..., columns] + b2
    # FD, S(x_l)[i b + j] = A_l[i] B_l[j], A = WA h, B = WB h (eq. 5, 6)
    a, b = h @ self.WA, h @ self.WB
    if hasattr(self, 'bA'):
      a, b = a + self.bA[:, None], b + self.bB[:, None]
    outer = a.unsqueeze(-1) * b.unsqueeze(-2)
    return outer.flatten(-2)[..., columns]

  def hidden(self, x: Tensor, q: Any) -> Tensor:
    """ReLU(W1 x), ReLU(q), or (W1 x) * sigmoid(Wg x), per head."""
    if hasattr(self, 'D'):  # bottleneck, F(U D X) (version 1)
      x = x @ self.D @ self.U
    w1 = self.project(x, '1') if hasattr(self, 'W1') else q
    if hasattr(self, 'Wg'):
      return w1 * torch.sigmoid(self.project(x, 'g'))
    return torch.relu(w1)

  def project(self, x: Tensor, name: str) -> Tensor:
    """[batch, length, d_model] -> [batch, heads, length, d_kv]."""
    y = torch.einsum('bnd,dhk->bnhk', x, getattr(self, f'W{name}'))
    return (y + getattr(self, f'b{name}', 0.0)).transpose(1, 2)

  def initialize(self) -> None:
    """Draws the parameters so that S(X) has a variance of about 1."""
    for name, shape in self.shapes.items():
      if name == 'R' and self.uniform:
        nn.init.uniform_(self.R)
        continue
      if name.startswith('b'):
        stddev = 0.0
      elif name == 'R':
        stddev = self.stddev
      elif name in ('R1', 'R2'):
        stddev = shape[-1] ** -0.25
      elif name == 'W1':  # the gain makes up for ReLU, or for the gate
        gain = 3.4 if 'Wg' in self.shapes else 2.0
        stddev = (gain / shape[0]) ** 0.5
      elif name in ('Wg', 'D', 'U'):
        stddev = shape[0] ** -0.5
      else:  # W2, WA, WB
        stddev = shape[-2] ** -0.5
      nn.init.normal_(getattr(self, name), std=stddev)
