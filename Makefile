# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: setup browser demo test lint docs tables bench bench-long clean

setup: $(VENV)/.ready

# torch first and pinned: a looser request would pull gigabytes of CUDA packages; the rest under the same constraint.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Redraft needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
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

# The API page and the signatures in other pages, from the source.
docs: setup
	$(BIN)/python docs/api.py
	$(BIN)/python docs/storeys.py

# Tables, figures in prose and pictures of the measured pages, from the committed rows; nothing is measured.
tables: setup
	$(BIN)/python -m bench.table
	$(BIN)/python -m bench.curve
	$(BIN)/python -m bench.reliability --table
	$(BIN)/python recipes/discrete.py tables --write docs/results/methods.md docs/guides/chat.md docs/guides/infill.md README.md
	$(BIN)/python recipes/pages.py
	$(BIN)/python recipes/probing.py tables --write docs/guides/probe.md
	$(BIN)/python recipes/coding.py tables --write docs/guides/coding.md
	$(BIN)/python recipes/claims.py tables --write docs/results/claims.md
	$(BIN)/python recipes/certainty.py tables --write docs/concepts/sampler.md
	$(BIN)/python recipes/spelling.py --write docs/guides/correct.md
	$(BIN)/python recipes/own_text.py --write docs/results/how-long.md
	$(BIN)/python recipes/candidates.py --table docs/guides/rewrite.md
	$(BIN)/python recipes/control.py --write docs/pictures/control.svg --table docs/guides/control.md
	$(BIN)/python recipes/adapt_tables.py --write docs/guides/adapt.md
	$(BIN)/python recipes/sizes.py --write docs/results/presets.md
	$(BIN)/python recipes/drafts.py tables --write docs/guides/speculation.md --picture docs/pictures/speculation.svg
	$(BIN)/python recipes/figures.py

bench: setup
	$(BIN)/python -m bench.quick

bench-long: setup
	$(BIN)/python -m bench.long
	$(BIN)/python -m bench.learning

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
