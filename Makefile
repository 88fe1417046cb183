# Needs nothing but python3 (3.11 or newer), with its venv module. PYTHON=python3.13 make test uses another.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup setup-tpu demo docs site test test-fast test-tpu lint bench bench-tpu lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "python3 is $$($(PYTHON) --version 2>&1); 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) lacks the venv module; on Debian: apt install python3-venv"; exit 2; }
	@echo "Installing into $(VENV), once; about a minute ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Fifteen language models, their scaling laws, multipliers, the Full-Block gap, what depth attention
# needs, plots and the report.
demo: $(STAMP)
	$(BIN)/scaling launch configs/demo.yaml --jobs 2
	$(BIN)/scaling fit runs/demo
	$(BIN)/scaling gap runs/demo
	$(BIN)/scaling ablate-sources runs/demo --size d48 --mode remove
	$(BIN)/scaling plot runs/demo
	$(BIN)/scaling report runs/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m "not tpu_aot"

setup-tpu: $(VENV)/.installed-tpu

# Compiles kernels and training steps for TPUs, with their real compiler and without a TPU.
test-tpu: $(VENV)/.installed-tpu
	$(BIN)/python -m pytest -n 2 --dist loadscope -m tpu_aot

$(VENV)/.installed-tpu: $(STAMP) requirements-tpu.lock
	@echo "Installing the TPU compiler into $(VENV), once ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-tpu.lock
	@touch $@

# docs/variants.md and its picture, from what the residual connections say of themselves.
docs: $(STAMP)
	$(BIN)/python -m scaling.variants_docs

# The pages of docs/ with the reference, in build/site; opens from disk.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q
	@echo "build/site/index.html"

test-fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadscope -m "not slow and not tpu_aot"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(STAMP)
	$(BIN)/python -m scaling.bench
	$(BIN)/python -m scaling.bench_zoo

# Minutes a row; needs no TPU.
bench-tpu: $(VENV)/.installed-tpu
	JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 $(BIN)/python -m scaling.bench_tpu

# Needs uv; run it after changing dependencies, then `make test`. What the TPU compiler needs beyond
# the rest has a lock of its own: other users need not load it.
LOCK := uv pip compile pyproject.toml --group dev --extra bpe --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --quiet
lock:
	$(LOCK) --upgrade -o requirements.lock
	$(LOCK) --extra tpu-aot -c requirements.lock | \
	  awk '/^[a-z]/ { keep = /^libtpu/ } keep' > requirements-tpu.lock

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
