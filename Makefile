# Everything runs in .venv, which `make install` builds; paths are relative, so the clone may lie anywhere.
SHELL := /bin/bash
PYTHON ?= python3
RUN := .venv/bin/python -m
DEMO_TASKS := antonym capitalize country-capital next_item present-past
WHY_TASKS := capitalize capitalize_first_letter antonym synonym present-past singular-plural country-capital \
	country-currency english-french english-german choose_first_of_3 animal_v_object_3
WHY := $(addprefix --task ,$(WHY_TASKS)) --seeds 0-2 --out runs/why
# What is kept in figures/; the run folder has more: effects of single heads, further measures, log-probabilities, fits.
FIGURES := accuracy_* alpha_* patching_sufficiency_first_token patching_necessity_first_token patching_icl_ablation_mean_first_token \
	transfer_* overlap_jaccard overlap_weighted_jaccard overlap_embeddings head_catalogue stability
DEMO ?= run $(addprefix --task ,$(DEMO_TASKS)) --n-test 50 --out runs/demo

# docs/results.md: every method at its own setting, equal labels, benchmarks, and SITE against itself.
DATA ?= $(SITE_INTERP_DATA)
FEW := antonym english-french capitalize present-past
METHODS := zero_shot icl many_shot_icl site function_vector task_vector mtv:n_steps=200 i2cl ltv lora ia3 knn
ABLATIONS := mixing=add init=-2 init=2 per=layer loss=answer heads=hard heads=top heads=all target=random target=other \
	target=mean n_prompts=1 n_prompts=10 n_shots=1 n_shots=5
RESULT_PARTS := fv labels bbh choice ablations
RESULT_fv := $(WHY_TASKS:%=--task fv/%) $(METHODS:%=--method %) --seeds 0-2
RESULT_labels := $(FEW:%=--task fv/%) --method icl --method site --method lora:n_epochs=10 --labels 10,50,200
RESULT_bbh := $(addprefix --task bbh/,boolean_expressions sports_understanding hyperbaton) $(METHODS:%=--method %)
RESULT_choice := $(addprefix --task ,anli/r1 anli/r2 anli/r3 mmlu_pro/math mmlu_pro/psychology mmlu_pro/other) \
	--method zero_shot --method icl --method site --n-shots 3
RESULT_ablations := $(FEW:%=--task fv/%) --method site $(ABLATIONS:%=--method site:%)
RESULT_ARGS = $(RESULT_$(1)) --data-dir "$(DATA)" --n-test 50 --out runs/results/$(1)

.PHONY: install demo test test-fast lint types notebooks notebook-outputs figures results results-page bench

install: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "site_interp needs Python 3.11 or newer as '$(PYTHON)'. Name one: make install PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch .venv/.installed

demo: install
	.venv/bin/site-interp $(DEMO)

lint: install
	$(RUN) ruff format --check
	$(RUN) ruff check
	.venv/bin/lint-imports

types: install
	$(RUN) mypy

test: lint types
	$(RUN) pytest -n 2
	$(RUN) pytest -m slow

test-fast: install
	$(RUN) pytest -n 2

notebooks: install
	$(RUN) pytest tests/test_notebooks.py -m "slow or not slow"

# Runs every cell with full settings (about half an hour) and keeps the outputs.
notebook-outputs: install
	.venv/bin/python notebooks/execute.py

# Twelve tasks of five kinds: letters, words, facts, translation, lists. Stopped, the same command continues.
figures: install
	@for verb in run patch transfer overlap; do .venv/bin/site-interp $$verb $(WHY) --plan || exit 1; done
	@for verb in run patch transfer overlap; do .venv/bin/site-interp $$verb $(WHY) || exit 1; done
	@ls runs/why/figures/*.png >/dev/null 2>&1 \
		|| { echo "No PNG was drawn: install chromium and run make figures again." >&2; exit 1; }
	rm -f figures/*.png figures/*.json
	mkdir -p figures
	cp $(foreach kind,$(FIGURES),runs/why/figures/$(kind).png runs/why/figures/$(kind).json) figures/

# Five parts; a stopped one continues. The records are kept in results/main, without any text of the tasks.
results: install
	@test -d "$(DATA)/fv" || { echo "make results needs DATA, a folder with fv/, bbh/, anli/ and mmlu_pro/: make results DATA=..." >&2; exit 1; }
	@set -e; $(foreach part,$(RESULT_PARTS),.venv/bin/site-interp run $(call RESULT_ARGS,$(part)) --plan;)
	@set -e; $(foreach part,$(RESULT_PARTS),.venv/bin/site-interp run $(call RESULT_ARGS,$(part));)
	.venv/bin/python benchmarks/results.py --keep runs/results --data-dir "$(DATA)"

# Tables, numbers and figures of docs/results.md from the kept records, in seconds.
results-page: install
	.venv/bin/python benchmarks/results.py

bench: install
	@shopt -s nullglob; files=(benchmarks/[a-z]*.py); \
	if [ $${#files[@]} -eq 0 ]; then echo "There are no benchmarks yet: benchmarks/ holds no Python file." >&2; exit 1; fi; \
	for file in "$${files[@]}"; do echo "$$file"; .venv/bin/python "$$file" || exit 1; done
