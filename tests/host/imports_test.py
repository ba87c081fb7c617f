"""What the host's import leaves for later."""

import gc
import importlib
import sys
import threading

import pytest

from synth_mtf.host import imports
from tests.run.process_test import as_command


@pytest.fixture
def package(tmp_path, monkeypatch):
  """A package that is put off, and counts how often its code runs."""
  folder = tmp_path / 'put_off_package'
  folder.mkdir()
  (folder / '__init__.py').write_text(
    'import time\n'
    'from put_off_runs import runs\n'
    'time.sleep(.1)  # for other threads to come\n'
    'runs.append(1)\n'
    'answer = 42\n'
    'def times(number): return answer * number\n'
  )
  (folder / 'inside.py').write_text(
    'from put_off_package import answer\nhalf = answer // 2\n'
  )
  (folder / 'late.py').write_text(
    'from put_off_package import answer\n'
    'from put_off_runs import runs\n'
    'runs.append(2)\n'
    'double = answer * 2\n'
  )
  (tmp_path / 'put_off_runs.py').write_text('runs = []\n')
  monkeypatch.syspath_prepend(str(tmp_path))
  monkeypatch.setattr(
    imports,
    'PUT_OFF',
    {'put_off_package': ('times',), 'put_off_package.late': ()},
  )
  with imports.quick():
    module = importlib.import_module('put_off_package')
  yield module
  for name in list(sys.modules):
    if name.startswith('put_off_'):
      del sys.modules[name]


def runs():
  return importlib.import_module('put_off_runs').runs


def test_is_loaded_by_the_first_name_that_is_read(package):
  assert package.__spec__.name == package.__name__ == 'put_off_package'
  assert importlib.import_module('put_off_package') is package
  assert runs() == []
  assert package.answer == 42
  assert package.answer == 42
  assert runs() == [1]


def test_is_loaded_by_an_import_of_what_is_inside(package):
  inside = importlib.import_module('put_off_package.inside')
  assert inside.half == 21
  assert package.inside is inside
  assert runs() == [1]


def test_is_loaded_with_a_module_inside_that_was_put_off_too(package):
  late = importlib.import_module('put_off_package.late')
  assert package.late is late
  assert runs() == []
  assert late.double == 84
  assert runs() == [1, 2]


def test_a_function_may_be_asked_for_and_called_later(package):
  with imports.quick():
    times = package.times
  assert runs() == []
  assert times(number=2) == 84
  assert package.times(3) == times(3) == 126
  assert runs() == [1]


def test_whoever_asks_later_gets_the_function_itself(package):
  assert package.times.__name__ == 'times'
  assert runs() == [1]


def test_may_use_a_module_inside_that_was_put_off_too(package):
  late = importlib.import_module('put_off_package.late')
  with open(package.__file__, 'a') as file:
    file.write('from put_off_package.late import double\n')
  assert late.double == 84
  assert package.double == 84
  assert runs() == [1, 2]


def test_a_name_that_is_missing_is_missing(package):
  with pytest.raises(AttributeError, match=r"put_off_package.* 'question'"):
    package.question  # noqa: B018
  assert runs() == [1]


def test_several_threads_load_it_once(package):
  found = []
  threads = [
    threading.Thread(target=lambda: found.append(package.answer))
    for _ in range(4)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert found == [42] * 4
  assert runs() == [1]


def test_code_that_fails_is_run_again(package):
  path = package.__file__
  with open(path) as file:
    code = file.read()
  with open(path, 'w') as file:
    file.write('raise ValueError("at first")\n')
  with pytest.raises(ValueError, match='at first'):
    package.answer  # noqa: B018
  with open(path, 'w') as file:
    file.write(code + '# longer, for the cache of compiled code\n')
  assert package.answer == 42


def test_garbage_is_collected_behind_it():
  with imports.quick():
    assert not gc.isenabled()
    with imports.quick():
      pass
    assert not gc.isenabled()
  assert gc.isenabled()


@pytest.mark.slow
def test_the_command_leaves_out_what_few_runs_need(tmp_path):
  done = as_command(
    tmp_path,
    'import sys\n'
    'from synth_mtf.run import main\n'
    'main.prepare()\n'
    'print(*[name for name in ("nltk", "pandas.core", "pyglove.core",\n'
    '                         "scipy.stats.distributions", "sklearn.base",\n'
    '                         "scipy.ndimage.filters")\n'
    '        if name in sys.modules], "torch" in sys.modules)\n'
    'from t5.evaluation import metrics\n'
    'print(metrics.rouge(["a b"], ["a b"])["rouge1"])\n'
    'print(*metrics.mean_multiclass_f1(2)([1, 0], [1, 0]).values())\n'
    'print(metrics.f1_score_with_invalid([1, 0], [0, 1])["f1"])\n'
    'cola = metrics.sklearn_metrics_wrapper("matthews_corrcoef")\n'
    'print(*cola([1, 0], [0, 1]).values())\n'
    'import pandas\n'
    'print(len(pandas.DataFrame([1, 2])))\n',
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.split() == ['False', '100.0', '100.0', '0.0', '-1.0', '2']
