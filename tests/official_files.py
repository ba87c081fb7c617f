"""Makes small files in the official formats of every family of tasks.

They lie where the real ones do, in the same layout, and have what the real ones
have beside plain rows: quote characters, text that is not ASCII, a byte order
mark, escapes. GLUE, SuperGLUE and SQuAD are the demo's samples; the others are
made here of the same small world, and of words that do not exist.
"""

import hashlib
import pathlib
import random
import shutil
from collections.abc import Callable, Iterable, Sequence

from synth_mtf import paths
from tests import small_world

VALIDATION_ROWS = 64  # of each task of the demo's samples
_SEED = 0
_BOM = '\ufeff'
_LETTERS = {
  'en': 'aeiou',
  'de': 'aeiouäöü',
  'fr': 'aeiouéèô',
  'ro': 'aeiouăâî',
}
_ODD_SENTENCES = (
  '"No," she said, "not \'now\'."',
  'Das Café kostet 3 £ – oder 5 %, naïve?',
)


def write(folder: pathlib.Path) -> None:
  """Writes files of all families below `folder`; each time the same."""
  write_samples(folder)
  _add_oddities(folder / 'glue')
  for make in (_dpr, _parallel, _corpus, _news, _reviews, _stories, _dialogues):
    for name, lines in make(random.Random(f'{_SEED} {make.__name__}')).items():
      path = folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text('\n'.join(lines) + '\n', encoding='utf-8')


def write_samples(folder: pathlib.Path) -> None:
  """Writes the demo's samples of GLUE, SuperGLUE and SQuAD below `folder`."""
  shutil.copytree(paths.samples_path(), folder, dirs_exist_ok=True)


Files = dict[str, Iterable[str]]


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
    cells = [line.split('\t') for line in lines]
    lines = [
      '\t'.join([label, str(first + int(a)), str(first + int(b)), *sentences])
      for label, a, b, *sentences in cells
    ]
    text = '\n'.join([_BOM + header, *lines]) + '\n'
    path.write_text(text, encoding='utf-8')
  rows: dict[str, Callable[[str], str]] = {
    'CoLA': lambda sentence: f'smp1\t1\t\t{sentence}',
    'SST-2': lambda sentence: f'{sentence} \t0',
  }
  for name, row in rows.items():
    for part in ('train', 'dev'):
      path = glue / name / f'{part}.tsv'
      header, *lines = path.read_text(encoding='utf-8').splitlines()
      odd = map(row, _ODD_SENTENCES)  # early: tests read the first rows
      text = '\n'.join([header, *odd, *lines]) + '\n'
      path.write_text(text, encoding='utf-8')


def _dpr(rng: random.Random) -> Files:
  """Four lines a row, then an empty one."""

  def rows(count: int) -> Iterable[str]:
    for _ in range(count):
      drawn = small_world.anaphora(rng)
      both = rng.sample((drawn.right, drawn.wrong), 2)
      yield from (drawn.sentence, drawn.pronoun, ','.join(both), drawn.right)
      yield ''

  return {
    f'dpr/{part}.c.txt': list(rows(count))[:-1]
    for part, count in (('train', 40), ('test', 12))
  }


def _parallel(rng: random.Random) -> Files:
  """A sentence a line; line i of each file says the same, as it were."""
  files: Files = {}
  for name, count, languages in (
    ('multi30k/train', 60, ('en', 'de', 'fr')),
    ('wmt14_en_de_tok/train', 60, ('en', 'de')),
    ('wmt14_en_de_tok/val', 30, ('en', 'de')),
    ('wmt16_en_ro/newsdev2016', 60, ('en', 'ro')),
  ):
    for one in languages:
      words = _lexicon(rng, one, 200)
      files[f'parallel/{name}.{one}'] = [
        f'{_invented(rng, words)} &apos; " .' for _ in range(count)
      ]
  return files


