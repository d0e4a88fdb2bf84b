package schema

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	_ "github.com/vmware/govmomi/cns/types"      // registers its types under their names
	_ "github.com/vmware/govmomi/pbm/types"      // the same
	_ "github.com/vmware/govmomi/ssoadmin/types" // the same
	"github.com/vmware/govmomi/vim25/types"
	_ "github.com/vmware/govmomi/vsan/types" // the same
	_ "github.com/vmware/govmomi/vslm/types" // the same
)

// Types looks up the types of one service. It keeps what reflection found, since every request needs it.
type Types struct {
	table     *Table
	namespace string // pbm, vslm, ...; prefix of the names the service registers
	lookup    types.Func
	objects   sync.Map // reflect.Type -> *Object
	methods   sync.Map // string -> *Method
	enums     sync.Map // reflect.Type -> []string
}

// NewTypes serves the namespace of a service, without the leading urn:.
func NewTypes(table *Table, namespace string) *Types {
	return &Types{table: table, namespace: namespace, lookup: types.TypeFunc()}
}

// Method is a call: its parameters, _this first, and what is known about it.
type Method struct {
	*Object
	Type reflect.Type
	On   string // kind of managed object that has it; empty if unknown
}

// Named finds a data type by its name on the wire, as the server will when it decodes the request.
func (s *Types) Named(name string) (reflect.Type, bool) {
	t, ok := s.lookup(s.namespace + ":" + name)
	if !ok {
		t, ok = s.lookup(name)
	}
	// govmomi also registers the interfaces of polymorphic types, which have no name on the wire.
	if !ok || strings.HasPrefix(name, "Base") && t.Name() != name {
		return nil, false
	}
	return t, true
}

// Default is the type the server decodes an element into that is declared as an interface and names no type. Some
// interfaces have none and would be left empty.
func (s *Types) Default(declared reflect.Type) (reflect.Type, bool) {
	if t, ok := s.lookup(s.namespace + ":" + declared.Name()); ok {
		return t, true
	}
	return s.lookup(declared.Name())
}

// Method finds a call by the name of its element.
func (s *Types) Method(name string) (*Method, bool) {
	if m, ok := s.methods.Load(name); ok {
		return m.(*Method), true
	}
	t, ok := s.request(name)
	if !ok || t.Kind() != reflect.Struct || strings.HasSuffix(name, "RequestType") {
		return nil, false
	}
	object := s.build(t, name, true)
	if len(object.Fields) == 0 || object.Fields[0].Name != "_this" {
		return nil, false
	}
	m := &Method{Object: object, Type: t}
	if facts := s.table.methods[name]; facts != nil {
		m.On, m.VMODL, m.Since = facts.on, facts.vmodl, facts.since
	}
	s.methods.Store(name, m)
	return m, true
}

// request finds the type of a call. Other than data types, calls are not shared between services. CNS belongs to
// vsan though most of its calls are registered without that prefix.
func (s *Types) request(name string) (reflect.Type, bool) {
	cns := strings.HasPrefix(name, "Cns")
	if s.namespace == "vim25" {
		if cns {
			return nil, false
		}
		return s.lookup(name)
	}
	t, ok := s.lookup(s.namespace + ":" + name)
	if !ok && s.namespace == "vsan" && cns {
		t, ok = s.lookup(name)
	}
	return t, ok
}

// Object describes a data type.
func (s *Types) Object(t reflect.Type) *Object {
	if o, ok := s.objects.Load(t); ok {
		return o.(*Object)
	}
	o := s.build(t, t.Name(), false)
	s.objects.Store(t, o)
	return o
}

