# Two commands do everything: `make demo` and `make test`. Both create .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types contracts unit browser bench docs clean

demo: $(VENV)/.demo
	$(BIN)/uatlite demo

test: lint types contracts unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports

unit: $(VENV)/.dev browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n logical --maxprocesses 4 --durations 15

# The report is tested in a real browser. Without one these tests are skipped, loudly; with CI=true they fail.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
	  else \
	    echo "NO BROWSER: the tests that open the report are SKIPPED. Install chromium to run them."; \
	  fi; }

bench: $(VENV)/.dev
	$(BIN)/pip install -q --no-deps -r benchmarks/requirements.txt
	$(BIN)/python benchmarks/engine.py

# The page about the command line, from the commands themselves.
docs: $(VENV)/.dev
	$(BIN)/python docs/cli_page.py > docs/reference/cli.md

# torch comes first and alone, through the constraints, so that no other package's range picks another build.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt pip setuptools
	$(BIN)/pip install -q -c constraints.txt torch
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install -q -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml requirements-laplace.txt
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/pip install -q --no-deps -r requirements-laplace.txt
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist src/*.egg-info
