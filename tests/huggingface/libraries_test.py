"""Libraries around transformers work with our models as with T5."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import seqio

from tests import model
from tests.checkout import CHECKOUT

torch = pytest.importorskip('torch', reason='needs the extra [hf]')
transformers = pytest.importorskip('transformers', minversion='5')
from synth_mtf.huggingface import (  # noqa: E402
  attention_synthesizer as attention,
  modeling_synthesizer as modeling,
  tokenizer,
)

DOCUMENT = CHECKOUT / 'docs' / 'huggingface.md'

torch.set_num_threads(1)  # the models are tiny
pytestmark = [pytest.mark.hf, pytest.mark.slow]


def made(variant='random_vanilla', vocab_size=model.VOCAB, **settings):
  torch.manual_seed(0)
  config = modeling.SynthesizerConfig(
    variant=variant,
    d_model=24,
    d_ff=20,
    num_layers=2,
    num_heads=3,
    d_kv=8,
    vocab_size=vocab_size,
    max_position_embeddings=32,
    **settings,
  )
  return modeling.SynthesizerForConditionalGeneration(config)


def rows(count=8, length=9):
  torch.manual_seed(1)
  ids = torch.randint(2, 20, [count, length])
  return [{'input_ids': row, 'labels': row} for row in ids]


def test_seq2seq_trainer(tmp_path):
  pytest.importorskip('accelerate', reason='needs the extra [hf]')
  trained = made()
  arguments = transformers.Seq2SeqTrainingArguments(
    output_dir=tmp_path,
    max_steps=30,
    learning_rate=0.01,
    logging_steps=10,
    predict_with_generate=True,
    gradient_checkpointing=True,
    report_to=[],
    use_cpu=True,
  )
  trainer = transformers.Seq2SeqTrainer(
    trained, arguments, train_dataset=rows(), eval_dataset=rows()
  )
  trainer.train()
  losses = [x['loss'] for x in trainer.state.log_history if 'loss' in x]
  assert losses[-1] < 0.8 * losses[0]
  assert trainer.predict(rows()).predictions.shape[0] == 8
  trainer.save_model(tmp_path / 'saved')
  again = type(trained).from_pretrained(tmp_path / 'saved')
  for name, weight in trained.state_dict().items():
    torch.testing.assert_close(again.state_dict()[name], weight)


@pytest.mark.parametrize('variant', ['random_vanilla', 'dense'])
def test_lora_finds_its_modules(variant):
  peft = pytest.importorskip('peft', reason='needs peft')
  base = made(variant, dropout_rate=0.0)
  adapted = peft.get_peft_model(base, peft.LoraConfig(r=2))
  names = {n.split('.lora_')[0] for n, w in adapted.named_parameters()
           if w.requires_grad}  # fmt: skip
  # Of two encoder layers and two decoder layers with two attentions each.
  assert len(names) == (12 if variant == 'random_vanilla' else 8)
  ids = torch.stack([row['labels'] for row in rows()])
  before = adapted(input_ids=ids, labels=ids).loss
  before.backward()
  with torch.no_grad():
    for weight in adapted.parameters():
      if weight.grad is not None:
        weight -= 0.1 * weight.grad
  assert adapted(input_ids=ids, labels=ids).loss < before


def test_gradient_checkpointing_and_bfloat16_change_little():
  found = made(dropout_rate=0.0).train()
  ids = torch.stack([row['labels'] for row in rows()])
  found(input_ids=ids, labels=ids).loss.backward()
  expected = [weight.grad for weight in found.parameters()]
  found.zero_grad()
  found.gradient_checkpointing_enable()
  found(input_ids=ids, labels=ids).loss.backward()
  for weight, gradient in zip(found.parameters(), expected, strict=True):
    torch.testing.assert_close(weight.grad, gradient)
  found.gradient_checkpointing_disable()
  with torch.no_grad():
    logits = found(input_ids=ids, labels=ids).logits
    halved = found.to(torch.bfloat16)(input_ids=ids, labels=ids).logits.float()
  assert (halved - logits).abs().max() < 0.05 * logits.abs().max()


@pytest.fixture
def fused(monkeypatch):
  """Lets FlexAttention have gradients on CPUs, where the compiler traces it."""
  from torch.nn.attention import flex_attention

  monkeypatch.setattr(flex_attention, '_validate_device', lambda *_: None)
  monkeypatch.setattr(attention, 'is_differentiable', lambda device: True)
  kernel = torch.compile(
    flex_attention.flex_attention, backend='aot_eager', fullgraph=True
  )
  monkeypatch.setattr(attention, 'fused_kernel', lambda: kernel)
  torch.compiler.reset()
  yield
  torch.compiler.reset()


@pytest.mark.parametrize(
  'variant', ['random_vanilla', 'factorized_random_vanilla', 'vanilla']
)
def test_flex_attention_has_the_same_gradients(variant, fused):
  found = made(variant, dropout_rate=0.0, cross_variant=variant).eval()
  ids = torch.stack([row['labels'] for row in rows()])
  mask = torch.ones_like(ids)
  mask[1, 5:] = 0
  mask[2, :4] = 0
  given = {'input_ids': ids, 'attention_mask': mask, 'labels': ids}
  outputs = found(**given)
  outputs.loss.backward()
  expected = {name: w.grad for name, w in found.named_parameters()}
  found.zero_grad()
  found.set_attn_implementation('flex_attention')
  actual = found(**given)
  actual.loss.backward()
  torch.testing.assert_close(actual.logits, outputs.logits, rtol=0, atol=1e-5)
  for name, weight in found.named_parameters():
    if variant == 'vanilla' and name.endswith('relative_attention_bias.weight'):
      continue  # this backend leaves out what `score_mod` reads by distance
    largest = expected[name].abs().max()
    assert largest > 0, name
    assert (weight.grad - expected[name]).abs().max() <= 1e-5 * largest, name


def test_flex_attention_of_long_rows_makes_no_logits():
  """Nothing of each example's: the largest tensor has the size of R."""
  n, batch = 4096, 3
  config = modeling.SynthesizerConfig(
    variant='random_vanilla',
    d_model=16,
    d_kv=8,
    num_heads=2,
    max_position_embeddings=n,
  )
  layer = modeling.SyntheticAttention(config, 'encoder', 0).eval()
  for module in layer.modules():
    modeling.initialize(module)
  x = torch.randn(batch, n, 16)
  with torch.no_grad():
    expected, _, _ = layer(x)
    layer.fuses = True
    layer(x)  # compiles
    with torch.profiler.profile(profile_memory=True) as profile:
      actual, _, _ = layer(x)
  bytes_made = [event.self_cpu_memory_usage for event in profile.events()]
  assert 0 < max(bytes_made) <= layer.random.R.nbytes
  assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_flex_attention_gives_way_where_it_cannot_compute():
  """With gradients on CPUs, and in decoding; outputs stay the same."""
  found = made(dropout_rate=0.0)
  ids = torch.stack([row['labels'] for row in rows()])
  expected = found(input_ids=ids, labels=ids).loss
  steps = {'max_new_tokens': 5, 'input_ids': ids}
  static = {'cache_implementation': 'static', 'disable_compile': True}
  tokens = found.generate(**steps)
  found.set_attn_implementation('flex_attention')
  loss = found(input_ids=ids, labels=ids).loss
  loss.backward()
  table = found.encoder.block[0].layer[0].SelfAttention.random.R
  assert table.grad.abs().max() > 0
  torch.testing.assert_close(loss, expected)
  for cache in ({}, static):
    torch.testing.assert_close(found.generate(**steps, **cache), tokens)