func (s *Types) build(t reflect.Type, name string, method bool) *Object {
	o := &Object{Name: name, VMODL: name, Fields: fieldsOf(t)}
	var chain []*typeFacts
	if method {
		if m := s.table.methods[name]; m != nil {
			chain = append(chain, &m.typeFacts)
		}
	} else {
		for _, base := range lineage(t) {
			if facts := s.table.types[base]; facts != nil {
				chain = append(chain, facts)
			}
		}
		if facts := s.table.types[name]; facts != nil {
			o.VMODL, o.Since = facts.vmodl, facts.since
		}
	}
	for i := range o.Fields {
		// For fields pyVmomi does not have, and overwritten for the others.
		o.Fields[i].Since = s.table.noted(o.Fields[i].version)
	}
	for _, facts := range chain {
		o.apply(facts)
	}
	o.byName = make(map[string]int, len(o.Fields))
	for i := range o.Fields {
		o.byName[o.Fields[i].Name] = i
	}
	return o
}

// apply adds the facts of one type of the lineage to its fields.
func (o *Object) apply(facts *typeFacts) {
	place := func(name string) int {
		return slices.IndexFunc(o.Fields, func(f Field) bool { return f.Name == name })
	}
	for _, f := range facts.fields {
		i := place(f.name)
		if i < 0 {
			if f.simple != "" {
				field := Field{Name: f.name, Value: simple[f.simple], Since: f.since}
				field.Many = field.Kind == Opaque
				o.Fields = slices.Insert(o.Fields, place(f.after)+1, field)
			}
			continue
		}
		field := o.Fields[i]
		field.Ref = f.ref
		if f.since.Rank > 0 {
			field.Since = f.since
		}
		field.Required = (field.Required || f.required) && !f.optional
		field.Many = field.Many && !f.single
		field.Abstract = f.abstract
		o.Fields[i] = field
		if f.after != "" {
			o.Fields = slices.Delete(o.Fields, i, i+1)
			o.Fields = slices.Insert(o.Fields, place(f.after)+1, field)
		}
	}
}

// lineage names a type and the types it inherits from, itself first.
func lineage(t reflect.Type) []string {
	names := []string{t.Name()}
	for t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Anonymous {
		t = t.Field(0).Type
		names = append(names, t.Name())
	}
	return names
}

// Inherits tells whether a type may stand where another is declared.
func Inherits(t, declared reflect.Type) bool {
	if t == declared {
		return true
	}
	if declared.Kind() == reflect.Interface {
		return t.Implements(declared) || reflect.PointerTo(t).Implements(declared)
	}
	for t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Anonymous {
		if t = t.Field(0).Type; t == declared {
			return true
		}
	}
	return false
}

// DeclaredName is the name on the wire of a declared type: govmomi's interfaces are called Base and then the type.
func DeclaredName(t reflect.Type) string {
	if t.Kind() == reflect.Interface {
		return strings.TrimPrefix(t.Name(), "Base")
	}
	return t.Name()
}

// EnumValues are the values a string type may have.
func (s *Types) EnumValues(t reflect.Type) []string {
	if v, ok := s.enums.Load(t); ok {
		return v.([]string)
	}
	var values []string
	if list, ok := reflect.Zero(t).Interface().(interface{ Strings() []string }); ok {
		values = list.Strings()
	}
	s.enums.Store(t, values)
	return values
}

// simple are the names of XML Schema's types, for elements that hold anything and say what.
var simple = map[string]Value{
	"string":       {Kind: String},
	"anyURI":       {Kind: String},
	"boolean":      {Kind: Bool},
	"byte":         {Kind: Integer, Bits: 8},
	"short":        {Kind: Integer, Bits: 16},
	"int":          {Kind: Integer, Bits: 32},
	"long":         {Kind: Integer, Bits: 64},
	"float":        {Kind: Float, Bits: 32},
	"double":       {Kind: Float, Bits: 64},
	"dateTime":     {Kind: DateTime},
	"base64Binary": {Kind: Base64},
}

// Simple finds a type of XML Schema by its name without prefix.
func Simple(name string) (Value, bool) {
	v, ok := simple[name]
	return v, ok
}
