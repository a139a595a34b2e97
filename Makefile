# Everything a fresh machine needs is python3 (3.11 or later), make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
.DEFAULT_GOAL := help

# Without torch: the tools that build, lock and describe a release.
RELEASE_VENV := .venv-release
RELEASE_BIN := $(RELEASE_VENV)/bin
RELEASE_TOOLS := $(RELEASE_VENV)/.installed

$(RELEASE_TOOLS): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt build cyclonedx-bom twine uv
	touch $@

.PHONY: help setup demo test test-scale test-inference test-pythons test-lowest test-dist test-lenskit test-browser slow coverage check format docs dist lock sbom results bench-history bench-accuracy bench-fit bench-ablation bench-compare reproduce bench-time bench-kinds bench-ratings bench-speed bench-latency bench-serve bench-new-items bench-probabilities bench-dials bench-cold bench-repeats bench-nightly bench-scale bench-size campaign clean

help:  ## Show this list
	@awk -F ':.*## ' '/^##@/ {print "\n" substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-20s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Begin

setup: $(INSTALLED)  ## Create .venv and install the package with all it needs

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "cfnade needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup  ## Run the whole job on the embedded data: runs/demo/report.html
	$(BIN)/cfnade demo --out runs/demo

##@ Test

test: setup  ## Run the tests
	$(BIN)/python -m pytest -m "not slow and not browser and not scale and not dist"

test-scale: setup  ## Run the tests on a Spark cluster of two workers and over two processes; needs Java 17
	$(BIN)/python -m pytest -m scale tests/scale

# Without extras: saved models load and recommend, and torch is not there; then as a service installs it.
INFERENCE_VENV := .venv-inference
INFERENCE_TESTS := tests/data/test_interactions.py tests/data/test_ratings.py tests/storage/test_folder.py \
	tests/storage/test_folder_fuzz.py tests/storage/test_kept_folders.py \
	tests/storage/test_encoding.py tests/storage/test_rating_folder.py tests/data/test_rating_table.py \
	tests/model/test_inference.py tests/model/test_rating_inference.py \
	tests/data/test_catalogue.py tests/test_estimator_contract.py \
	tests/answer/test_explain.py tests/answer/test_dials.py tests/answer/test_rerank.py tests/answer/test_filters.py tests/answer/test_similar.py tests/answer/test_recommend.py \
	tests/cli/test_cmd_model.py tests/cli/test_model_card.py tests/test_errors.py tests/test_examples.py tests/test_public_api.py \
	tests/test_scorer.py

test-inference:  ## Run the tests of saved models in a fresh environment without torch
	rm -rf $(INFERENCE_VENV)
	$(PYTHON) -m venv $(INFERENCE_VENV)
	$(INFERENCE_VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt . pytest pytest-timeout hypothesis
	$(INFERENCE_VENV)/bin/python -c 'import importlib.util as u, sys; sys.exit("torch is installed" if u.find_spec("torch") else 0)'
	$(INFERENCE_VENV)/bin/python -m pytest -q $(INFERENCE_TESTS)
	$(INFERENCE_VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt '.[serve]'
	$(INFERENCE_VENV)/bin/python -m pytest -q -m 'not browser' tests/serve tests/cli/test_cmd_serve.py

test-dist: setup dist  ## Install what was built into empty environments, and run the README's lines there
	$(BIN)/python -m pytest -m dist tests/test_dist.py

# A version counts as found if `python3.12` runs, or pyenv has it. FULL=1 runs all tests, with torch, in place of those of saved models and the service.
test-pythons:  ## Run the tests of saved models on every Python found, 3.11 to 3.14; FULL=1 runs all tests
	@set -e; for version in 3.11 3.12 3.13 3.14; do \
		for python in python$$version $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python 2> /dev/null) none; do \
			$$python -c 'import venv' 2> /dev/null && break; \
		done; \
		if [ $$python = none ]; then echo "SKIPPED: there is no Python $$version" >&2; continue; fi; \
		echo "Python $$version: $$python"; \
		$(MAKE) --no-print-directory PYTHON=$$python $(if $(FULL),VENV=.venv-$$version test,INFERENCE_VENV=.venv-$$version-inference test-inference); \
	done

# The bound of torch is not among them: set TORCH=2.6.0 where pip finds its CPU build. `-W default`: old versions warn of what newer ones have mended.
LOWEST_VENV := .venv-lowest
LOWEST_EXTRAS := train,bench,data,serve,plots,tune,onnx,test
LOWEST_TESTS := tests
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)

