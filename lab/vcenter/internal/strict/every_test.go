package strict

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"

	"vsphere-drivers.example/lab/vcenter/internal/strict/schema"
)

// writer fills requests with something in every field.
type writer struct {
	types *schema.Types
}

func (w *writer) fill(v reflect.Value, ref string, depth int) {
	switch {
	case v.Type() == reflect.TypeFor[types.ManagedObjectReference]():
		if ref == "" {
			ref = "Folder"
		}
		v.Set(reflect.ValueOf(types.ManagedObjectReference{Type: ref, Value: "x-1"}))
		return
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1700000000, 0).UTC()))
		return
	case v.Type() == reflect.TypeFor[[]byte]():
		v.SetBytes([]byte("AQ==")) // govmomi leaves the encoding to the caller
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			w.fill(v.Elem(), ref, depth)
		}
	case reflect.Slice:
		// At the bottom one is enough for an array that must not be empty.
		count := 1
		if depth > 0 {
			count = 2
		}
		v.Set(reflect.MakeSlice(v.Type(), count, count))
		for i := range count {
			w.fill(v.Index(i), ref, depth)
		}
	case reflect.String:
		if values := w.types.EnumValues(v.Type()); len(values) > 0 {
			v.SetString(values[0])
		} else {
			v.SetString("some <text> & more")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Interface:
		w.fillInterface(v, depth)
	case reflect.Struct:
		w.fillStruct(v, depth)
	}
}

// fillInterface also fills at the bottom: a required field must not be empty.
func (w *writer) fillInterface(v reflect.Value, depth int) {
	if v.NumMethod() == 0 {
		v.Set(reflect.ValueOf("any"))
		return
	}
	t, ok := w.types.Named(schema.DeclaredName(v.Type()))
	if !ok {
		return
	}
	p := reflect.New(t)
	w.fill(p.Elem(), "", depth)
	if p.Type().Implements(v.Type()) {
		v.Set(p)
	}
}

func (w *writer) fillStruct(v reflect.Value, depth int) {
	o := w.types.Object(v.Type())
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			w.fill(v.Field(i), "", depth)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("xml"), ",")
		at := o.Index(name)
		if at < 0 {
			continue
		}
		// At the bottom only what must be there.
		if field := &o.Fields[at]; depth > 0 || field.Required {
			w.fill(v.Field(i), field.Ref, depth-1)
			if !field.Many && v.Field(i).Kind() == reflect.Slice && field.Kind != schema.Base64 {
				v.Field(i).SetLen(1) // only govmomi has an array
			}
		}
	}
}

// request is one call as govmomi writes it, with all its fields set.
type request struct {
	service         *service
	header          http.Header
	path, name, xml string
}

// everyRequest builds each call of vim25, CNS, PBM and VSLM that the table has.
func everyRequest(t *testing.T, g *gate) []request {
	t.Helper()
	var all []request
	for _, at := range []struct{ path, namespace, action string }{
		{"/sdk", "vim25", "urn:vim25/9.1.1.0"},
		{"/vsanHealth", "vsan", "urn:vsan/9.1.1.0"},
		{"/pbm", "pbm", "urn:pbm/"},
		{"/vslm/sdk", "vslm", "urn:vslm/"},
	} {
		s := g.serviceAt(at.path)
		w := &writer{types: s.types}
		for _, name := range g.table.Methods() {
			m, ok := s.types.Method(name)
			if !ok {
				continue
			}
			v := reflect.New(m.Type).Elem()
			for i := range v.NumField() {
				tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("xml"), ",")
				ref := m.Fields[m.Index(tag)].Ref
				if tag == "_this" {
					ref = m.On
				}
				w.fill(v.Field(i), ref, 5)
			}
			text, err := xml.Marshal(soap.Envelope{Body: requestBody{xml.Name{Space: "urn:" + at.namespace, Local: name}, v.Interface()}})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			all = append(all, request{s, http.Header{"Soapaction": {at.action}}, at.path, name, string(text)})
		}
	}
	return all
}

// What the middleware says about order, names, types and values must agree with govmomi.
func TestEveryRequestGovmomiCanWriteIsAccepted(t *testing.T) {
	g := gateOf(t, "next")
	count := make(map[string]int)
	for _, r := range everyRequest(t, g) {
		if _, refused := g.read(r.service, r.header, []byte(r.xml)); refused != nil {
			t.Errorf("%s %s: %s", r.path, r.name, refused.message())
		}
		count[r.path]++
	}
	for path, least := range map[string]int{"/sdk": 900, "/vsanHealth": 20, "/pbm": 30, "/vslm/sdk": 40} {
		if count[path] < least {
			t.Errorf("only %d calls of %s", count[path], path)
		}
	}
}

func TestAnUnknownElementIsRefusedAnywhereInARequest(t *testing.T) {
	g := gateOf(t, "next")
	tried := 0
	for _, r := range everyRequest(t, g) {
		at := strings.Index(r.xml, "</_this>") + len("</_this>")
		for range 20 {
			// Between the end of one element and the end of the one around it.
			next := strings.Index(r.xml[at:], "></")
			if next < 0 {
				break
			}
			at += next + 1
			tried++
			changed := r.xml[:at] + "<zzz></zzz>" + r.xml[at:]
			if _, refused := g.read(r.service, r.header, []byte(changed)); refused == nil || !strings.Contains(refused.text, "zzz") {
				t.Errorf("%s %s at %d: %v", r.path, r.name, at, refused)
			}
		}
	}
	if tried < 5000 {
		t.Errorf("only %d places tried", tried)
	}
}

// requestBody writes the one element of a body.
type requestBody struct {
	name    xml.Name
	request any
}

func (b requestBody) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	if err := e.EncodeToken(start); err != nil {
		return err
	}
	if err := e.EncodeElement(b.request, xml.StartElement{Name: b.name}); err != nil {
		return err
	}
	return e.EncodeToken(start.End())
}
