"""What tests read off figures."""

from typing import Any


def panel(figure: Any, title: str) -> Any:
  """The only panel of a figure with this title."""
  (found,) = [a for a in figure.axes if a.get_title() == title]
  return found


def legend(figure: Any) -> list[str]:
  """What a figure names above its panels."""
  return [text.get_text() for text in figure.legends[0].get_texts()]