test-lowest: $(RELEASE_TOOLS)  ## Run the tests on the oldest dependencies that pyproject.toml allows
	rm -rf $(LOWEST_VENV)
	$(PYTHON) -m venv $(LOWEST_VENV)
	$(LOWEST_VENV)/bin/pip install --quiet --disable-pip-version-check torch==$(TORCH)
	echo torch==$(TORCH) > $(LOWEST_VENV)/torch.txt
	$(RELEASE_BIN)/uv pip install --quiet --no-config --python $(LOWEST_VENV)/bin/python --resolution lowest-direct \
		--override $(LOWEST_VENV)/torch.txt '.[$(LOWEST_EXTRAS)]'
	$(LOWEST_VENV)/bin/python -m pytest -q -m "not slow and not browser and not scale and not dist" -W default $(LOWEST_TESTS)

# LensKit needs pandas 2, all else is tested with pandas 3.
LENSKIT_VENV := .venv-lenskit

test-lenskit:  ## Run the example for LensKit in a fresh environment of its own
	rm -rf $(LENSKIT_VENV)
	$(PYTHON) -m venv $(LENSKIT_VENV)
	grep -v '^pandas==' constraints.txt > $(LENSKIT_VENV)/constraints.txt
	$(LENSKIT_VENV)/bin/pip install --quiet --disable-pip-version-check --constraint $(LENSKIT_VENV)/constraints.txt '.[train,lenskit]' pytest pytest-timeout
	$(LENSKIT_VENV)/bin/python -m pytest -q tests/test_examples.py -k lenskit

# The tests bring no browser along: Debian's is taken, and installed if this user may.
FIND_BROWSER := command -v chromium || command -v chromium-browser || command -v google-chrome

test-browser: setup  ## Run the tests of the page and the reports in a real browser
	@($(FIND_BROWSER)) > /dev/null || (apt-get update && apt-get install --yes chromium) > /dev/null 2>&1 || true
	@if ($(FIND_BROWSER)) > /dev/null; then \
		$(BIN)/python -m pytest -m browser tests/serve tests/compare; \
	else echo 'SKIPPED: there is no browser and chromium could not be installed, so the page is NOT tested.' \
		'Install one (Debian: apt-get install chromium) and run this again.' >&2; fi

coverage: setup  ## Run the tests and measure what they cover: coverage.xml
	$(BIN)/python -m pytest -m "not slow and not browser and not scale and not dist" --cov --cov-report=xml --cov-report=term

slow: setup  ## Run the tests that train on real data
	$(BIN)/python -m pytest -m slow

##@ Change

check: setup  ## Lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## Put the source in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## Build the documentation: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

##@ Release

