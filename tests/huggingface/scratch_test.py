"""Models that are described, trained and saved in PyTorch alone."""

import os
import subprocess
import sys
from typing import Any

import pytest

from synth_mtf.host import gin_files, model as host_model
from synth_mtf.huggingface import layout
from tests import model

torch = pytest.importorskip('torch', reason='needs the extra [hf]')
transformers = pytest.importorskip('transformers', minversion='5')
import synth_mtf.huggingface  # noqa: E402
from synth_mtf.huggingface import modeling_synthesizer as modeling  # noqa: E402

torch.set_num_threads(1)  # the models are tiny
pytestmark = [pytest.mark.hf, pytest.mark.slow]

SIZE: dict[str, Any] = {
  'd_model': 24,
  'd_ff': 20,
  'num_layers': 2,
  'num_heads': 3,
  'd_kv': 8,
  'vocab_size': model.VOCAB,
  'max_position_embeddings': 14,
}


@pytest.mark.parametrize(
  'variant, mixing',
  [
    *((name, 'softmax') for name in modeling.VARIANTS),
    *(('random_vanilla', name) for name in modeling.MIXINGS),
  ],
)
def test_a_variant_is_that_of_its_gin_file(variant, mixing):
  mixed = f'SyntheticAttention.mixing = "{mixing}"'
  gin_files.parse(model.files(variant), [*model.TINY, mixed])
  expected = layout.config(host_model.build(model.VOCAB))
  config = modeling.SynthesizerConfig(variant=variant, mixing=mixing, **SIZE)
  del expected['tie_word_embeddings']  # of our class always true
  assert {name: getattr(config, name) for name in expected} == expected
  again = modeling.SynthesizerConfig.from_dict(config.to_dict())
  assert again.to_dict() == config.to_dict()


def test_a_cross_variant_is_that_of_its_gin_file():
  gin_files.parse(model.files('dense+cross_random_vanilla'), model.TINY)
  expected = layout.config(host_model.build(model.VOCAB))
  config = modeling.SynthesizerConfig(
    variant='dense', cross_variant='random_vanilla', **SIZE
  )
  assert config.attention == expected['attention']


def test_wrong_settings_are_errors():
  wrong: list[tuple[dict[str, Any], str]] = [
    ({'variant': 'rv'}, "variant='rv', expected one of .*random_vanilla"),
    ({'mixing': 'max'}, "mixing='max', expected one of .*softmax"),
    ({'variant': 'dense', 'mixing': 'layer_sigmoid'}, 'and dense has 1'),
  ]
  for settings, message in wrong:
    with pytest.raises(ValueError, match=message):
      modeling.SynthesizerConfig(**settings)


def made(**settings):
  torch.manual_seed(0)
  config = modeling.SynthesizerConfig(**SIZE, **settings)
  return modeling.SynthesizerForConditionalGeneration(config).eval()


def test_the_distance_of_relative_positions_is_that_of_t5():
  """V alone, whose logits are those of T5's own class with its weights."""
  distances: Any = {'relative_attention_max_distance': 9}
  ours = made(relative_attention_num_buckets=8, **distances)
  config = transformers.T5Config.from_dict(
    {
      **SIZE,
      'relative_attention_num_buckets': 8,
      'decoder_start_token_id': 0,
      **distances,
    }
  )
  theirs = transformers.T5ForConditionalGeneration(config).eval()
  theirs.load_state_dict(ours.state_dict())
  ids = torch.randint(2, model.VOCAB, [2, 14])
  expected = theirs(input_ids=ids, labels=ids).logits
  torch.testing.assert_close(ours(input_ids=ids, labels=ids).logits, expected)
  far = made(relative_attention_num_buckets=8)
  assert not torch.allclose(far(input_ids=ids, labels=ids).logits, expected)


@pytest.mark.parametrize(
  'given, message',
  [
    ({}, 'the encoder was given neither of input_ids and inputs_embeds'),
    (
      {'input_ids': [[2, 1]]},
      r'decoder was given neither of decoder_input_ids .* \(or labels\)',
    ),
    (
      {'input_ids': [[2, 1]], 'inputs_embeds': [[[0.0] * 24]]},
      'the encoder was given both of',
    ),
    (
      {'input_ids': [[], []], 'labels': [[1], [1]]},
      r"the encoder's inputs have no tokens, .* = \[2, 0\]",
    ),
    (
      {'input_ids': [[2, 1]], 'labels': [[]]},
      r'labels have no tokens, .* = \[1, 0\]',
    ),
  ],
)
def test_what_is_missing_is_named(given, message):
  tensors = {}
  for name, rows in given.items():
    tensor = torch.tensor(rows)
    tensors[name] = tensor if name == 'inputs_embeds' else tensor.long()
  with pytest.raises(ValueError, match=message):
    made(variant='random_vanilla')(**tensors)


@pytest.mark.parametrize('name', modeling.AUTO_CLASSES)
def test_auto_classes_need_no_remote_code(name, tmp_path):
  """Also in a process without this package, from the file in the folder."""
  auto: Any = getattr(transformers, name)
  config = synth_mtf.huggingface.SynthesizerConfig(
    variant='random_vanilla', **SIZE
  )
  made = auto.from_config(config).eval()
  made.save_pretrained(tmp_path)
  found, report = auto.from_pretrained(tmp_path, output_loading_info=True)
  assert type(found) is modeling.AUTO_CLASSES[name] and not any(report.values())
  ids = torch.randint(2, model.VOCAB, [3, 9])
  ids[:, -1] = 1
  given = {'input_ids': ids, 'decoder_input_ids': ids}
  with torch.no_grad():
    expected, actual = made(**given)[0], found.eval()(**given)[0]
  torch.testing.assert_close(actual, expected)
  assert (tmp_path / 'modeling_synthesizer.py').exists()
  assert name in transformers.AutoConfig.from_pretrained(tmp_path).auto_map


PROGRAM = """
import synth_mtf.huggingface
import gin
print(gin.get_configurable('synth_mtf.Random').__name__)
print(synth_mtf.huggingface.SynthesizerConfig.__name__)
"""


def test_the_import_prints_nothing(tmp_path):
  """It registers the names for gin, too."""
  environment = dict(os.environ)
  environment.pop('TF_CPP_MIN_LOG_LEVEL', None)
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM],
    capture_output=True,
    text=True,
    cwd=tmp_path,
    env=environment,
    timeout=900,
    check=False,
  )
  assert (done.stdout, done.stderr) == ('Random\nSynthesizerConfig\n', '')
