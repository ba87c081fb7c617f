"""Shows names that somebody else chose without obeying them.

A name may hold sequences that move a terminal or imitate our own colours, and
halves of characters (lone surrogates), which no encoding can write.
"""

import re

_CONTROL = re.compile(
  r'[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]'
)


class Escaped(str):
  """Text in which every sequence that moves a terminal is our own."""

  def __str__(self) -> str:
    return self  # so that `print` writes it as `Escaped`


def escaped(text: str) -> Escaped:
  """Replaces control characters by their numbers, unless `text` is escaped."""
  if isinstance(text, Escaped):
    return text
  return Escaped(_CONTROL.sub(_number, text))


def _number(match: re.Match[str]) -> str:
  return f'\\u{ord(match[0]):04x}'
