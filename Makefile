# On a machine with Python 3.9-3.11 and pip:
#
#   make demo [DEMO_ARGS='--data_dir DIR']   the whole pipeline, small
#   make test-fast                           tests that train nothing
#   make test [TF=2.15] [TEST_ARGS='-k NAME']
#   make tpu-proof                           TPU programs of every variant
#   make tpu-compile [VARIANTS='random ...'] [RUN=finetune_en_mix]
#                                            compile them as for a TPU v3-8
#   make lint, make format, make benchmark [BENCHMARK_ARGS='...']
#
# Each target first creates .venv, unless it exists and is up to date.
# PYTHON=/path/to/python chooses the interpreter.

TF ?= 2.12
# Test processes, for two cores: some tests wait for processes that they start.
WORKERS ?= 3
ifeq ($(TF),2.12)
  VENV := .venv
  CONSTRAINTS := constraints.txt
else ifeq ($(TF),2.15)
  VENV := .venv-tf2.15
  CONSTRAINTS := constraints-tf2.15.txt
else
  $(error TF=$(TF) is not supported: give TF=2.12 or TF=2.15)
endif
INSTALLED := $(VENV)/.installed
BIN := $(VENV)/bin

.PHONY: demo test-fast test tpu-proof tpu-compile lint format benchmark env
.DEFAULT_GOAL := demo

demo: env
	$(BIN)/synth-mtf demo $(DEMO_ARGS)

PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --max-worker-restart 0 --dist

# Skips what trains, starts processes or is one of many similar cases.
test-fast: env
	$(PYTEST) $(PARALLEL) worksteal -m 'not slow and not tpu_proof' $(TEST_ARGS)

test: env
	$(PYTEST) $(PARALLEL) loadfile $(TEST_ARGS)

tpu-proof: env
	$(PYTEST) -m '' tests/tpu $(TEST_ARGS)

# XLA's compiler for TPUs needs its own environment, with Python 3.10 or newer.
VENV_TPU := .venv-tpu
RUN ?= pretrain_c4
PROGRAMS := build/tpu/$(RUN)
VARIANTS ?= SelfAttention $(basename $(notdir $(wildcard gin/variants/*.gin)))
tpu-compile: env $(VENV_TPU)/.installed
	$(BIN)/python -m tests.tpu.lower --run $(RUN) $(PROGRAMS) \
	  $(VARIANTS)
	$(VENV_TPU)/bin/python tests/tpu/compile.py $(PROGRAMS) $(VARIANTS)

$(VENV_TPU)/.installed: tests/tpu/requirements.txt | env
	$(BIN)/python -m venv --clear --without-pip $(VENV_TPU)
	$(BIN)/python -m pip --python $(VENV_TPU)/bin/python install --quiet \
	  --no-compile --requirement $<
	@touch $@

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: env
	$(BIN)/python -m benchmarks.speed $(BENCHMARK_ARGS)

env: $(INSTALLED)

# Without ensurepip, which Debian packages separately, use the pip of $(PYTHON).
$(INSTALLED): setup.py $(CONSTRAINTS)
	@python=$$(.ci/find_python $(PYTHON)) && \
	echo "Creating $(VENV) with $$python (once; two to four minutes)." && \
	if [ -x $(BIN)/pip ]; then :; \
	elif "$$python" -c 'import ensurepip' 2>/dev/null; then \
	  "$$python" -m venv --clear $(VENV); \
	else \
	  "$$python" -m venv --clear --without-pip $(VENV) && \
	  "$$python" -m pip --python $(BIN)/python install --quiet pip; \
	fi && \
	$(BIN)/python -m pip install --quiet --no-compile \
	  --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@
