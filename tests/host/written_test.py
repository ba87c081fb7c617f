"""Configurations as they are written."""

import pytest

from synth_mtf.errors import UserError
from synth_mtf.host.written import Statements


def written(folder, text):
  (folder / 'a.gin').write_text(text)
  statements = Statements([str(folder)])
  statements.add_file('a.gin')
  return statements


def test_files_include_others_once(tmp_path):
  (tmp_path / 'b.gin').write_text("include 'a.gin'\nutils.run.mode = 'eval'\n")
  statements = written(tmp_path, "include 'b.gin'\nd_model = %width\n")
  statements.add_bindings(['utils.run.batch_size = %rows'])
  assert statements.macros_read == {'width', 'rows'}


@pytest.mark.parametrize(
  'text, message',
  [
    ('Randm.max_length = 3', "nothing named 'Randm'; did you mean 'Random'"),
    ('a/synth_mtf.Random.max_lenth = 3', "'max_lenth'; did you mean 'max_len"),
    ('x.y = [{1: (@synth_mtf.Randm(), %a)}]', "nothing named 'synth_mtf.Randm"),
    ('Random:\n  max_lenth = 3', "has no parameter 'max_lenth'"),
  ],
)
def test_an_unknown_name_is_refused_with_its_place(text, message, tmp_path):
  with pytest.raises(UserError, match='In file ".*a.gin", line') as error:
    written(tmp_path, text).check_names()
  assert message in str(error.value)


@pytest.mark.parametrize(
  'text',
  [
    'import my_module\nRandm.max_length = 3',  # which may define it
    'from my_package import layers\nlayers.Randm.max_length = 3',
    'AnyName = 3',  # a macro
    'SentencePieceVocabulary.anything = 3',  # of old files; T5 leaves it out
    'utils.run.mode = %gin.REQUIRED',
  ],
)
def test_what_gin_may_know_is_not_refused(text, tmp_path):
  written(tmp_path, text).check_names()
