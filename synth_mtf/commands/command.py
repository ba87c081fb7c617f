"""A command of `synth-mtf`: its words, and how it is shown."""

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r'[^"$`\\!]*')  # a shell changes nothing of it inside "..."


@dataclasses.dataclass(frozen=True)
class Command:
  """The words after `synth-mtf`."""

  words: Sequence[str]

  def __str__(self) -> str:
    """The command as in the documents, for a shell; one flag on each line."""
    name, *flags = map(quoted, self.words)
    return ' \\\n    '.join([f'synth-mtf {name}', *flags])


def transformer(
  model_dir: str,
  gin_files: Sequence[str],
  gin_params: Sequence[str],
  modules: Sequence[str] = (),
  **flags: str | None,
) -> Command:
  """Returns a run of `synth-mtf transformer`.

  Args:
    model_dir: the folder of the run.
    gin_files: in their order; later ones override earlier ones.
    gin_params: bindings in their order, which override the files.
    modules: which are imported.
    **flags: other flags; those without a value are left out.
  """
  words = [f'--{name}={value}' for name, value in flags.items() if value]
  words += [f'--module_import={module}' for module in modules]
  words.append(f'--model_dir={model_dir}')
  words += [f'--gin_file={file}' for file in gin_files]
  words += [f'--gin_param={binding}' for binding in gin_params]
  return Command(['transformer', *words])


def bound(bindings: Mapping[str, Any]) -> list[str]:
  """Returns bindings as text, given values by their names in gin."""
  return [f'{name} = {value!r}' for name, value in bindings.items()]


def vocabulary(out: str, size: int, **flags: str | None) -> Command:
  """Returns a run of `synth-mtf vocabulary`; flags need a value to be given."""
  words = [f'--{name}={value}' for name, value in flags.items() if value]
  return Command(['vocabulary', *words, f'--out={out}', f'--size={size}'])


def quoted(word: str) -> str:
  """Quotes a word for a shell, and of a flag its value alone if possible."""
  if shlex.quote(word) == word:
    return word
  name, equals, value = word.partition('=')
  if equals and shlex.quote(name) == name and _PLAIN.fullmatch(value):
    return f'{name}="{value}"'
  return shlex.quote(word)