def _corpus(rng: random.Random) -> Files:
  """Articles, books in hard-wrapped lines, and tokenised sentences."""
  words = _lexicon(rng, 'en', 3000)
  articles = []
  for _ in range(80):
    title = ' '.join(rng.sample(words, 2))
    articles += [f' = {title} = ', ' ']
    articles += [f' {_invented(rng, words, 90)} <unk> . ', ' ']
  books = {
    f'corpus/books/{title}.txt': [
      line
      for _ in range(200)
      for line in (*_wrapped(f'{_invented(rng, words, 60)}.', 72), '')
    ]
    for title in ('sherlock_holmes', 'moby_dick')
  }
  return {
    'corpus/wikitext-2/valid.txt': articles,
    'corpus/news_sentences/newstest2014.en.tok.txt': [
      f'{small_world.fact(rng).sentence()[:-1]} .' for _ in range(120)
    ],
    **books,
  }


def _news(rng: random.Random) -> Files:
  """CSV of class, title and description, in which quotes are doubled."""

  def row(number: int) -> str:
    fact = small_world.fact(rng)
    quoted = f'AP - ""{fact.sentence()}"" said #36;{number}\\of it.'
    return f'"{1 + number % 4}","{fact.summary()}","{quoted}"'

  return {'ag_news_csv/test.csv': [row(i) for i in range(60)]}


def _reviews(rng: random.Random) -> Files:
  """A review a file, named by its number and its rating."""
  files: Files = {}
  for part, count in (('train', 24), ('test', 4)):
    for label, ratings in (('neg', (1, 4)), ('pos', (7, 10))):
      for i in range(count):
        rating = rng.randint(*ratings)
        text = small_world.text(small_world.story(rng, 4))
        files[f'aclImdb/{part}/{label}/{i}_{rating}.txt'] = [
          f'{text}<br /><br />{rng.choice(_ODD_SENTENCES)}'
        ]
  return files


def _stories(rng: random.Random) -> Files:
  """A story a file, named by the hash of its address, with highlights."""
  files: Files = {}
  for number in range(24):
    facts = small_world.story(rng, 5)
    lines = [f'{facts[0].place[3:].upper()} (CNN) -- {facts[0].sentence()}']
    lines += [fact.sentence() for fact in facts[1:]]
    lines += ['A caption without its period']
    for fact in facts[:2]:
      lines += ['@highlight', fact.summary()[:-1]]
    address = f'http://www.example.com/{number}'
    name = hashlib.sha1(address.encode()).hexdigest()
    path = f'cnn_dailymail/cnn/stories/{name}.story'
    files[path] = '\n\n'.join(lines).split('\n')
  return files


def _dialogues(rng: random.Random) -> Files:
  """Numbered lines: the persona, then turns of both, a tab between."""
  lines = []
  for _ in range(30):
    facts = small_world.story(rng, 8)
    said = [
      f'your persona: i {fact.verb} a {fact.thing} .' for fact in facts[:4]
    ]
    said += [
      f"who {fact.past} the {fact.thing} ?\ti don't know , {fact.person} ."
      for fact in facts[4 : rng.randint(6, 8)]
    ]
    lines += [f'{i + 1} {words}' for i, words in enumerate(said)]
  return {'convai2/valid_self_original_no_cands.txt': lines}


def _lexicon(rng: random.Random, one: str, size: int) -> list[str]:
  """Words of a language that does not exist, frequent ones first."""
  consonants = 'bcdfghjklmnprstvz'
  words: dict[str, None] = {}
  while len(words) < size:
    syllables = rng.randint(1, 4)
    words[
      ''.join(
        rng.choice(consonants) + rng.choice(_LETTERS[one])
        for _ in range(syllables)
      )
    ] = None
  return sorted(words, key=len)


def _invented(
  rng: random.Random, words: Sequence[str], length: int = 12
) -> str:
  """A sentence without its period; word k is about k times rarer than 1."""
  weights = [1 / (1 + k) for k in range(len(words))]
  drawn = rng.choices(words, weights, k=length)
  return ' '.join([drawn[0].capitalize(), *drawn[1:]])


def _wrapped(text: str, width: int) -> Iterable[str]:
  line = ''
  for word in text.split():
    if len(line) + len(word) >= width:
      yield line
      line = word
    else:
      line = f'{line} {word}'.strip()
  yield line
