package strict

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/strict/schema"
)

const (
	soapNamespace = "http://schemas.xmlsoap.org/soap/envelope/"
	xsiNamespace  = "http://www.w3.org/2001/XMLSchema-instance"
	// maxDepth is far beyond any real request; a chain of disk backings is the deepest one there is.
	maxDepth = 500
)

// call is what a request turned out to be.
type call struct {
	method  *schema.Method
	this    types.ManagedObjectReference
	session string // named in the SOAP header
	untyped []untyped
}

// untyped is an element of a polymorphic type that does not name its own, and so has the declared one.
type untyped struct {
	end  int64 // of its start tag in the request
	name string
}

// typed writes the declared types into a request: the library behind leaves such an element empty, or panics.
func (c *call) typed(body []byte) []byte {
	var out bytes.Buffer
	from := 0
	for _, element := range c.untyped {
		at := int(element.end) - len(">")
		if body[at-1] == '/' {
			at--
		}
		out.Write(body[from:at])
		fmt.Fprintf(&out, ` xmlns:declared="%s" declared:type="%s"`, xsiNamespace, element.name)
		from = at
	}
	out.Write(body[from:])
	return out.Bytes()
}

// document reads one request.
type document struct {
	gate       *gate
	service    *service
	release    schema.Release
	namespaces []string // the method's element may have
	xml        *xml.Decoder
	line, col  int // where the last token began
	depth      int
	call       call
}

// next returns the next token that matters: an element's start or end, or text. At the end it returns nil.
func (d *document) next() (xml.Token, *refusal) {
	for {
		d.line, d.col = d.xml.InputPos()
		token, err := d.xml.Token()
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, refuse("XML document is not well formed: %s", clip(err.Error())).inside("%s", d.at())
		}
		switch t := token.(type) {
		case xml.StartElement:
			if d.depth++; d.depth > maxDepth {
				return nil, refuse("More than %d elements inside each other", maxDepth).inside("%s", d.at())
			}
			if fault := illFormed(t); fault != "" {
				return nil, refuse("XML document is not well formed: %s", clip(fault)).inside("%s", d.at())
			}
			return t, nil
		case xml.EndElement:
			d.depth--
			return t, nil
		case xml.CharData:
			return t, nil
		case xml.Directive:
			return nil, refuse("A document type is not allowed").inside("%s", d.at())
		}
	}
}

// illFormed finds what Go's decoder lets pass: prefixes nobody declared, which it leaves in place of the namespace,
// and attributes given twice.
func illFormed(start xml.StartElement) string {
	const most = 64 // more than any client has a use for
	if undeclared(start.Name.Space) {
		return "undeclared prefix " + start.Name.Space
	}
	if len(start.Attr) > most {
		return "too many attributes"
	}
	for i, a := range start.Attr {
		if a.Name.Space != "xmlns" && undeclared(a.Name.Space) {
			return "undeclared prefix " + a.Name.Space
		}
		for _, b := range start.Attr[:i] {
			if a.Name == b.Name {
				return "attribute " + a.Name.Local + " twice"
			}
		}
	}
	return ""
}

// undeclared tells a prefix from a namespace: those are URIs and have a colon.
func undeclared(space string) bool { return space != "" && !strings.Contains(space, ":") }

// at is the place of the last token, as vCenter counts: lines from 1, columns from 0.
func (d *document) at() string { return place(d.line, d.col) }

func place(line, col int) string { return fmt.Sprintf("at line %d, column %d", line, col-1) }

// element skips white space up to the next element; ok is false at the end of the one around it.
func (d *document) element() (start xml.StartElement, ok bool, refused *refusal) {
	for {
		token, refused := d.next()
		if refused != nil {
			return start, false, refused
		}
		switch t := token.(type) {
		case xml.StartElement:
			return t, true, nil
		case xml.CharData:
			if !blank(t) {
				return start, false, refuse("Unexpected text %q seen", clip(string(bytes.TrimSpace(t))))
			}
		default:
			return start, false, nil
		}
	}
}

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// read checks a whole request and says which call it is.
func (g *gate) read(s *service, header http.Header, body []byte) (*call, *refusal) {
	d := &document{gate: g, service: s, xml: xml.NewDecoder(bytes.NewReader(body))}
	var refused *refusal
	if d.namespaces, d.release, refused = g.action(s, header); refused != nil {
		return nil, undetermined(refused)
	}
	refused = d.envelope()
	if refused == nil {
		return &d.call, nil
	}
	if m := d.call.method; m != nil && m.On != "" {
		return nil, refused.inside("while parsing HTTP request for method %s\non object of type %s\nat line 1, column 0",
			m.VMODL, g.table.VMODL(m.On))
	}
	return nil, undetermined(refused)
}

