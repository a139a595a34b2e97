# Everything a fresh machine needs is python3 (3.11 or later), make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help setup demo test test-scale test-inference test-lenskit test-browser slow check format docs results bench-accuracy bench-fit bench-ablation bench-compare reproduce bench-time bench-kinds bench-ratings bench-speed bench-latency bench-serve bench-new-items bench-probabilities bench-dials bench-cold bench-nightly bench-scale bench-size campaign clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(INSTALLED)  ## Create .venv and install the package with all it needs

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "cfnade needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup  ## Run the whole job on the embedded data: runs/demo/report.html
	$(BIN)/cfnade demo --out runs/demo

test: setup  ## Run the tests
	$(BIN)/python -m pytest -m "not slow and not browser and not scale"

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
	tests/cli/test_cmd_model.py tests/test_errors.py tests/test_examples.py tests/test_public_api.py \
	tests/test_scorer.py

test-inference:  ## Run the tests of saved models in a fresh environment without torch
	rm -rf $(INFERENCE_VENV)
	$(PYTHON) -m venv $(INFERENCE_VENV)
	$(INFERENCE_VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt . pytest pytest-timeout hypothesis
	$(INFERENCE_VENV)/bin/python -c 'import importlib.util as u, sys; sys.exit("torch is installed" if u.find_spec("torch") else 0)'
	$(INFERENCE_VENV)/bin/python -m pytest -q $(INFERENCE_TESTS)
	$(INFERENCE_VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt '.[serve]'
	$(INFERENCE_VENV)/bin/python -m pytest -q -m 'not browser' tests/serve tests/cli/test_cmd_serve.py

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

test-browser: setup  ## Run the tests of the service's page in a real browser
	@($(FIND_BROWSER)) > /dev/null || (apt-get update && apt-get install --yes chromium) > /dev/null 2>&1 || true
	@if ($(FIND_BROWSER)) > /dev/null; then \
		$(BIN)/python -m pytest -m browser tests/serve; \
	else echo 'SKIPPED: there is no browser and chromium could not be installed, so the page is NOT tested.' \
		'Install one (Debian: apt-get install chromium) and run this again.' >&2; fi

slow: setup  ## Run the tests that train on real data
	$(BIN)/python -m pytest -m slow

check: setup  ## Lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## Put the source in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## Build the documentation: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

results: setup  ## Write docs/results.md from what the benchmarks and the demo left
	$(BIN)/python benchmarks/results.py

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

bench-compare: setup  ## Run `cfnade compare` without a flag on every data set in DATA (hours)
	$(BIN)/python benchmarks/compare.py $(DATA)
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

clean:  ## Remove what the commands above made
	rm -rf $(VENV) $(INFERENCE_VENV) $(LENSKIT_VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