TASK = """
task: sentences
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {rows}}}}}
validation_split: validation
output_type: multiple_choice
doc_to_text: 'sentence: {{{{text}}}}'
doc_to_target: label
doc_to_choice: [bad, good]
metric_list: [{{metric: acc}}]
"""


def test_lm_evaluation_harness(tmp_path):
  """The command of docs/huggingface.md; its scores are the model's own."""
  pytest.importorskip('lm_eval', reason='needs the package lm_eval')
  network = made(vocab_size=384).eval()
  network.save_pretrained(tmp_path / 'my_model')
  converted = tokenizer.convert(seqio.ByteVocabulary(), 32)
  converted.save_pretrained(tmp_path / 'my_model')
  examples = [{'text': text, 'label': n % 2} for n, text in enumerate('abcd')]
  rows_file = tmp_path / 'rows.jsonl'
  rows_file.write_text('\n'.join(map(json.dumps, examples)))
  (tmp_path / 'evaluation').mkdir()
  (tmp_path / 'evaluation/sentences.yaml').write_text(
    TASK.format(rows=rows_file)
  )

  text = DOCUMENT.read_text(encoding='utf-8')
  (command,) = re.findall(r'^lm_eval run (?:.*\\\n)*.*', text, re.M)
  command = command.replace('\\\n', '')
  words = shlex.split(command)
  subprocess.run(
    [sys.executable, '-m', *words, '--output_path', 'out', '--device', 'cpu'],
    cwd=tmp_path,
    env={**os.environ, 'HF_HUB_OFFLINE': '1', 'HF_HOME': str(tmp_path / 'hf')},
    check=True,
  )

  (file,) = tmp_path.glob('out/**/results_*.json')
  measured = json.loads(file.read_text())['results']['sentences']['acc,none']
  right = 0
  for example in examples:
    inputs = converted(f'sentence: {example["text"]}', return_tensors='pt')
    likelihoods = []
    for choice in (' bad', ' good'):
      labels = converted(choice, return_tensors='pt').input_ids[:, :-1]
      logits = network(**inputs, labels=labels).logits.log_softmax(-1)
      likelihoods.append(logits.gather(-1, labels[..., None]).sum())
    right += int(likelihoods[1] > likelihoods[0]) == example['label']
  assert measured == right / len(examples)


@pytest.mark.parametrize('variant', ['random_vanilla', 'dense', 'random'])
def test_onnx(variant, tmp_path):
  """One file computes one shape, as docs/huggingface.md says."""
  pytest.importorskip('onnxscript', reason='needs the package onnxscript')
  runtime = pytest.importorskip('onnxruntime', reason='needs onnxruntime')
  network = made(variant).eval()
  ids = torch.randint(2, 20, [2, 9])
  mask = torch.ones_like(ids)
  mask[1, 5:] = 0
  feed = {
    'input_ids': ids,
    'attention_mask': mask,
    'decoder_input_ids': torch.randint(2, 20, [2, 7]),
  }
  path = tmp_path / 'model.onnx'
  torch.onnx.export(
    network, kwargs={**feed, 'use_cache': False}, f=path, dynamo=True
  )
  session = runtime.InferenceSession(path)
  logits, *_ = session.run(
    None, {name: value.numpy() for name, value in feed.items()}
  )
  with torch.no_grad():
    expected = network(**feed).logits
  torch.testing.assert_close(torch.from_numpy(logits), expected)
