"""Values of checkpoints, read without TensorFlow."""

import numpy as np
import pytest

from synth_mtf.checkpoints import files, index_file, values


def test_a_changed_byte_is_found(tmp_path):
  arrays = {'a': np.arange(6, dtype=np.float32), 'b': np.ones([2], np.float32)}
  path = files.write(str(tmp_path / 'run'), 3, arrays)
  np.testing.assert_array_equal(values.Reader(path).read('a'), arrays['a'])
  (data,) = (tmp_path / 'run').glob('*.data-*')
  content = data.read_bytes()
  at = content.index(arrays['a'].tobytes()) + 4
  data.write_bytes(content[:at] + b'\1' + content[at + 1 :])
  reader = values.Reader(path)
  with pytest.raises(index_file.Broken, match="'a' does not have its checksum"):
    reader.read('a')
  np.testing.assert_array_equal(reader.read('b'), arrays['b'])
