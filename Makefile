# Thin on purpose: every target is a cargo xtask command, which does its own set-up.
.PHONY: help demo test check lab lab-down bench e2e image

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Shows the cloud controller manager at work on a real Kubernetes with a simulated vCenter
	@cargo xtask demo

test: ## Runs all tests, with set-up (NODES=skip leaves out what needs root)
	@cargo xtask test

check: ## Runs formatting, lints and unit tests
	@cargo xtask check

lab: ## Starts a real two-node Kubernetes on this machine
	@cargo xtask lab up

lab-down: ## Removes it again, with all that it made
	@cargo xtask lab down

bench: ## Measures the lab, the simulator, the vCenter client and the cloud controller manager
	@cargo xtask bench lab
	@cargo xtask bench vcenter
	@cargo xtask bench vsphere
	@cargo xtask bench ccm

e2e: ## Runs Kubernetes' storage suite against the CSI driver
	@cargo xtask e2e

image: ## Makes the drivers' container image and its bill of materials
	@cargo xtask image
