# Two commands, each with all of its own set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types tests chaos bench gpu-check clean

# What users get: the package and nothing else.
.venv/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

# What developers need on top: extras, linters, test tools.
.venv/dev: .venv/core
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: .venv/core
	$(BIN)/python examples/demo.py

test: lint types tests

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: .venv/dev
	$(BIN)/mypy

tests: .venv/dev
	$(BIN)/pytest

# Damaged and hostile files in thousands, ten minutes; prints one table. SEED=2 draws others.
CASES ?= 21000
SEED ?= 1
chaos: .venv/dev
	$(BIN)/python tests/chaos/fuzz.py --cases $(CASES) --seed $(SEED)

# Needs AllenNLP's files beside ours; see benchmarks/README.md.
bench: .venv/dev
	$(BIN)/pip install -q --disable-pip-version-check --no-deps allennlp==2.10.1
	$(BIN)/python -m benchmarks.speed --threads 2 --data .benchmark-data

# On a machine with a GPU, at most ten minutes: the tests that need one, then the speed of the tree
# in the folder OLD beside this one. Nothing is installed; SITE is a folder with further packages.
gpu-check:
	@test -n "$(OLD)" || { echo "usage: make gpu-check OLD=folder of an older checkout"; exit 2; }
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m benchmarks.gpu_check $(OLD) . --out gpu-check \
		$(if $(SITE),--site $(SITE))

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
