# What a contributor and CI run. `make` alone lists it.

GO ?= go
# Tools are run at a version, not installed: no go.mod of ours knows them. Staticcheck v0.8.2 is the
# release 2026.2.2.
GOVULNCHECK ?= golang.org/x/vuln/cmd/govulncheck@v1.1.4
APIDIFF ?= golang.org/x/exp/cmd/apidiff@v0.0.0-20250620022241-b7579e27df2b
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Per test binary.
TEST_TIMEOUT ?= 20m
FUZZTIME ?= 10s
SEEDS ?=
DEPTH ?= 1
MUTANTS ?=
MUTANTS_FOR ?= 0
DURATION ?= 60s
# What the API is compared with: the last release, or the last commit where there is none.
BASE ?= $(shell git describe --tags --abbrev=0 2>/dev/null || git rev-parse HEAD^)
ARGS ?=

# The root module first, then every module nested in it, those added later too. bench/
# is measured, not tested, but checked like the others.
MODULES := . $(patsubst %/go.mod,%,$(sort $(wildcard */go.mod)))
TESTED := $(filter-out bench,$(MODULES))

# $(call in_each,modules,command) runs the command in each module, in all of them also
# after one has failed, and fails if one did.
define in_each
@failed=; \
for module in $(1); do \
	echo "== $$module: $(2)"; \
	(cd $$module && $(2)) || failed="$$failed $$module"; \
done; \
if [ -n "$$failed" ]; then echo "failed in:$$failed" >&2; exit 1; fi
endef

.DEFAULT_GOAL := help
.PHONY: help test check fmt vet staticcheck tidy mutants mutants-table explore bench demo fuzz vuln apidiff sim soak image cover

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## run all tests with the race detector, in every module but bench/
	$(call in_each,$(TESTED),$(GO) test -race -count=1 -timeout $(TEST_TIMEOUT) ./...)

check: fmt vet staticcheck tidy ## gofmt, go vet, staticcheck and go mod tidy, in every module

fmt:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not gofmt'ed:" >&2; echo "$$unformatted" >&2; exit 1; fi

vet:
	$(call in_each,$(MODULES),$(GO) vet ./...)

staticcheck:
	$(call in_each,$(MODULES),$(GO) run $(STATICCHECK) ./...)

tidy:
	$(call in_each,$(MODULES),$(GO) mod tidy -diff)

mutants: ## break the library in every way that internal/mutants lists: a test must notice each; MUTANTS=regexp of names, MUTANTS_FOR=8m as many as that
	$(GO) run ./internal/mutants -run '$(MUTANTS)' -for '$(MUTANTS_FOR)'

explore: ## take lives through every order of events, DEPTH levels deeper (1) than make test does
	REDLOCK_EXPLORE_DEPTH=$(DEPTH) $(GO) test -count=1 -v -timeout 30m -run 'TestExplore$$' .

mutants-table: ## write the table of mutations in docs/safety.md
	$(GO) run ./internal/mutants -table

bench: ## run the benchmarks, then the comparison with other libraries, with plots in bench/out; ARGS="-run nodes=5"; some 9 minutes where nothing else runs
	$(GO) test -run '^$$' -bench . -benchtime 100ms -benchmem ./redlocktest
	cd bench && $(GO) run ./cmd/compare -out out $(ARGS)

demo: ## run the demo on redis-server processes of its own
	$(GO) run ./cmd/redlock demo

fuzz: ## fuzz each Fuzz function for FUZZTIME (10s)
	@set -e; for package in $$($(GO) list ./...); do \
		names=$$($(GO) test -list '^Fuzz' $$package); \
		for name in $$(echo "$$names" | grep '^Fuzz' || true); do \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

vuln: ## look up known vulnerabilities of what the library uses; needs https://vuln.go.dev
	@out=$$($(GO) run $(GOVULNCHECK) ./... 2>&1); status=$$?; echo "$$out"; \
	if echo "$$out" | grep -q 'fetching vulnerabilities'; then \
		echo "make vuln: the database at https://vuln.go.dev cannot be reached from here: nothing was checked" >&2; fi; \
	exit $$status

apidiff: ## show how the API differs from BASE (the last release, or the last commit); fails if it breaks users
	@set -e; old=$$(mktemp -d); trap 'rm -rf "$$old"' EXIT; \
	git archive $(BASE) | tar -x -C "$$old"; mkdir "$$old/.export"; incompatible=; \
	for package in . ./redlocktest; do \
		file=$$old/.export/$$(basename $$(readlink -f $$package)); \
		(cd "$$old" && $(GO) run $(APIDIFF) -w "$$file" $$package); \
		echo "== $$package against $(BASE)"; \
		$(GO) run $(APIDIFF) "$$file" $$package; \
		if [ -n "$$($(GO) run $(APIDIFF) -incompatible "$$file" $$package)" ]; then incompatible=1; fi; \
	done; \
	if [ -n "$$incompatible" ]; then echo "make apidiff: users of $(BASE) would have to change" >&2; exit 1; fi

sim: ## run the simulation: SEEDS=1000 (so many), 17-17 (from-to) or "1 2 3"
	REDLOCK_SIM_SEEDS="$(SEEDS)" $(GO) test -count=1 -v -timeout 60m -run TestSimulation .

soak: ## run the soak for DURATION (60s)
	cd integration && $(GO) run ./cmd/soak -duration $(DURATION)

image: ## build the Redis image for the container tests, without a registry
	integration/image/build.sh

cover: ## print the test coverage of the root module; cover.out has the lines
	$(GO) test -count=1 -timeout $(TEST_TIMEOUT) -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1
