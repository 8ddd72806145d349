# Each target does all its own set-up: a fresh machine with python3.11+ and make is enough.
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: demo test slow soak docs clean
demo: $(STAMP)
	$(VENV)/bin/nfad demo --out demo

test: $(STAMP)
	$(VENV)/bin/ruff check nfad tests benchmarks
	$(VENV)/bin/ruff format --check nfad tests benchmarks
	$(VENV)/bin/pyright
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder

slow: $(STAMP)
	$(PY) -m pytest -m slow

# A station at full speed and under kills, e.g. make soak IMAGES=folder-of-good-photos MINUTES=60 KILLS=200
soak: $(STAMP)
	$(PY) benchmarks/soak.py $(IMAGES) --minutes $(or $(MINUTES),3) --kills $(or $(KILLS),20)

$(STAMP): pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --editable '.[test]'
	touch $@

docs: $(STAMP)
	$(PY) -m typer nfad.cli.main utils docs --name nfad --output docs/cli.md

clean:
	rm -rf $(VENV) demo
