package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

const (
	instance = "http://www.w3.org/2001/XMLSchema-instance"
	schema   = "http://www.w3.org/2001/XMLSchema"
)

// Names in these namespaces get these prefixes, whatever the request calls them. All other names have none.
var prefixes = map[string]string{
	instance: "xsi:",
	"http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd":  "wsse:",
	"http://docs.oasis-open.org/wss/oasis-wss-wssecurity-secext-1.1.xsd":                 "wsse11:",
	"http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd": "wsu:",
	"http://docs.oasis-open.org/ws-sx/ws-trust/200512":                                   "wst:",
	"http://www.w3.org/2000/09/xmldsig#":                                                 "ds:",
	"urn:oasis:names:tc:SAML:2.0:assertion":                                              "saml2:",
}

// What differs from run to run, or is secret, and the word that stands for it.
var hidden = map[string]string{
	"vcSessionCookie":          "COOKIE",
	"saml2:Assertion":          "TOKEN",
	"wsu:Created":              "TIME",
	"wsu:Expires":              "TIME",
	"ds:DigestValue":           "DIGEST",
	"ds:SignatureValue":        "SIGNATURE",
	"wsse:BinarySecurityToken": "CERTIFICATE",
}

// Attributes that hold an id of the request itself, or point to one.
var identities = []string{"wsu:Id", "Id", "Sig", "URI"}

// An element is a part of a request in normal form: it has children or text, not both.
type element struct {
	name     string
	attrs    []attribute
	children []*element
	text     string
}

type attribute struct{ name, value string }

// readEnvelope gives the header of a SOAP request, if it has one, and the call in its body.
func readEnvelope(body []byte) (header, call *element, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("envelope: %w", err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		root, err := readElement(decoder, start, map[string]string{})
		if err != nil {
			return nil, nil, err
		}
		for _, child := range root.children {
			switch child.name {
			case "Header":
				header = child
			case "Body":
				if len(child.children) == 1 {
					call = child.children[0]
				}
			}
		}
		if call == nil {
			return nil, nil, errNoCall
		}
		return header, call, nil
	}
}

// readElement reads up to the end of an element. The prefixes that are bound around it matter to values of xsi:type.
func readElement(decoder *xml.Decoder, start xml.StartElement, outer map[string]string) (*element, error) {
	bound := maps.Clone(outer)
	for _, attr := range start.Attr {
		if attr.Name.Space == "xmlns" {
			bound[attr.Name.Local] = attr.Value
		}
	}
	e := &element{name: prefixes[start.Name.Space] + start.Name.Local}
	for _, attr := range start.Attr {
		if attr.Name.Space == "xmlns" || attr.Name.Local == "xmlns" {
			continue
		}
		value := attr.Value
		if attr.Name.Space == instance && attr.Name.Local == "type" {
			value = typeName(value, bound)
		}
		e.attrs = append(e.attrs, attribute{prefixes[attr.Name.Space] + attr.Name.Local, value})
	}
	slices.SortFunc(e.attrs, func(a, b attribute) int { return strings.Compare(a.name, b.name) })
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			child, err := readElement(decoder, token, bound)
			if err != nil {
				return nil, err
			}
			e.children = append(e.children, child)
		case xml.CharData:
			e.text += string(token)
		case xml.EndElement:
			return e, e.check()
		}
	}
}

func (e *element) check() error {
	if len(e.children) == 0 {
		return nil
	}
	if strings.TrimSpace(e.text) != "" {
		return fmt.Errorf("%s has text between its elements", e.name)
	}
	e.text = ""
	return nil
}

// typeName has a prefix for the types of XMLSchema alone. Some clients never bind theirs.
func typeName(value string, bound map[string]string) string {
	prefix, local, found := strings.Cut(value, ":")
	if !found {
		return value
	}
	space, ok := bound[prefix]
	if space == schema || !ok && prefix == "xsd" {
		return "xsd:" + local
	}
	return local
}

// hide puts words for what is secret or differs from run to run. Ids are numbered in the order in which they appear, so that
// what points to what stays visible.
func (e *element) hide(ids map[string]string) {
	for i, attr := range e.attrs {
		id := strings.TrimPrefix(attr.value, "#")
		if slices.Contains(identities, attr.name) && id != "" {
			if ids[id] == "" {
				ids[id] = fmt.Sprintf("ID%d", len(ids)+1)
			}
			e.attrs[i].value = strings.Replace(attr.value, id, ids[id], 1)
		}
	}
	if word, ok := hidden[e.name]; ok {
		e.text, e.children = word, nil
		if e.name == "saml2:Assertion" {
			e.attrs = nil
		}
	}
	for _, child := range e.children {
		child.hide(ids)
	}
}

var (
	inText      = strings.NewReplacer("&", "&amp;", "<", "&lt;")
	inAttribute = strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&quot;")
)

func (e *element) write(w *strings.Builder, indent string) {
	fmt.Fprintf(w, "%s<%s", indent, e.name)
	for _, attr := range e.attrs {
		fmt.Fprintf(w, ` %s="%s"`, attr.name, inAttribute.Replace(attr.value))
	}
	if len(e.children) == 0 {
		fmt.Fprintf(w, ">%s</%s>\n", inText.Replace(e.text), e.name)
		return
	}
	w.WriteString(">\n")
	for _, child := range e.children {
		child.write(w, indent+"  ")
	}
	fmt.Fprintf(w, "%s</%s>\n", indent, e.name)
}

// has tells whether a child has this text.
func (e *element) has(name, text string) bool {
	return slices.ContainsFunc(e.children, func(child *element) bool { return child.name == name && child.text == text })
}
