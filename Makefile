# Forebay. `make` prints what there is.

.DEFAULT_GOAL := help
.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: generate
generate: ## Regenerate Go code from every .proto file
	@go run -C tools ./genproto $(CURDIR)

.PHONY: generate-check
generate-check: ## Fail if generated files are not current
	@go run -C tools ./genproto -check $(CURDIR)
