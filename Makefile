# Policy Lab. `make demo` shows it work, `make up` starts it; both set everything up first.
# Needs make and Python 3.11 or newer; nothing has to be installed before, nothing is installed outside .venv (but see chromium).

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
PY := .venv/bin/python
STAMP := .venv/installed-$(shell cksum < requirements.lock | cut -d' ' -f1)
TORCH := $(shell grep '^torch==' requirements.lock)
PORT ?= 8000
CHROMIUM = $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name) 2>/dev/null)))
# mypy reads Django's settings but connects to nothing
LINT_ENV := DATABASE_URL=postgres:///lint REDIS_URL=unix:///lint SECRET_KEY=lint

.PHONY: help setup demo up test lint format catalog lock chromium clean

help:
	@echo "make demo     train the built-in policy in three stages and show what each did (about 4 minutes)"
	@echo "make up       the lab on http://127.0.0.1:$(PORT) (another port: make up PORT=8001)"
	@echo "make test     all tests      make lint     all checks      make format   put the code into shape"
	@echo "make catalog  write trainers/catalog.json and docs/methods.md anew      make lock   write requirements.lock anew"
	@echo "make clean    remove caches and .venv; var/, the data of the lab, stays"

setup: $(STAMP)

# torch comes first and alone: pip then takes the build your index offers for this machine (CPU or CUDA) before anything else can ask for one.
$(STAMP): requirements.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found; name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PY) -m pip install --disable-pip-version-check --progress-bar off -q "$(TORCH)"
	$(PY) -m pip install --disable-pip-version-check --progress-bar off -q -r requirements.lock
	@rm -f .venv/installed-*
	@touch $@

demo: setup
	@$(PY) manage.py demo

up: setup
	@PORT=$(PORT) $(PY) manage.py up

# Two processes, a core each, take one test file after the other; files that need minutes come first. Each has services of its own.
test: setup chromium
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(PY) -m pytest $(or $(ARGS),-n 2 --dist loadfile --no-loadscope-reorder tests/trainers tests/browser tests/lab tests/security)

lint: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(LINT_ENV) $(PY) -m mypy

format: setup
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

catalog: setup
	$(PY) -m trainers catalog --built-in --out trainers/catalog.json
	$(PY) -m trainers methods --markdown --out docs/methods.md

# Only the browser tests need it.
chromium:
	@if [ -n "$(CHROMIUM)" ]; then exit 0; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -q && apt-get install -y -q --no-install-recommends chromium; \
	else echo "Chromium is not installed, the browser tests need it: install the package chromium" >&2; fi

lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -q "$$(grep '^torch==' requirements.in)"
	.venv-lock/bin/python -m pip install -q -r requirements.in
	.venv-lock/bin/python -m pip freeze --exclude torch > .venv-lock/pins
	{ echo "# Made by make lock from requirements.in; what torch brings for a GPU (CUDA, triton) is left to torch."; grep '^torch==' requirements.in; \
	  grep -v -E '^(triton|cuda-|nvidia-([^m]|m[^l]))' .venv-lock/pins | sort -f; } > requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf .venv .venv-lock .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './var/*' -prune -exec rm -rf {} +
