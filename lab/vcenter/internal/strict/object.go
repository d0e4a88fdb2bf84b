package strict

import (
	"encoding/xml"
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/strict/schema"
)

// parameters reads the arguments of a call, the object it is made on first.
func (d *document) parameters(m *schema.Method) *refusal {
	start, ok, refused := d.element()
	if refused != nil {
		return refused
	}
	if !ok {
		return refuse("Required parameter _this is missing")
	}
	if start.Name.Local != "_this" {
		return refuse("Got <%s> tag when expecting <_this> tag", clip(start.Name.Local))
	}
	if d.call.this, refused = d.reference(start, m.On); refused != nil {
		return refused
	}
	return d.fields(m.Object, 1, func(missing string) string { return "Required parameter " + missing + " is missing" })
}

// fields reads the elements of a data object or the parameters of a call from the given place on, in their order.
func (d *document) fields(o *schema.Object, from int, missing func(string) string) *refusal {
	at := from // fields before this place have had their chance
	var last *schema.Field
	var absent []string
	for {
		start, ok, refused := d.element()
		if refused != nil {
			return refused
		}
		if !ok {
			break
		}
		i := o.Index(start.Name.Local)
		if i < 0 || !d.ours(start.Name.Space) || !d.release.Knows(o.Fields[i].Since) {
			return unexpected(start)
		}
		f := &o.Fields[i]
		repeated := f.Many && f == last
		if i < at && !repeated {
			return unexpected(start)
		}
		if !repeated {
			absent = d.required(absent, o.Fields[at:i], missing)
			at, last = i+1, f
		}
		if refused := d.value(start, f.Value, f.Ref); refused != nil {
			return refused.inside("while parsing property %q of static type %s", f.Name, staticType(f))
		}
	}
	if absent = d.required(absent, o.Fields[at:], missing); len(absent) > 0 {
		return refuse("%s", strings.Join(absent, "\n"))
	}
	return nil
}

// required adds the fields that must not be left out.
func (d *document) required(absent []string, fields []schema.Field, missing func(string) string) []string {
	for i := range fields {
		if f := &fields[i]; f.Required && d.release.Knows(f.Since) {
			absent = append(absent, missing(f.Name))
		}
	}
	return absent
}

// ours tells whether an element inside a call may have a namespace. Types of vim25 occur in the other services.
func (d *document) ours(namespace string) bool {
	return namespace == "urn:vim25" || slices.Contains(d.namespaces, namespace)
}

// staticType is the declared type of a field in vCenter's messages.
func staticType(f *schema.Field) string {
	name := "string"
	switch {
	case f.Kind == schema.Any:
		name = "anyType"
	case f.Kind == schema.Reference && f.Ref != "":
		name = f.Ref
	case f.Kind == schema.Struct || f.Kind == schema.Reference || f.Kind == schema.Enum:
		name = schema.DeclaredName(f.Type)
	case f.Kind != schema.Opaque:
		name = simpleName(f.Value)
	}
	if f.Many {
		return "ArrayOf" + strings.ToUpper(name[:1]) + name[1:]
	}
	return name
}

// value checks the content of an element against its declared type.
func (d *document) value(start xml.StartElement, declared schema.Value, ref string) *refusal {
	line, col := d.line, d.col
	end := d.xml.InputOffset()
	named, hasType := xsiType(start)
	if declared.Kind != schema.Reference && declared.Kind != schema.Opaque {
		if refused := attributes(start); refused != nil && local(named) != "ManagedObjectReference" {
			return refused
		}
	}
	switch declared.Kind {
	case schema.Opaque:
		return d.skip()
	case schema.Reference:
		if hasType && local(named) != "ManagedObjectReference" {
			return unknownType(named)
		}
		_, refused := d.reference(start, ref)
		return refused
	case schema.Any:
		if !hasType {
			return refuse("Element tag %q of type anyType has no xsi:type", start.Name.Local)
		}
		actual, ok := d.named(named)
		if !ok {
			return unknownType(named)
		}
		if actual.Kind == schema.Any { // xsd:anyType names nothing
			return unknownType(named)
		}
		return d.value(start, actual, "")
	case schema.Struct:
		t, refused := d.structType(start, declared, named, hasType)
		if refused != nil {
			return refused
		}
		if !hasType && declared.Poly {
			d.call.untyped = append(d.call.untyped, untyped{end, t.Name()})
		}
		o := d.service.types.Object(t)
		if !d.release.Knows(o.Since) {
			return unknownType(o.Name)
		}
		missing := func(field string) string {
			return "Required property " + field + " is missing from data object of type " + o.Name
		}
		if refused := d.fields(o, 0, missing); refused != nil {
			return refused.inside("while parsing serialized DataObject of type %s\n%s", o.VMODL, place(line, col))
		}
		return nil
	}
	if hasType {
		if actual, ok := d.named(named); !ok || !fits(actual, declared) {
			return unknownType(named)
		}
	}
	text, refused := d.text()
	if refused == nil {
		refused = d.simple(text, declared)
	}
	return refused
}

