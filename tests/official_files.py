"""Makes small files in the official formats of every family of tasks.

They have what the real ones have beside plain rows: quote characters, text that
is not ASCII, a byte order mark, escapes. GLUE, SuperGLUE and SQuAD are the
demo's samples.
"""

import hashlib
import pathlib
import random
import shutil
import textwrap
from collections.abc import Iterable, Iterator

from synth_mtf import paths

VALIDATION_ROWS = 64  # of each task of the demo's samples
_LETTERS = {'en': '', 'de': 'aouäöü', 'fr': 'aeoàéô', 'ro': 'aiuăîâ'}
_ODD_SENTENCES = (
  '"No," she said, "not \'now\'."',
  'Das Café kostet 3 £ – oder 5 %, naïve?',
)
File = tuple[str, Iterable[str]]

WOMEN = ('Anna', 'Clara', 'Edith', 'Grace', 'Irene', 'Laura', 'Nora', 'Paula')
MEN = ('Boris', 'David', 'Frank', 'Henry', 'Jacob', 'Martin', 'Oscar', 'Simon')
VERBS = ('painted', 'sold', 'found', 'lost', 'bought', 'cleaned', 'repaired')
THINGS = ('boat', 'lamp', 'chair', 'clock', 'basket', 'bicycle', 'ladder')
_PLACES = ('in the harbour', 'near the bridge', 'at the station', 'on the hill')
_COLOURS = ('red', 'blue', 'green', 'yellow', 'white', 'black', 'brown')


def _sentence(rng: random.Random) -> str:
  words = map(rng.choice, (WOMEN + MEN, VERBS, _COLOURS, THINGS, _PLACES))
  return '{} {} the {} {} {}.'.format(*words)


def _text(rng: random.Random, sentences: int) -> str:
  return ' '.join(_sentence(rng) for _ in range(sentences))


def write(folder: pathlib.Path) -> None:
  """Writes files of all families below `folder`; each time the same."""
  write_samples(folder)
  _add_oddities(folder / 'glue')
  for make in (_dpr, _parallel, _corpus, _news, _reviews, _stories, _dialogues):
    for name, lines in make(random.Random(make.__name__)):
      path = folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text('\n'.join(lines) + '\n', encoding='utf-8')


def write_samples(folder: pathlib.Path) -> None:
  """Writes the demo's samples of GLUE, SuperGLUE and SQuAD below `folder`."""
  shutil.copytree(paths.samples_path(), folder, dirs_exist_ok=True)


def write_text(folder: pathlib.Path, paragraphs: int = 400) -> pathlib.Path:
  """Writes text to train on below `folder`, and returns the folder."""
  file = folder / 'corpus' / 'text.txt'
  file.parent.mkdir(parents=True, exist_ok=True)
  line = 'It was a bright cold day in April, and the clocks were striking {}.'
  file.write_text('\n\n'.join(map(line.format, range(paragraphs))))
  return folder


def _add_oddities(glue: pathlib.Path) -> None:
  """What the official files have: marks, ids of their own, odd sentences."""
  for part, first in (('train', 0), ('dev', 100_000)):
    path = glue / 'MRPC' / f'{part}.tsv'
    header, *lines = path.read_text(encoding='utf-8').splitlines()
    rows = [f'\ufeff{header}']
    for line in lines:
      label, a, b, sentences = line.split('\t', 3)
      rows.append(f'{label}\t{first + int(a)}\t{first + int(b)}\t{sentences}')
    path.write_text('\n'.join(rows) + '\n', encoding='utf-8')
    for name, row in (('CoLA', 'smp1\t1\t\t{}'), ('SST-2', '{} \t0')):
      path = glue / name / f'{part}.tsv'
      header, *lines = path.read_text(encoding='utf-8').splitlines()
      odd = map(row.format, _ODD_SENTENCES)  # early: tests read the first rows
      text = '\n'.join([header, *odd, *lines]) + '\n'
      path.write_text(text, encoding='utf-8')


