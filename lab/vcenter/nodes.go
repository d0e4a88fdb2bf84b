package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// placeNodes makes lab nodes of VMs. The directories differ from run to run, so they are given on the command line and
// not in the description.
func placeNodes(worlds []*world.World, assignments []string) error {
	for _, assignment := range assignments {
		name, disks, ok := strings.Cut(assignment, "=")
		if !ok || name == "" || disks == "" {
			return fmt.Errorf("-node %s: give it as VM=DIRECTORY", assignment)
		}
		path, err := filepath.Abs(disks)
		if err != nil {
			return fmt.Errorf("-node %s: %w", assignment, err)
		}
		if !placeNode(worlds, name, path) {
			return fmt.Errorf("-node %s: no description has a VM called %s", assignment, name)
		}
	}
	return nil
}

func placeNode(worlds []*world.World, name, disks string) bool {
	for _, w := range worlds {
		for i := range w.Datacenters {
			vms := w.Datacenters[i].VMs
			for j := range vms {
				if vms[j].Name == name {
					vms[j].Node = &world.Node{Disks: disks}
					return true
				}
			}
		}
	}
	return false
}
