"""Names of variants: the paper's, those of gin files, and the user's."""

import pytest

from synth_mtf.commands import variants
from synth_mtf.errors import UserError


@pytest.mark.parametrize(
  ('name', 'file'),
  [
    ('R+V', 'random_vanilla'),
    ('v + r', 'random_vanilla'),
    ('Syn (R+V)', 'random_vanilla'),
    ('Synthesizer (Factorized Random)', 'factorized_random'),
    ('random + Dense', 'random_dense'),
    ('T5', 'vanilla'),
    ('Random-Vanilla', 'random_vanilla'),
    ('variants/mlp_mixer.gin', 'mlp_mixer'),
  ],
)
def test_the_file_of_a_name(name, file):
  assert variants.file_of(name) == file


def test_a_file_of_the_user(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(UserError, match="there is no variant 'Mine'"):
    variants.file_of('Mine')
  (tmp_path / 'variants').mkdir()
  (tmp_path / 'variants' / 'Mine.gin').touch()
  assert variants.file_of('Mine') == 'Mine'


def test_names_of_files_are_the_papers_or_their_own():
  assert variants.name_of('random_vanilla') == 'R+V'
  assert variants.name_of('mlp_mixer') == 'mlp_mixer'
