# On a machine with Python 3.10 to 3.13 and pip:
#
#   make demo [DEMO_ARGS='--data_dir DIR']   the whole pipeline, small
#   make test-fast                           tests that train nothing
#   make env TPU=1                           TensorFlow for TPU v2 to v4
#   make test [TF=2.20] [TEST_ARGS='-k NAME']
#   make tpu-proof [TPU=1]                   TPU programs of every variant
#   make docs                                the documentation, as a site
#   make lint, make format, make benchmark [BENCHMARK_ARGS='...']
#   make constraints [UPGRADE=--upgrade]     pins of all versions
#
# Each target first creates .venv, unless it exists and is up to date.
# PYTHON=/path/to/python chooses the interpreter.

# Test processes, for two cores: some tests wait for processes that they start.
WORKERS ?= 3
# TF=2.12 or TF=2.20 chooses one of the two sets of versions, in an environment of
# its own; otherwise Python does: 3.10 and 3.11 get 2.12, 3.12 and 3.13 get 2.20.
# TPU=1 is 2.20 with the runtime of TPU v2, v3 and v4, also in an environment of its
# own.
ifneq ($(filter-out 2.12 2.20,$(TF)),)
  $(error TF=$(TF) is not supported: give TF=2.12 or TF=2.20)
endif
ifdef TPU
  ifeq ($(TF),2.12)
    $(error TPU=1 needs TF=2.20: there is no TensorFlow 2.12 for TPUs)
  endif
  TF := 2.20
endif
# Each process would compile TensorFlow's modules again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv$(if $(TPU),-tpu,$(if $(TF),-tf$(TF)))
CONSTRAINTS := constraints$(if $(filter 2.20,$(TF)),-tf2.20).txt
FOR_TPU := $(if $(TPU),requirements-tpu.txt)
INSTALLED := $(VENV)/.installed
BIN := $(VENV)/bin
# uv installs packages, from the index that pip is set to.
UV := $(BIN)/python .ci/uv

.PHONY: demo test-fast test tpu-proof docs lint format constraints \
  benchmark env
.DEFAULT_GOAL := demo

demo: env
	$(BIN)/synth-mtf demo $(DEMO_ARGS)

PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --max-worker-restart 0 --no-loadscope-reorder --dist

# Skips what trains, starts processes or is one of many cases that take long.
test-fast: env
	$(PYTEST) $(PARALLEL) worksteal -m 'not slow and not tpu_proof' $(TEST_ARGS)

test: env
	$(PYTEST) $(PARALLEL) loadfile $(TEST_ARGS)

tpu-proof: env
	$(PYTEST) -m '' tests/tpu tests/pjrt $(TEST_ARGS)

# MkDocs needs no TensorFlow, and so an environment of its own.
VENV_DOCS := .venv-docs
docs: $(VENV_DOCS)/.installed
	@# The theme announces another program on each build.
	NO_MKDOCS_2_WARNING=1 $(VENV_DOCS)/bin/python -m mkdocs build --strict
	@echo 'build/docs/index.html'

$(VENV_DOCS)/.installed: docs/site/requirements.txt | env
	$(BIN)/python -m venv --clear --without-pip $(VENV_DOCS)
	$(UV) pip install --python $(VENV_DOCS)/bin/python --requirement $<
	@touch $@

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Resolves the versions that constraints.in leaves open, for every Python at once.
# What stands in constraints*.txt is kept; UPGRADE=--upgrade takes the newest.
RESOLVE = $(UV) pip compile --quiet --universal --no-annotate --all-extras \
  $(UPGRADE) --custom-compile-command 'make constraints' setup.py
constraints: env
	$(RESOLVE) --python-version 3.10 --constraint constraints.in \
	  --output-file constraints.txt
	sed '/python_version [<=]/d; s/; python_version.*//' constraints.in \
	  > $(VENV)/tf2.20.in
	$(RESOLVE) --python-version 3.10 --constraint $(VENV)/tf2.20.in \
	  --output-file constraints-tf2.20.txt
	@# TensorFlow and torch choose their own.
	sed -i -E '/^(cuda-|nvidia-|triton=)/d' constraints*.txt

benchmark: env
	$(BIN)/python -m benchmarks.speed $(BENCHMARK_ARGS)

env: $(INSTALLED)

# Without ensurepip, which Debian packages separately, use the pip of $(PYTHON).
# pip installs uv, and uv everything else.
$(INSTALLED): setup.py $(CONSTRAINTS) $(FOR_TPU)
	@python=$$(.ci/find_python '$(TF)' $(PYTHON)) && \
	echo "Creating $(VENV) with $$python (once; one to three minutes)." && \
	if [ -x $(BIN)/pip ]; then :; \
	elif "$$python" -c 'import ensurepip' 2>/dev/null; then \
	  "$$python" -m venv --clear $(VENV); \
	else \
	  "$$python" -m venv --clear --without-pip $(VENV) && \
	  "$$python" -m pip --python $(BIN)/python install --quiet pip; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint $(CONSTRAINTS) uv
	$(UV) pip install --python $(BIN)/python \
	  --constraint $(CONSTRAINTS) --editable '.[dev]'
	@# seqio's tfds-nightly has the same files, and uv writes both at once.
	$(UV) pip install --python $(BIN)/python --constraint $(CONSTRAINTS) \
	  --no-deps --reinstall-package tensorflow-datasets tensorflow-datasets
	$(if $(TPU),$(UV) pip install --python $(BIN)/python \
	  --reinstall --no-deps --requirement $(FOR_TPU))
	@touch $@