dist: $(RELEASE_TOOLS)  ## Build the wheel and the sdist into dist/, and check what they say
	rm -rf dist
	$(RELEASE_BIN)/python -m build --outdir dist
	$(RELEASE_BIN)/twine check --strict dist/*

# make lock EXTRAS="serve train" LOCK=mine.lock makes another one; the hashes of torch are those of your index.
EXTRAS := serve
LOCK := requirements.lock

lock: $(RELEASE_TOOLS)  ## Write requirements.lock: the service on all Pythons and systems, with hashes
	$(RELEASE_BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
		--no-annotate --no-emit-index-url --custom-compile-command 'make lock' \
		--constraint constraints.txt $(EXTRAS:%=--extra %) \
		--output-file $(LOCK) pyproject.toml

SBOM_VENV := build/sbom

sbom: dist  ## Write build/cfnade.cdx.json: what the locked service consists of, in CycloneDX
	$(RELEASE_BIN)/uv venv --quiet --clear --python $(PYTHON) $(SBOM_VENV)
	$(RELEASE_BIN)/uv pip install --quiet --python $(SBOM_VENV) --require-hashes --requirement requirements.lock
	$(RELEASE_BIN)/uv pip install --quiet --python $(SBOM_VENV) --no-deps dist/*.whl
	$(RELEASE_BIN)/cyclonedx-py environment --no-validate --pyproject pyproject.toml --mc-type library --output-reproducible \
		--output-file build/cfnade.cdx.json $(SBOM_VENV)/bin/python

##@ Measure

results: setup  ## Write docs/results.md from what the benchmarks and the demo left
	$(BIN)/python benchmarks/results.py

bench-history: setup  ## Append the headline figures to benchmarks/history.jsonl, and draw docs/figures/history.svg
	$(BIN)/python benchmarks/history.py

bench-accuracy: setup  ## Compare every method, tuned alike; DATA is the folder of data sets, SETS="ml-1m tafeng", QUICK=--quick
	$(BIN)/python benchmarks/accuracy.py $(or $(DATA),.) $(if $(SETS),--sets "$(SETS)") $(QUICK)

bench-fit: setup  ## Fit the default, thorough and ALS on every data set in DATA, idle and busy (half an hour)
	$(BIN)/python benchmarks/default_fit.py $(DATA)
	$(BIN)/python benchmarks/results.py

bench-ablation: setup  ## Fit the default with and without each of its parts, judged on validation; DATA as above (hours)
	$(BIN)/python benchmarks/ablation.py $(DATA)
	$(BIN)/python benchmarks/results.py

reproduce: setup  ## Run the paper's comparison on every data set in DATA, into docs/reproduction.md (many hours; goes on where it stopped)
	$(BIN)/python benchmarks/reproduce.py $(DATA) $(if $(SETS),--sets "$(SETS)")

bench-compare: setup  ## Run `cfnade compare` on random splits of every data set in DATA, and as typed (hours)
	$(BIN)/python benchmarks/compare.py $(DATA)
	$(BIN)/python benchmarks/compare.py $(DATA) --typed
	$(BIN)/python benchmarks/results.py

bench-time: setup  ## Compare models on the event logs in DATA, split by time (hours)
	$(BIN)/python benchmarks/compare.py $(DATA) --by-time
	$(BIN)/python benchmarks/results.py

bench-kinds: setup  ## Predict purchases from all kinds of events in the logs in DATA
	$(BIN)/python benchmarks/compare.py $(DATA) --kinds
	$(BIN)/python benchmarks/results.py

bench-ratings: setup  ## Compare models of ratings on 90/10 splits, into docs/reproduction.md; DATA as above (hours)
	$(BIN)/python benchmarks/ratings.py $(DATA) $(if $(SETS),--sets "$(SETS)") $(if $(SEEDS),--seeds $(SEEDS))

bench-speed: setup  ## Measure speed at the paper's scale (half an hour); QUICK=--quick takes 2 minutes
	$(BIN)/python benchmarks/speed.py $(QUICK)
	$(if $(QUICK),,$(BIN)/python benchmarks/results.py)

bench-latency: setup  ## Measure one request and a cold start at the paper's scale
	$(BIN)/python benchmarks/latency.py

bench-serve: setup  ## Measure the service under load (6 minutes); SOAK=600 soaks it for so many seconds instead
	$(BIN)/python benchmarks/serve.py $(QUICK) $(if $(SOAK),--soak $(SOAK))
	$(if $(QUICK)$(SOAK),,$(BIN)/python benchmarks/results.py)

bench-new-items: setup  ## Measure partial_fit with a tenth of the items held back; DATA as above
	$(BIN)/python benchmarks/new_items.py $(DATA)

bench-dials: setup  ## Measure what each dial costs in accuracy, and gains in coverage, novelty and diversity; DATA as above
	$(BIN)/python benchmarks/dials.py $(DATA)
	$(BIN)/python benchmarks/results.py

bench-cold: setup  ## Measure cold items: a tenth of the items held back, with an items table and without; DATA as above
	$(BIN)/python benchmarks/cold_items.py $(DATA)
	$(BIN)/python benchmarks/results.py

bench-repeats: setup  ## Measure what people do again, next to their own counts; DATA as above
	$(BIN)/python benchmarks/repeats.py $(DATA)
	$(BIN)/python benchmarks/results.py

bench-nightly: setup  ## Update a model day by day over a year, in several ways; DATA as above (20 minutes)
	$(BIN)/python benchmarks/nightly.py $(DATA)
	$(BIN)/python benchmarks/results.py

bench-probabilities: setup  ## Measure how far probabilities hold on held-out items; DATA as above
	$(BIN)/python benchmarks/probabilities.py $(DATA)

bench-size: setup  ## Measure sizes of saved models and what 16 bits change; DATA as above
	$(BIN)/python benchmarks/model_size.py $(DATA)

bench-scale: setup  ## Measure one and two workers, one and two processes (6 minutes); QUICK=--quick takes 2
	$(BIN)/python benchmarks/scale.py $(QUICK)
	$(if $(QUICK),,$(BIN)/python benchmarks/results.py)

campaign: setup  ## Attack all surfaces for ten minutes; HOURS=1 or MINUTES=3 for another time, FULL=1 for a million inputs
	$(BIN)/python -m campaign.run $(if $(FULL),--full) $(if $(RESUME),--resume) $(if $(HOURS),--hours $(HOURS)) $(if $(MINUTES),--minutes $(MINUTES))

##@ Tidy

clean:  ## Remove what the commands above made
	rm -rf $(VENV) $(INFERENCE_VENV) $(LENSKIT_VENV) $(RELEASE_VENV) .venv-3.* .venv-lowest build dist runs site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
