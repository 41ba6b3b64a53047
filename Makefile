# Development commands. `make` formats, lints and tests what users get; .ci/run is what must pass before a change lands.
lint := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
vuln := golang.org/x/vuln/cmd/govulncheck@v1.1.4

.PHONY: all fmt lint test race conformance fuzz bench generate house cross vuln

all: fmt lint test

fmt:
	gofmt -w $$(git ls-files '*.go')

lint: ## golangci-lint over every product module
	go vet work
	for m in . stores gateway otelmcp examples; do (cd $$m && go run $(lint) run ./...) || exit 1; done

test: ## the tests of every product module
	go test work

race:
	go test -race -shuffle=on work

conformance: ## the official suite and interoperability; needs Node and npm
	conformance/run

fuzz: ## each fuzz target for FUZZTIME
	.ci/fuzz $(or $(FUZZTIME),30s)

bench: ## ratios to bare handlers and other SDKs; needs a quiet machine
	cd bench && go test ./... && go run . -quick

generate: ## docs/support.md, the code of templates and api/*.txt
	go generate ./internal/wire
	.ci/templates
	go test . -run TestAPIIsGolden -update

house: ## the rules of the code base that are counted
	.ci/house

cross: ## builds and vets for every supported system
	.ci/cross

vuln: ## known vulnerabilities in dependencies; needs the vulnerability database
	for m in . stores gateway otelmcp; do (cd $$m && go run $(vuln) ./...) || exit 1; done
