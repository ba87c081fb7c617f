"""An export can be saved and loaded again, in any release of transformers.

As after finetuning: the model itself, and the checkpoints of a Trainer. The
exports are real, because what is in their files decides.
"""

import json
import os
import pathlib
import subprocess
import sys
import warnings

import pytest

from tests.huggingface.exports import exported

torch = pytest.importorskip('torch', reason='needs the extra [hf]')
transformers = pytest.importorskip('transformers', minversion='5')
dynamic = pytest.importorskip('transformers.dynamic_module_utils')
with warnings.catch_warnings():
  warnings.simplefilter('ignore')  # of an untried transformers
  from synth_mtf.huggingface import modeling_synthesizer as modeling

torch.set_num_threads(1)  # the models are tiny
pytestmark = [pytest.mark.hf, pytest.mark.slow]

ALPHA = 4.0  # so large that it decides which beam is the best
BINDINGS = ('dropout_rate = 0.0', f'Bitransformer.decode.alpha = {ALPHA}')
AS_THE_RUN = {'length_penalty': ALPHA, 'early_stopping': 'never'}
AS_TRANSFORMERS = {'length_penalty': 1.0, 'early_stopping': False}
GENERATION = 'generation_config.json'


def loaded(folder):
  found = transformers.AutoModelForSeq2SeqLM.from_pretrained(
    folder, trust_remote_code=True
  )
  return found.eval()


@torch.no_grad()
def tokens(network, **search):
  """What is generated from inputs of several lengths."""
  torch.manual_seed(1)
  ids = torch.randint(2, 128, [40, 13])
  ids *= torch.arange(13) < torch.randint(1, 14, [40, 1])
  made = network.generate(
    input_ids=ids,
    attention_mask=(ids != 0).long(),
    max_new_tokens=12,
    **search,
  )
  return made.tolist()


def check_search(network):
  """Greedy by default; with beams, as in the run unless the caller says how."""
  assert tokens(network) == tokens(network, num_beams=1)
  beams = tokens(network, num_beams=4)
  assert beams == tokens(network, num_beams=4, **AS_THE_RUN)
  others = tokens(network, num_beams=4, **AS_TRANSFORMERS)
  assert beams != others
  config = transformers.GenerationConfig(num_beams=4)
  assert beams == tokens(network, generation_config=config)
  config = transformers.GenerationConfig(num_beams=4, **AS_TRANSFORMERS)
  assert others == tokens(network, generation_config=config)


def test_a_model_is_saved_as_it_was_exported(tmp_path, pieces):
  _, out = exported(tmp_path, pieces, 'random_vanilla', BINDINGS)
  config = transformers.GenerationConfig.from_pretrained(out)
  config.max_new_tokens = 5  # a config that is changed is checked
  config.save_pretrained(tmp_path / 'config')
  found = loaded(out)
  check_search(found)
  found.save_pretrained(tmp_path / 'saved')
  again = loaded(tmp_path / 'saved')
  check_search(again)
  assert tokens(again, num_beams=4) == tokens(found, num_beams=4)
  before, after = (
    json.loads((tmp_path / name / GENERATION).read_text())
    for name in ('out', 'saved')
  )
  assert before.items() <= after.items()


def test_a_plain_t5_is_saved_as_it_was_exported(tmp_path, pieces):
  """Its own beam search is that of transformers; ours is that of the run."""
  _, out = exported(tmp_path, pieces, None, BINDINGS)
  found = loaded(out)
  assert type(found) is transformers.T5ForConditionalGeneration
  beams = tokens(found, num_beams=4)
  assert beams == tokens(found, num_beams=4, **AS_TRANSFORMERS)
  found.generation_config.max_new_tokens = 5
  found.save_pretrained(tmp_path / 'saved')
  assert tokens(loaded(tmp_path / 'saved'), num_beams=4) == beams
  ours = modeling.SynthesizerForConditionalGeneration.from_pretrained(
    tmp_path / 'saved'
  )
  check_search(ours.eval())


