# Each target does all of its own set-up in .venv and is quick the second time.
.PHONY: demo learn test test-full test-slow docs check fix bench bench-learning mutation mutants night release clean

demo: .venv/base
	@.venv/bin/shikisha models pull smollm2-135m
	@.venv/bin/shikisha demo

learn: .venv/learn  # make learn LOG=outcomes/ [OUT=our.policy] [WORKERS=a,b,c]
	@.venv/bin/shikisha learn "$(LOG)" --out "$(or $(OUT),our.policy)" --page "$(basename $(or $(OUT),our.policy)).html" $(if $(WORKERS),--workers "$(WORKERS)")

test: .venv/dev  # about six minutes on two cores
	@scripts/test

test-full: .venv/dev  # what CI runs: long property and process tests too
	@scripts/test --full

test-slow: .venv/dev
	@.venv/bin/pytest -m slow

check: .venv/dev
	@scripts/check

fix: .venv/dev
	@.venv/bin/ruff check --fix-only -q . && .venv/bin/ruff format -q .

.venv/base .venv/learn .venv/train .venv/dev .venv/night: pyproject.toml scripts/setup $(wildcard requirements/*.txt plugins/*/pyproject.toml)
	@scripts/setup $(notdir $@)

bench: .venv/dev
	@for each in startup parse engine load journal recorded agents grading code_grader sandbox counting evaluation serving_load; do .venv/bin/python benchmarks/$$each.py || exit 1; echo; done

bench-learning: .venv/dev  # fetches other people's logs into CACHE=~/.cache/shikisha-strangers; about half an hour
	@.venv/bin/python benchmarks/strangers.py "$(or $(CACHE),$(HOME)/.cache/shikisha-strangers)"

mutation: .venv/dev  # small wrong edits that no test notices; some 40 minutes, less with EACH=10
	@.venv/bin/python benchmarks/mutation.py --each $(or $(EACH),30)

mutants: .venv/dev  # the named ones of tests/project/mutants.toml; each must make its test fail
	@.venv/bin/python benchmarks/mutation.py --named

night: .venv/night  # failpoints, power loss, a soak, fuzzing: two and a half hours, or MINUTES=10
	@scripts/night $(MINUTES)

docs: .venv/dev  # the documentation, as build/site/index.html; needs no network
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet

release: .venv/dev  # the wheel, built twice and compared, and what it is made of (CycloneDX), in dist/
	@scripts/wheel && scripts/sbom

clean:
	rm -rf .venv