func (d *document) envelope() *refusal {
	start, ok, refused := d.element()
	if refused != nil {
		return refused
	}
	if !ok || start.Name.Local != "Envelope" || start.Name.Space != soapNamespace {
		return refuse("The request is no SOAP envelope").inside("%s", d.at())
	}
	line, col := d.line, d.col
	if refused := d.parts(); refused != nil {
		return refused.inside("while parsing SOAP envelope\n%s", place(line, col))
	}
	if _, more, refused := d.element(); refused != nil {
		return refused
	} else if more {
		return refuse("Data after the SOAP envelope").inside("%s", d.at())
	}
	return nil
}

// parts reads an optional header and one body.
func (d *document) parts() *refusal {
	const header, body = 1, 2
	seen := 0
	for {
		start, ok, refused := d.element()
		switch {
		case refused != nil:
			return refused
		case !ok && seen != body:
			return refuse("SOAP body is missing")
		case !ok:
			return nil
		case start.Name.Space == soapNamespace && start.Name.Local == "Header" && seen == 0:
			seen = header
			refused = d.header()
		case start.Name.Space == soapNamespace && start.Name.Local == "Body" && seen < body:
			seen = body
			line, col := d.line, d.col
			if refused = d.body(); refused != nil {
				refused.inside("while parsing SOAP body\n%s", place(line, col))
			}
		default:
			refused = unexpected(start)
		}
		if refused != nil {
			return refused
		}
	}
}

// header keeps the session it names. What else it holds, like SAML tokens, is not ours to judge.
func (d *document) header() *refusal {
	for {
		start, ok, refused := d.element()
		if refused != nil || !ok {
			return refused
		}
		if d.service.qualifiedHeaders && start.Name.Space == "" {
			return refuse("SAAJ0131: HeaderElements must be namespace qualified")
		}
		if start.Name.Local != "vcSessionCookie" {
			if refused := d.skip(); refused != nil {
				return refused
			}
			continue
		}
		text, refused := d.text()
		if refused != nil {
			return refused
		}
		d.call.session = strings.Trim(strings.TrimSpace(text), `"`)
	}
}

// body reads the one call.
func (d *document) body() *refusal {
	start, ok, refused := d.element()
	if refused != nil {
		return refused
	}
	if !ok {
		return refuse("SOAP body is empty")
	}
	method, known := d.service.types.Method(start.Name.Local)
	if !known || !d.names(method, start.Name.Space) || !d.release.Knows(method.Since) {
		return refuse("Unable to resolve WSDL method name %s for namespace name %s", clip(start.Name.Local), clip(start.Name.Space))
	}
	d.call.method = method
	line, col := d.line, d.col
	if refused := d.parameters(method); refused != nil {
		return refused.inside("while parsing call information for method %s\n%s", method.Name, place(line, col))
	}
	if start, more, refused := d.element(); refused != nil {
		return refused
	} else if more {
		return unexpected(start)
	}
	return nil
}

// names tells whether a method may be called in a namespace, and lets its parameters have it. What is not published
// has a namespace of its own, urn:internalpbm for one, and is not in the table.
func (d *document) names(m *schema.Method, namespace string) bool {
	if slices.Contains(d.namespaces, namespace) {
		return true
	}
	public, internal := strings.CutPrefix(namespace, "urn:internal")
	if !internal || m.On != "" || !slices.Contains(d.namespaces, "urn:"+public) {
		return false
	}
	d.namespaces = []string{namespace}
	return true
}

// skip passes over the rest of an element, whatever it holds.
func (d *document) skip() *refusal {
	for depth := d.depth; d.depth >= depth; {
		token, refused := d.next()
		if refused != nil {
			return refused
		}
		if token == nil {
			return refuse("XML document ended too early").inside("%s", d.at())
		}
	}
	return nil
}

// text is the content of an element that holds no other.
func (d *document) text() (string, *refusal) {
	var b strings.Builder
	for {
		token, refused := d.next()
		if refused != nil {
			return "", refused
		}
		switch t := token.(type) {
		case xml.CharData:
			b.Write(t)
		case xml.StartElement:
			return "", unexpected(t)
		default:
			return b.String(), nil
		}
	}
}

func unexpected(start xml.StartElement) *refusal {
	return refuse("Unexpected element tag %q seen", clip(start.Name.Local))
}
