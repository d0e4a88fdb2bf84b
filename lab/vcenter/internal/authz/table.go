package authz

import (
	_ "embed"
	"fmt"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

//go:embed privileges.txt
var privilegeTable string

// row is what vCenter checks for one method.
type row struct {
	this      string // privilege on the object itself, empty when none beyond System.View
	arguments []argumentPrivilege
}

type argumentPrivilege struct{ name, privilege string }

// requirement is one privilege on one object.
type requirement struct {
	object    types.ManagedObjectReference
	privilege string
}

func readRows() (map[string]row, error) {
	rows := map[string]row{}
	for n, line := range strings.Split(privilegeTable, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("privileges.txt:%d: want type, method and privilege, got %q", n+1, line)
		}
		r := row{}
		if fields[2] != "-" {
			r.this = fields[2]
		}
		for _, argument := range fields[3:] {
			name, privilege, ok := strings.Cut(argument, "=")
			if !ok {
				return nil, fmt.Errorf("privileges.txt:%d: want argument=privilege, got %q", n+1, argument)
			}
			r.arguments = append(r.arguments, argumentPrivilege{name, privilege})
		}
		rows[fields[1]] = r
	}
	return rows, nil
}

// fixed are the requirements the table states for a call. Every call needs at least to see its object.
func (a *Authz) fixed(m *simulator.Method) []requirement {
	r := a.rows[m.Name]
	needs := []requirement{{m.This, privView}}
	if r.this != "" {
		needs = append(needs, requirement{m.This, r.this})
	}
	for _, arg := range r.arguments {
		for _, ref := range argument(m.Body, arg.name) {
			needs = append(needs, requirement{ref, arg.privilege})
		}
	}
	return needs
}

// argument reads the object references of one argument of a decoded request.
func argument(body any, name string) []types.ManagedObjectReference {
	value := reflect.Indirect(reflect.ValueOf(body))
	if value.Kind() != reflect.Struct || name == "" {
		return nil
	}
	field := value.FieldByName(strings.ToUpper(name[:1]) + name[1:])
	if !field.IsValid() {
		return nil
	}
	switch v := field.Interface().(type) {
	case types.ManagedObjectReference:
		return []types.ManagedObjectReference{v}
	case *types.ManagedObjectReference:
		if v != nil {
			return []types.ManagedObjectReference{*v}
		}
	case []types.ManagedObjectReference:
		return v
	}
	return nil
}
