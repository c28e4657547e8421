# What people and CI do with this repository. Each target is a script or a cargo command of the same name: read that for
# how it works.

.DEFAULT_GOAL := help
.PHONY: help run test lint ci soak deb container bootstrap bench experiments experiment

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## Install what is missing, build, and start Tidemark in the foreground
	@scripts/run

test: ## Install what is missing, and run every test
	@scripts/test

lint: ## Check format, clippy, the dependency table, and the rules of CONTRIBUTING.md
	@scripts/lint

ci: ## All that CI does: tests and lints
	@.ci/run

soak: ## Run hostile clients for ten minutes, goals in virtual time at the whole scale, ten thousand failing flash devices, a million schedules of cachelets
	@scripts/soak

deb: ## Build a Debian package, and try it in a folder
	@scripts/deb

container: ## Try the container file by buildah, with stand-ins for the images that it begins with
	@scripts/container

bootstrap: ## Build the functions' program as one static file, and try it
	@scripts/bootstrap

bench: ## Compare with memcached and Redis; writes docs/performance.md
	@scripts/bench

experiments: ## List the experiments with their durations
	@scripts/experiment

experiment: ## Run one experiment: make experiment NAME=...
	@test -n "$(NAME)" || { echo "which one? make experiment NAME=..., see make experiments" >&2; exit 2; }
	@scripts/experiment "$(NAME)"
