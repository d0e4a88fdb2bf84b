package world

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"reflect"
	"strings"
)

//go:embed default.yaml
var defaultYAML []byte

// DefaultYAML is the text of the default description, as an example to start from.
func DefaultYAML() []byte { return bytes.Clone(defaultYAML) }

// Default is the lab's world: two datacenters, two zones, shared and local storage, and the two lab nodes as VMs.
func Default() (*World, error) {
	worlds, err := Parse(bytes.NewReader(defaultYAML))
	if err != nil {
		return nil, fmt.Errorf("the built-in description is wrong: %w", err)
	}
	return worlds[0], nil
}

// Parse reads a description: one YAML document per vCenter. It reports all mistakes at once, as Problems.
func Parse(in io.Reader) ([]*World, error) {
	nodes, broken := documents(in)
	if broken != nil {
		return nil, Problems{*broken}
	}
	if len(nodes) == 0 {
		return nil, Problems{{Line: 1, Field: "description", Text: "is empty; it needs at least one datacenter"}}
	}
	var worlds []*World
	var problems Problems
	names := map[string]int{}
	for _, node := range nodes {
		w := new(World)
		s := &source{lines: map[string]int{}}
		s.decode(node.Content[0], "", reflect.ValueOf(w).Elem())
		if w.Name == "" {
			w.Name = "vcenter"
			if len(worlds) > 0 {
				w.Name = fmt.Sprintf("vcenter-%d", len(worlds)+1)
			}
		}
		if line, taken := names[w.Name]; taken {
			s.complain("name", "%q is the name of the vCenter in line %d too", w.Name, line)
		}
		names[w.Name] = node.Content[0].Line
		if len(s.problems) == 0 {
			// Misspelt fields make the checks complain about what is missing; the misspelling alone says more.
			(&checker{source: s, world: w}).check()
		}
		problems = append(problems, s.sorted()...)
		worlds = append(worlds, w)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	for _, w := range worlds {
		w.complete()
		w.Grow(w.Generate.VMs)
	}
	return worlds, nil
}

// splitPath cuts an inventory path into its names.
func splitPath(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
