package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"vsphere-drivers.example/lab/vcenter/internal/strict/schema"
)

// comparison counts and names the differences between pyVmomi's tables and govmomi's structs.
type comparison struct {
	id                             func(since string) string // of a VMODL version
	compared, same                 int
	missing                        []string // types and methods govmomi lacks
	order, onlyGo, onlyPy          []string
	pyOptional, goOptional, arrays []string
	versions                       []string
}

// namespace is the service in whose name govmomi registers what exists since a VMODL version.
func namespace(since string) string {
	switch top, _, _ := strings.Cut(since, "."); top {
	case "pbm", "vslm", "vsan":
		return top
	default:
		return "vim25"
	}
}

// simpleTypes are pyVmomi's names of simple types that a field govmomi lacks may have.
var simpleTypes = map[string]string{
	"string": "string", "boolean": "boolean", "int": "int", "long": "long", "vmodl.DateTime": "dateTime",
}

// object compares one type or method and returns the marks that the differences need: ? for a field only govmomi
// requires, ! for one only pyVmomi requires, ~ for an array only govmomi has, + and a name for a field that stands
// elsewhere or is missing.
func (c *comparison) object(name string, o *schema.Object, fields []field) map[string]string {
	c.compared++
	before := len(c.order) + len(c.onlyGo) + len(c.onlyPy) + len(c.arrays)
	marks := make(map[string]string)
	previous := ""
	follows := make(map[string]string)
	var common []string
	for _, f := range fields {
		i := o.Index(f.name)
		if i < 0 {
			c.onlyPy = append(c.onlyPy, name+"."+f.name+" "+f.kind+" "+f.since)
			// Only CNS matters here: the others are newer than any release we simulate, or vSAN's own.
			if strings.HasPrefix(name, "Cns") {
				kind := simpleTypes[f.kind]
				if kind == "" {
					kind = "opaque"
				}
				marks[f.name] = "+" + previous + ":" + kind
				previous = f.name
			}
			continue
		}
		common = append(common, f.name)
		follows[f.name] = previous
		previous = f.name
		g := o.Fields[i]
		if many := strings.HasSuffix(f.kind, "[]"); g.Many != many {
			if g.Many {
				marks[f.name] += "~"
			}
			c.arrays = append(c.arrays, name+"."+f.name+" "+f.kind)
		}
		if v := c.id(f.since); g.Version() != "" && v != g.Version() {
			c.versions = append(c.versions, fmt.Sprintf("%s.%s pyVmomi %s govmomi %s", name, f.name, v, g.Version()))
		}
		switch {
		case g.Required && f.optional:
			marks[f.name] += "?"
			c.pyOptional = append(c.pyOptional, name+"."+f.name)
		case !g.Required && !f.optional:
			marks[f.name] += "!"
			c.goOptional = append(c.goOptional, name+"."+f.name)
		}
	}
	var inGo []string
	for _, g := range o.Fields {
		if g.Name == "_this" {
			continue
		}
		if slices.Contains(common, g.Name) {
			inGo = append(inGo, g.Name)
		} else {
			c.onlyGo = append(c.onlyGo, name+"."+g.Name)
		}
	}
	if !slices.Equal(common, inGo) {
		c.order = append(c.order, fmt.Sprintf("%s\n    pyVmomi %v\n    govmomi %v", name, common, inGo))
		for _, f := range common[1:] {
			marks[f] += "+" + follows[f]
		}
	}
	if before == len(c.order)+len(c.onlyGo)+len(c.onlyPy)+len(c.arrays) {
		c.same++
	}
	return marks
}

func (c *comparison) report(w io.Writer) {
	fmt.Fprintf(w, "%d types and methods compared, %d with the same fields in the same order\n", c.compared, c.same)
	for _, part := range []struct {
		title string
		lines []string
	}{
		{"order differs", c.order},
		{"field only in govmomi", c.onlyGo},
		{"field only in pyVmomi", c.onlyPy},
		{"array in one, single in the other", c.arrays},
		{"first version differs", c.versions},
		{"types and methods govmomi lacks", c.missing},
		{"govmomi always sends it, pyVmomi says optional", c.pyOptional},
		{"govmomi may leave it out, pyVmomi says required", c.goOptional},
	} {
		slices.Sort(part.lines)
		fmt.Fprintf(w, "\n%s: %d\n", part.title, len(part.lines))
		for _, line := range part.lines {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}
