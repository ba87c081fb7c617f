"""What the host writes of an evaluation."""

from mesh_tensorflow.transformer import utils

from synth_mtf.host import evaluation


def test_what_a_model_wrote_stays_one_line(tmp_path, monkeypatch):
  monkeypatch.setattr(utils, 'write_lines_to_file', utils.write_lines_to_file)
  evaluation.write_text()
  path = tmp_path / 'outputs'
  lines = ['a\nb', 'c\rd', 'e\u2028f'.encode(), b'', b'\xff', 7]
  utils.write_lines_to_file(lines, str(path))
  text = path.read_text(encoding='utf-8')
  assert text.splitlines() == ['a b', 'c d', 'e f', '', '\ufffd', '7']
