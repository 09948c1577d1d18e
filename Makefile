# What a contributor and CI run. `make` alone lists it.

GO ?= go
# Tools are run at a version, not installed: no go.mod of ours knows them. v0.8.2 is the
# release 2026.2.2.
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Per test binary. Go's own default, said here because CI counts on it.
TEST_TIMEOUT ?= 10m
FUZZTIME ?= 10s
SEEDS ?=
DURATION ?= 60s

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
.PHONY: help test check fmt vet staticcheck tidy bench demo fuzz sim soak image cover

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

bench: ## run the benchmarks, then print the comparison with other libraries (bench/); 5 minutes
	$(call in_each,$(filter . bench,$(MODULES)),$(GO) test -run '^$$' -bench . -benchtime 100ms -benchmem ./...)
	cd bench && $(GO) run ./cmd/compare

demo: ## run the demo on redis-server processes of its own
	$(GO) run ./cmd/redlock demo

fuzz: ## fuzz each Fuzz function for FUZZTIME (10s)
	@set -e; for package in $$($(GO) list ./...); do \
		names=$$($(GO) test -list '^Fuzz' $$package); \
		for name in $$(echo "$$names" | grep '^Fuzz' || true); do \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

sim: ## run the simulation: SEEDS=1000 (so many), 17-17 (from-to) or "1 2 3"
	REDLOCK_SIM_SEEDS="$(SEEDS)" $(GO) test -count=1 -v -timeout 60m -run TestSimulation .

soak: ## run the soak for DURATION (60s)
	cd integration && $(GO) run ./cmd/soak -duration $(DURATION)

image: ## build the Redis image for the container tests, without a registry
	integration/image/build.sh

cover: ## print the test coverage of the root module; cover.out has the lines
	$(GO) test -count=1 -timeout $(TEST_TIMEOUT) -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1