// structType finds the type of a data object: the one it names, or else the declared one.
func (d *document) structType(start xml.StartElement, declared schema.Value, named string, hasType bool) (reflect.Type, *refusal) {
	if !hasType {
		if t, ok := d.declaredType(declared); ok {
			return t, nil
		}
		name := declared.Abstract
		if name == "" {
			name = schema.DeclaredName(declared.Type)
		}
		return nil, refuse("Element tag %q of abstract type %s has no xsi:type", start.Name.Local, name)
	}
	if local(named) == declared.Type.Name() && declared.Type.Kind() == reflect.Struct {
		return declared.Type, nil
	}
	t, ok := d.service.types.Named(local(named))
	if !ok || t.Kind() != reflect.Struct || !d.release.Knows(d.service.types.Object(t).Since) {
		return nil, unknownType(named)
	}
	if !schema.Inherits(t, declared.Type) {
		return nil, refuse("Type %s is not a subtype of %s", t.Name(), schema.DeclaredName(declared.Type))
	}
	return t, nil
}

// declaredType is the type of a data object that names none; ok is false if that is abstract.
func (d *document) declaredType(declared schema.Value) (t reflect.Type, ok bool) {
	switch {
	case declared.Abstract != "":
		return nil, false
	case declared.Type.Kind() != reflect.Interface:
		return declared.Type, true
	case !declared.Poly:
		return d.service.types.Default(declared.Type)
	}
	t, ok = d.service.types.Named(schema.DeclaredName(declared.Type))
	if !ok || t.Kind() != reflect.Struct {
		return nil, false
	}
	return t, !d.gate.table.Abstract(d.service.types.Object(t))
}

// named finds the type an element says it has.
func (d *document) named(name string) (schema.Value, bool) {
	if prefix, rest, found := strings.Cut(name, ":"); found && prefix != "" {
		if v, ok := schema.Simple(rest); ok {
			return v, true
		}
	}
	t, ok := d.service.types.Named(local(name))
	if !ok {
		return schema.Value{}, false
	}
	return schema.ValueOf(t), true
}

// fits tells whether a simple value may call itself by another type: an enumeration's values are strings.
func fits(actual, declared schema.Value) bool {
	if declared.Kind == schema.Enum {
		return actual.Kind == schema.String || actual.Type == declared.Type
	}
	return actual.Kind == declared.Kind && actual.Bits == declared.Bits
}

// reference reads a managed object reference to an object of the given kind.
func (d *document) reference(start xml.StartElement, kind string) (types.ManagedObjectReference, *refusal) {
	line, col := d.line, d.col
	var ref types.ManagedObjectReference
	hasType := false
	for _, a := range start.Attr {
		if a.Name.Space == "" && a.Name.Local == "type" {
			ref.Type, hasType = a.Value, true
		}
	}
	// The kinds of some services are not in the table; those are the server's to judge.
	wrong := ref.Type == "" || kind != "" && d.gate.table.IsManaged(kind, d.release) &&
		(!d.gate.table.IsManaged(ref.Type, d.release) || !d.gate.table.Descends(ref.Type, kind))
	if wrong {
		refused := refuse("Error processing attribute %q with value %q", "type", clip(ref.Type))
		if !hasType {
			refused = refuse("Attribute %q is missing", "type")
		}
		if kind == "" {
			kind = "ManagedObject"
		}
		return ref, refused.inside("while parsing MoRef for ManagedObject of type %s\n%s", d.gate.table.VMODL(kind), place(line, col))
	}
	var refused *refusal
	ref.Value, refused = d.text()
	return ref, refused
}

// attributes refuses those an element of this kind does not have. Foreign namespaces are let through, and so is the
// version pyVmomi writes on parameters.
func attributes(start xml.StartElement) *refusal {
	for _, a := range start.Attr {
		if a.Name.Space == "" && a.Name.Local != "xmlns" && a.Name.Local != "versionId" {
			return refuse("Error processing attribute %q with value %q", clip(a.Name.Local), clip(a.Value))
		}
	}
	return nil
}

func xsiType(start xml.StartElement) (string, bool) {
	for _, a := range start.Attr {
		if a.Name.Space == xsiNamespace && a.Name.Local == "type" {
			return strings.TrimSpace(a.Value), true
		}
	}
	return "", false
}

// local cuts the prefix off a type's name. Clients bind prefixes as they like, and govmomi leaves xsd unbound.
func local(name string) string {
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		return name[i+1:]
	}
	return name
}

func unknownType(name string) *refusal {
	return refuse("Unable to resolve WSDL type name %s", clip(name))
}
