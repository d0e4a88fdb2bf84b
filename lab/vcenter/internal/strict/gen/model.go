package main

import (
	"fmt"
	"strings"
)

// model is pyVmomi's description of the API, by VMODL name.
type model struct {
	data     map[string]*dataType
	managed  map[string]*managedType
	versions map[string]version
	parents  map[string]map[string]bool
}

type dataType struct {
	vmodl, wsdl, parent, since string
	fields                     []field
}

type field struct {
	name, kind, since string
	optional          bool
}

type managedType struct {
	vmodl, wsdl, parent, since string
	methods                    []method
}

type method struct {
	vmodl, wsdl, since, privilege string
	params                        []field
}

type version struct{ namespace, id string }

// element is the type of one element of an array type.
func element(kind string) string { return strings.TrimSuffix(kind, "[]") }

func newModel() *model {
	return &model{
		data:     make(map[string]*dataType),
		managed:  make(map[string]*managedType),
		versions: make(map[string]version),
		parents:  make(map[string]map[string]bool),
	}
}

// read adds one of pyVmomi's table files.
func (m *model) read(text string) error {
	for n, line := range strings.Split(text, "\n") {
		c, ok, err := parseCall(line)
		if err == nil && ok {
			err = m.add(c)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return nil
}

func (m *model) add(c call) (err error) {
	defer func() {
		// The tables promise no form. A surprise shows as a failed type assertion; the generator stops with its place.
		if r := recover(); r != nil {
			err = fmt.Errorf("%s has another form than expected: %v", c.name, r)
		}
	}()
	text := func(i int) string { s, _ := c.args[i].(string); return s }
	list := func(i int) []any { l, _ := c.args[i].([]any); return l }
	switch c.name {
	case "AddVersion":
		m.versions[text(0)] = version{namespace: text(1), id: text(2)}
	case "AddVersionParent":
		if m.parents[text(0)] == nil {
			m.parents[text(0)] = make(map[string]bool)
		}
		m.parents[text(0)][text(1)] = true
	case "CreateDataType":
		d := &dataType{vmodl: text(0), wsdl: text(1), parent: text(2), since: text(3), fields: fields(list(4))}
		m.data[d.vmodl] = d
	case "CreateManagedType":
		d := &managedType{vmodl: text(0), wsdl: text(1), parent: text(2), since: text(3)}
		for _, x := range list(5) {
			t := x.([]any)
			privilege, _ := t[5].(string)
			d.methods = append(d.methods, method{
				vmodl: t[0].(string), wsdl: t[1].(string), since: t[2].(string),
				params: fields(t[3].([]any)), privilege: privilege,
			})
		}
		m.managed[d.vmodl] = d
	}
	return nil
}

func fields(list []any) []field {
	var out []field
	for _, x := range list {
		t := x.([]any)
		out = append(out, field{
			name: t[0].(string), kind: t[1].(string), since: t[2].(string), optional: t[3].(int)&optional != 0,
		})
	}
	return out
}

// ancestors are a data type and what it inherits from, itself first.
func (m *model) ancestors(vmodl string) []*dataType {
	var chain []*dataType
	for d := m.data[vmodl]; d != nil; d = m.data[d.parent] {
		chain = append(chain, d)
	}
	return chain
}

// id is the version as it appears on the wire.
func (m *model) id(since string) string { return m.versions[since].id }

// inOrder are all fields of a data type in the order of the wire. Those of the root type are left out: they are
// reserved, no client sends them and govmomi does not have them.
func (m *model) inOrder(vmodl string) []field {
	var out []field
	chain := m.ancestors(vmodl)
	for i := len(chain) - 1; i >= 0; i-- {
		if chain[i].vmodl == "vmodl.DynamicData" {
			continue
		}
		out = append(out, chain[i].fields...)
	}
	return out
}

// reachable are the data types that can stand in a request: the parameters of the chosen methods, their fields
// and subtypes. Events and faults only come from the server and are left out.
func (m *model) reachable(methods []method) map[string]bool {
	children := make(map[string][]string)
	for _, d := range m.data {
		children[d.parent] = append(children[d.parent], d.vmodl)
	}
	seen := make(map[string]bool)
	var visit func(vmodl string)
	visit = func(vmodl string) {
		d := m.data[vmodl]
		if d == nil || seen[vmodl] || vmodl == "vim.event.Event" || vmodl == "vmodl.MethodFault" {
			return
		}
		seen[vmodl] = true
		visit(d.parent)
		for _, f := range d.fields {
			visit(element(f.kind))
		}
		if vmodl == "vmodl.DynamicData" || vmodl == "vmodl.DataObject" {
			return
		}
		for _, c := range children[vmodl] {
			visit(c)
		}
	}
	for _, x := range methods {
		for _, p := range x.params {
			visit(element(p.kind))
		}
	}
	return seen
}