def _dpr(rng: random.Random) -> Iterator[File]:
  """Four lines a row, then an empty one."""
  for part, count in (('train', 40), ('test', 12)):
    lines = []
    for _ in range(count):
      names, pronoun = rng.choice(((WOMEN, 'she'), (MEN, 'he')))
      a, b = rng.sample(names, 2)
      text = f'{a} thanked {b} because {pronoun} {rng.choice(VERBS)} the boat.'
      lines += [text, pronoun, f'{a},{b}', rng.choice((a, b)), '']
    yield f'dpr/{part}.c.txt', lines[:-1]


def _parallel(rng: random.Random) -> Iterator[File]:
  """A sentence a line; line i of each file is the same in other letters."""
  for name, languages in (
    ('multi30k/train', ('en', 'de', 'fr')),
    ('wmt14_en_de_tok/train', ('en', 'de')),
    ('wmt14_en_de_tok/val', ('en', 'de')),
    ('wmt16_en_ro/newsdev2016', ('en', 'ro')),
  ):
    sentences = [_sentence(rng)[:-1] for _ in range(60)]
    for one in languages:
      half = len(_LETTERS[one]) // 2
      letters = str.maketrans(_LETTERS[one][:half], _LETTERS[one][half:])
      lines = [f'{line.translate(letters)} &apos; " .' for line in sentences]
      yield f'parallel/{name}.{one}', lines


def _corpus(rng: random.Random) -> Iterator[File]:
  """Articles, books in hard-wrapped lines, and tokenised sentences."""
  articles = []
  for _ in range(80):
    articles += [f' = {rng.choice(THINGS)} = ', ' ']
    articles += [f' {_text(rng, 8)} <unk> . ', ' ']
  yield 'corpus/wikitext-2/valid.txt', articles
  for title in ('sherlock_holmes', 'moby_dick'):
    lines = []
    for _ in range(200):
      lines += [*textwrap.wrap(_text(rng, 8), 72), '']
    yield f'corpus/books/{title}.txt', lines
  sentences = [f'{_sentence(rng)[:-1]} .' for _ in range(120)]
  yield 'corpus/news_sentences/newstest2014.en.tok.txt', sentences


def _news(rng: random.Random) -> Iterator[File]:
  """CSV of class, title and description, in which quotes are doubled."""
  lines = []
  for i in range(60):
    quoted = f'AP - ""{_sentence(rng)}"" said #36;{i}\\of it.'
    lines.append(f'"{1 + i % 4}","{_sentence(rng)}","{quoted}"')
  yield 'ag_news_csv/test.csv', lines


def _reviews(rng: random.Random) -> Iterator[File]:
  """A review a file, named by its number and its rating."""
  for part, count in (('train', 24), ('test', 4)):
    for label, ratings in (('neg', (1, 4)), ('pos', (7, 10))):
      for i in range(count):
        path = f'aclImdb/{part}/{label}/{i}_{rng.randint(*ratings)}.txt'
        yield path, [f'{_text(rng, 4)}<br /><br />{rng.choice(_ODD_SENTENCES)}']


def _stories(rng: random.Random) -> Iterator[File]:
  """A story a file, named by the hash of its address, with highlights."""
  for number in range(24):
    lines = [f'{rng.choice(_PLACES).upper()} (CNN) -- {_sentence(rng)}']
    lines += [_sentence(rng) for _ in range(4)]
    lines += ['A caption without its period']
    for _ in range(2):
      lines += ['@highlight', _sentence(rng)[:-1]]
    name = hashlib.sha1(b'%d' % number).hexdigest()
    path = f'cnn_dailymail/cnn/stories/{name}.story'
    yield path, '\n\n'.join(lines).split('\n')


def _dialogues(rng: random.Random) -> Iterator[File]:
  """Numbered lines: the persona, then turns of both, a tab between."""
  lines = []
  for _ in range(30):
    said = [f'your persona: i like {_sentence(rng)}' for _ in range(4)]
    said += [
      f"who {rng.choice(VERBS)} it ?\ti don't know , {rng.choice(MEN)} ."
      for _ in range(rng.randint(2, 4))
    ]
    lines += [f'{i + 1} {words}' for i, words in enumerate(said)]
  yield 'convai2/valid_self_original_no_cands.txt', lines
