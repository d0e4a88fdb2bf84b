package schema

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// Kind says how the content of an element is to be read.
type Kind int

// What an element can hold.
const (
	Opaque Kind = iota // not described by a schema, nothing to check
	String
	Bool
	Integer
	Float
	DateTime
	Base64
	Enum
	Reference // ManagedObjectReference
	Struct    // data object
	Any       // xsd:anyType
)

// Value is the declared type of an element.
type Value struct {
	Kind Kind
	Type reflect.Type // never a pointer or a slice
	Bits int          // of an Integer or Float
	Poly bool         // declared as an interface: the element must name its type
	// Abstract is the declared type where govmomi has the only subtype instead: the element must name that.
	Abstract string
}

// Field is one element of a data object or one parameter of a method.
type Field struct {
	Value
	Name     string
	Many     bool
	Required bool
	Since    Since
	Ref      string // kind of managed object a Reference must name; empty if any

	version string // govmomi's own note of the first vim25 version; it has none for the other services
}

// Object is a data type or, with its parameters as fields, a method. Fields are in the order of the wire,
// those of the base types first.
type Object struct {
	Name   string
	VMODL  string
	Since  Since
	Fields []Field
	byName map[string]int
}

// Version is govmomi's note of the first vim25 version that has the field; empty if there is none.
func (f *Field) Version() string { return f.version }

// Index is the place of a field; -1 if there is none of that name.
func (o *Object) Index(name string) int {
	if i, ok := o.byName[name]; ok {
		return i
	}
	return -1
}

var (
	referenceType = reflect.TypeFor[types.ManagedObjectReference]()
	timeType      = reflect.TypeFor[time.Time]()
	byteSliceType = reflect.TypeFor[types.ByteSlice]()
	bytesType     = reflect.TypeFor[[]byte]()
	readsItself   = reflect.TypeFor[xml.Unmarshaler]()
)

// ValueOf tells how a Go type of govmomi appears on the wire.
func ValueOf(t reflect.Type) Value {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := Value{Type: t}
	switch {
	case t == referenceType:
		v.Kind = Reference
		return v
	case t == timeType:
		v.Kind = DateTime
		return v
	case t == bytesType:
		v.Kind = Base64
		return v
	case reflect.PointerTo(t).Implements(readsItself):
		return v
	}
	switch t.Kind() {
	case reflect.String:
		v.Kind = String
		if _, ok := t.MethodByName("Strings"); ok {
			v.Kind = Enum
		}
	case reflect.Bool:
		v.Kind = Bool
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.Kind, v.Bits = Integer, t.Bits()
	case reflect.Int:
		v.Kind, v.Bits = Integer, 64
	case reflect.Float32, reflect.Float64:
		v.Kind, v.Bits = Float, t.Bits()
	case reflect.Struct:
		v.Kind = Struct
	case reflect.Interface:
		v.Kind = Any
		if t.NumMethod() > 0 {
			v.Kind, v.Poly = Struct, true
		}
	}
	return v
}

// fieldsOf lists the elements of a struct in the order of the wire.
func fieldsOf(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("xml"), ",")
		if f.Anonymous && tag[0] == "" {
			if base := f.Type; base.Kind() == reflect.Struct {
				fields = append(fields, fieldsOf(base)...)
			}
			continue
		}
		if tag[0] == "-" || tag[0] == "" || !f.IsExported() || slices.Contains(tag[1:], "attr") {
			continue
		}
		field := newField(tag[0], f.Type, tag[1:])
		field.version = f.Tag.Get("vim")
		fields = append(fields, field)
	}
	return fields
}

func newField(name string, t reflect.Type, options []string) Field {
	f := Field{Name: name}
	optional := slices.Contains(options, "omitempty") || t.Kind() == reflect.Pointer
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == byteSliceType:
		f.Many, f.Value = true, Value{Kind: Integer, Bits: 8, Type: t.Elem()}
	case t.Kind() == reflect.Slice && t != bytesType:
		f.Many, f.Value = true, ValueOf(t.Elem())
	default:
		f.Value = ValueOf(t)
	}
	// Without the option govmomi's own client names no type, so it must not be asked for.
	f.Poly = f.Poly && slices.Contains(options, "typeattr")
	f.Required = !optional
	return f
}
