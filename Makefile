# Thin on purpose: every target is a cargo xtask command, which does its own set-up.
.PHONY: help demo test check lab lab-down bench e2e image

# A small program that shows progress while cargo and Go build what the command needs.
# Where it is not built yet, cargo shows its own progress.
QUIET = $(if $(wildcard $(or $(CARGO_TARGET_DIR),target)/debug/setup),--quiet)
XTASK = cargo run $(QUIET) --package components --

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Shows the cloud controller manager at work on a real Kubernetes with a simulated vCenter
	@echo "A new machine needs about ten minutes, most of them to compile Kubernetes, and has its first node after six; later runs need two."
	@$(XTASK) demo

test: ## Runs all tests, with set-up (NODES=skip leaves out what needs root)
	@$(XTASK) test

check: ## Runs formatting, lints and unit tests
	@$(XTASK) check

lab: ## Starts a real two-node Kubernetes on this machine
	@$(XTASK) lab up

lab-down: ## Removes it again, with all that it made
	@$(XTASK) lab down

bench: ## Measures the lab, the simulator, the vCenter client and the drivers
	@$(XTASK) bench lab
	@$(XTASK) bench vcenter
	@$(XTASK) bench vsphere
	@$(XTASK) bench ccm
	@$(XTASK) bench csi

e2e: ## Runs Kubernetes' storage suite against the CSI driver
	@$(XTASK) e2e

image: ## Makes the drivers' container image and its bill of materials
	@$(XTASK) image