def test_a_trainer_saves_its_checkpoints(tmp_path, pieces):
  pytest.importorskip('accelerate', reason='needs the extra [hf]')
  _, out = exported(tmp_path, pieces, 'random_vanilla', BINDINGS)
  rows = [{'input_ids': [5, 6, 7, 1], 'labels': [8, 9, 1]} for _ in range(4)]
  arguments = transformers.Seq2SeqTrainingArguments(
    output_dir=tmp_path / 'trained',
    max_steps=2,
    save_steps=1,
    predict_with_generate=True,
    generation_num_beams=2,
    report_to=[],
    use_cpu=True,
  )
  trainer = transformers.Seq2SeqTrainer(
    loaded(out), arguments, train_dataset=rows, eval_dataset=rows
  )
  trainer.train()
  assert trainer.predict(rows, max_new_tokens=8).predictions.shape[0] == 4
  again = loaded(tmp_path / 'trained' / 'checkpoint-2')
  check_search(again)
  for name, weight in trainer.model.state_dict().items():
    torch.testing.assert_close(again.state_dict()[name], weight)


def test_an_export_of_an_earlier_version_is_saved(tmp_path, pieces):
  """It has settings of beam search without a number of beams."""
  _, out = exported(tmp_path, pieces, 'random_vanilla', BINDINGS)
  settings = json.loads((out / GENERATION).read_text())
  del settings['beam_alpha']
  (out / GENERATION).write_text(json.dumps({**settings, **AS_THE_RUN}))
  found = loaded(out)
  found.generation_config.max_new_tokens = 5
  check_search(found)
  found.save_pretrained(tmp_path / 'saved')
  check_search(found)
  check_search(loaded(tmp_path / 'saved'))


# In a separate process, without our package: it fails if a file is not in the
# folder, or is not copied from it.
PROGRAM = """
import sys
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
source, target = sys.argv[1:]
code = {'trust_remote_code': True}
AutoTokenizer.from_pretrained(source, **code).save_pretrained(target)
model = AutoModelForSeq2SeqLM.from_pretrained(source, **code)
model.save_pretrained(target)
torch.manual_seed(1)
ids = torch.randint(2, 128, [40, 13])

def tokens(**search):
  return model.generate(ids, num_beams=4, max_new_tokens=12, **search).tolist()

assert tokens() == tokens(length_penalty=4.0, early_stopping='never')
assert tokens() != tokens(length_penalty=1.0, early_stopping=False)
assert type(model).__module__.startswith('transformers_modules.')
assert not any(name.startswith('synth_mtf') for name in sys.modules)
"""


def code(folder):
  return {path.name: path.read_text() for path in folder.glob('*.py')}


def test_the_code_travels_with_the_folder(tmp_path, pieces):
  _, out = exported(tmp_path, pieces, 'random_vanilla', BINDINGS)
  expected = code(out)
  ours = pathlib.Path(modeling.__file__).parent.glob('*_synthesizer.py')
  assert expected == {path.name: path.read_text() for path in ours}
  out.rename(tmp_path / 'first')
  for source, target in (('first', 'second'), ('second', 'third')):
    subprocess.run(
      [sys.executable, '-c', PROGRAM, source, target],
      cwd=tmp_path,
      env={**os.environ, 'HF_HOME': str(tmp_path / f'cache of {source}')},
      check=True,
      timeout=900,
    )
    (tmp_path / source).rename(tmp_path / f'{source}, moved')
    assert code(tmp_path / target) == expected
  check_search(loaded(tmp_path / 'third'))


def test_all_modules_are_imported_by_the_first():
  """Or transformers 5.1, which follows no other, leaves them out."""
  first = pathlib.Path(modeling.__file__)
  others = {path.stem for path in first.parent.glob('*_synthesizer.py')}
  imported = dynamic.get_relative_imports(first)
  assert {*imported} == others - {first.stem}
