# Policy Lab. `make demo` shows it work, `make up` starts it; both set everything up first.
# Needs make and Python 3.11 or newer; nothing has to be installed before, nothing is installed outside .venv (but see chromium).

# Debian's and Ubuntu's own Python is built with profile-guided optimisation, which pyenv leaves out: the same work in a tenth less time. Chosen first of
# all that can make an environment (those without ensurepip cannot, Debian has it in python3.11-venv); one that cannot says itself what it lacks.
NAMES := /usr/bin/python3.11 python3.11 python3.12 python3.13 python3.14 python3
with_module = $(foreach name,$(NAMES),$(shell $(name) -c 'import sys, $(1); sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null))
PYTHON ?= $(firstword $(or $(call with_module,ensurepip),$(call with_module,sys)))
PY := .venv/bin/python
STAMP := .venv/installed-$(shell cat requirements.in requirements.lock npm.lock | cksum | cut -d' ' -f1)
TEST_STAMP := .venv/test-tools-$(shell cat requirements.in requirements.lock requirements-test.lock npm.lock npm-test.lock | cksum | cut -d' ' -f1)
TORCH := $(shell grep '^torch==' requirements.in)
INSTALL := $(PY) -m pip install --disable-pip-version-check --progress-bar off -q
PORT ?= 8000
# Unpacked from a bundle (make bundle), everything that is installed lies beside this file, and no index is asked.
ifneq ($(wildcard bundle/wheels),)
INSTALL += --no-index --find-links bundle/wheels
export NPM_CONFIG_REGISTRY := file://$(CURDIR)/bundle/npm
endif
CHROMIUM = $(firstword $(foreach name,chromium-headless-shell chromium chromium-browser google-chrome,$(shell command -v $(name) 2>/dev/null)))
# mypy reads Django's settings but connects to nothing
LINT_ENV := DATABASE_URL=postgres:///lint REDIS_URL=unix:///lint SECRET_KEY=lint

.PHONY: help setup setup-test demo up test test-quick lint format catalog features formats client lock images bundle chromium clean

help:
	@echo "make demo     train the built-in policy in three stages and show what each did (about 4 minutes)"
	@echo "make up       the lab on http://127.0.0.1:$(PORT) (another port: make up PORT=8001)"
	@echo "make test     all tests      make test-quick   those without training, browser and long files (about 2 minutes)"
	@echo "make lint     all checks     make format   put the code into shape"
	@echo "make catalog  write trainers/catalog.json and docs/methods.md anew      make lock   write the two lock files anew"
	@echo "make features write docs/features.md anew from the marks of the tests      make formats  docs/formats.md from the formats"
	@echo "make client   write dist/policy_lab-*.whl, the Python client that the lab also serves at /client/"
	@echo "make images   pin the images of Dockerfile, docker-compose.yml and deploy/ to the digests that their tags have now"
	@echo "make bundle   write dist/*.tar: this commit with all it needs, to be installed without a network on a machine like this one"
	@echo "make clean    remove caches and .venv; var/, the data of the lab, stays"

setup: $(STAMP)

# Every file is held to its hash; --no-deps, because the lock is complete and nothing beside it may come in. Then torch, alone: the build your index
# offers for this machine (CPU or CUDA) has a hash of its own, and all it needs beside libraries for a GPU is there by then.
$(STAMP): requirements.in requirements.lock npm.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found; name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(INSTALL) --require-hashes --no-deps -r requirements.lock
	$(INSTALL) "$(TORCH)"
	@$(PY) -m pip check --disable-pip-version-check -q
	$(PY) -m lab.lib.npm_packages npm.lock
	@rm -f .venv/installed-*
	@touch $@

setup-test: $(TEST_STAMP)

$(TEST_STAMP): $(STAMP) requirements-test.lock npm-test.lock
	$(INSTALL) --require-hashes --no-deps -r requirements-test.lock
	$(PY) -m lab.lib.npm_packages npm-test.lock
	@rm -f .venv/test-tools-*
	@touch $@

demo: setup
	@$(PY) manage.py demo

up: setup
	@PORT=$(PORT) $(PY) manage.py up

# Three processes take one test file after the other, the longest first (tests/order.py): one more than the two cores, because what waits for a
# child or a browser leaves its core idle. Each has services of its own.
# The tests start some hundred processes: where the shell forbids Python to keep compiled code, each would compile the project anew. What a training
# step frees the next one asks for again: given back to the kernel in between, it costs a training of the tests a fifteenth of its time.
PYTEST = env -u PYTHONDONTWRITEBYTECODE HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TRIM_THRESHOLD_=1073741824 $(PY) -m pytest
SHARED = -n 3 --dist loadfile --no-loadscope-reorder --durations=20
test: setup-test chromium
	$(PYTEST) $(or $(ARGS),$(SHARED) tests/trainers tests/browser tests/lab tests/security)

test-quick: setup-test
	$(PYTEST) $(SHARED) --quick tests/trainers tests/lab tests/security

lint: setup-test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	.venv/bin/oxlint --deny-warnings static
	$(LINT_ENV) $(PY) -m mypy

format: setup-test
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

catalog: setup
	$(PY) -m trainers catalog --built-in --out trainers/catalog.json
	$(PY) -m trainers methods --markdown --out docs/methods.md

client: setup
	@$(PY) -m lab.lib.client_wheel dist

features:
	$(PY) -m tests.features

formats:
	DATABASE_URL=postgres:///docs REDIS_URL=unix:///docs SECRET_KEY=docs DJANGO_SETTINGS_MODULE=lab.settings $(PY) -c "import django, runpy; django.setup(); runpy.run_module('tests.formats_page', run_name='__main__')"

# Only the browser tests need it; Debian's shell without windows is quicker, other systems have the whole browser only.
chromium:
	@if [ -n "$(CHROMIUM)" ]; then exit 0; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -q && { apt-get install -y -q --no-install-recommends chromium-headless-shell || apt-get install -y -q --no-install-recommends chromium; }; \
	else echo "Chromium is not installed, the browser tests need it: install the package chromium-headless-shell or chromium" >&2; fi

# uv resolves for all machines at once and takes the hashes of every file of a version, so that the locks hold on x86-64 and aarch64 and from Python
# 3.11 on. What is pinned stays pinned where it can; make lock UPGRADE=--upgrade takes the newest of everything.
COMPILE = .venv-lock/bin/uv pip compile -q $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
  --no-emit-index-url --no-emit-find-links
WITHOUT_TORCH = awk '/^[A-Za-z]/ { keep = $$0 !~ /^(torch|triton|cuda-[a-z]+|nvidia-([^m]|m[^l])[a-z0-9-]*)==/ } keep'
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --disable-pip-version-check -q uv==0.13.9
	cp requirements.lock .venv-lock/runtime && cp requirements-test.lock .venv-lock/test
	$(COMPILE) requirements.in -o .venv-lock/runtime
	$(COMPILE) requirements-test.in -c .venv-lock/runtime -o .venv-lock/test
	{ echo "# Made by make lock from requirements.in, with the hashes of every file of each version: installed with --require-hashes --no-deps."; \
	  echo "# torch and what it brings for a GPU (CUDA, triton) are not here: an index offers builds of one version, for the CPU and for CUDA,"; \
	  echo "# and each has a hash of its own. Its version is pinned in requirements.in and it is installed after this file, alone."; \
	  $(WITHOUT_TORCH) .venv-lock/runtime; } > requirements.lock
	{ echo "# Made by make lock from requirements-test.in: what tests and checks need, on top of requirements.lock. Not part of the image."; \
	  grep -v '^ *#' .venv-lock/test; } > requirements-test.lock
	cp requirements.lock .venv-lock/vllm
	$(subst --universal,--python-platform x86_64-unknown-linux-gnu,$(COMPILE)) requirements-vllm.in -o .venv-lock/vllm
	{ echo "# Made by make lock from requirements-vllm.in, complete for Linux on x86-64 with CUDA: installed with --require-hashes --no-deps."; \
	  grep -v '^ *#' .venv-lock/vllm; } > requirements-vllm.lock
	rm -rf .venv-lock

# Needs docker with buildx and a network. A tag's index has a digest for all kinds of machines, unlike the image of one.
PINNED = Dockerfile docker-compose.yml deploy/Dockerfile.caddy $(wildcard deploy/kubernetes/*.yaml)
images:
	@for name in $$(sed -nE -e 's/^FROM ([a-z]+:[a-z0-9.-]+)@sha256:.*/\1/p' -e 's/^ +image: [a-z]+@sha256:[0-9a-f]+ # (.*)/\1/p' $(PINNED) | sort -u); do \
	  digest=$$(docker buildx imagetools inspect "$$name" --format '{{.Manifest.Digest}}') || exit 1; \
	  echo "$$digest" | grep -qE '^sha256:[0-9a-f]{64}$$' || { echo "$$name: no digest" >&2; exit 1; }; \
	  sed -i -E -e "s|^(FROM $$name)@sha256:[0-9a-f]{64}|\1@$$digest|" -e "s|@sha256:[0-9a-f]{64} # $$name\$$|@$$digest # $$name|" $(PINNED); \
	  echo "$$name@$$digest"; done

# For a machine without a network: this commit, its packages and the front-end files, for this machine's system and Python. Wheels only, since
# building one would ask an index for its tools. Unpacked, `make demo` and `make up` work as they do here.
BUNDLE = policy-lab-$(shell git rev-parse --short=8 HEAD 2>/dev/null)-$(shell $(PY) -c 'import platform, sys; print(f"py{sys.version_info[0]}{sys.version_info[1]}-{sys.platform}-{platform.machine()}")')
DOWNLOAD = $(PY) -m pip download --disable-pip-version-check --progress-bar off -q --only-binary :all: -d dist/policy-lab/bundle/wheels
bundle: setup
	@git rev-parse -q --verify HEAD >/dev/null || { echo "make bundle needs a clone of the repository: it packs the commit HEAD" >&2; exit 1; }
	rm -rf dist/policy-lab && mkdir -p dist/policy-lab
	git archive HEAD | tar -x -C dist/policy-lab
	$(DOWNLOAD) --require-hashes --no-deps -r requirements.lock
	$(PY) -m pip freeze --disable-pip-version-check --all > dist/installed
	$(DOWNLOAD) -c dist/installed "$(TORCH)"
	$(PY) -m lab.lib.npm_packages --archives dist/policy-lab/bundle/npm npm.lock
	tar -C dist -cf dist/$(BUNDLE).tar policy-lab && rm -rf dist/policy-lab dist/installed
	@echo "dist/$(BUNDLE).tar ($$(du -h dist/$(BUNDLE).tar | cut -f1)): copy it, unpack it with tar -xf, and run make demo or make up in policy-lab/"

clean:
	rm -rf .venv .venv-lock dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './var/*' -prune -exec rm -rf {} +
