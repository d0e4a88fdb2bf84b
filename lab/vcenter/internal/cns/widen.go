package cns

import (
	"bytes"
	"encoding/xml"
	"io"
	"net/http"
	"strings"
)

// namesVim tells whether a request is made in the name of vim25, whose versions have no types of CNS.
func namesVim(r *http.Request) bool {
	return strings.HasPrefix(strings.Trim(r.Header.Get("SOAPAction"), `"`), "urn:vim25")
}

// widen writes values of CNS as a client in the name of vim25 gets them: as the nearest type that its version has, with
// the fields of that. Reading the result of a CNS task needs the name of vSAN (govmomi pull request 3406), while scripts
// wait for such a task in the name of vim25 without stumbling over its result.
func widen(text []byte) []byte {
	if !bytes.Contains(text, []byte(`:type="Cns`)) {
		return text
	}
	var widened bytes.Buffer
	from := 0
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for {
		at := int(decoder.InputOffset())
		token, err := decoder.RawToken()
		if err != nil {
			if err != io.EOF {
				return text
			}
			widened.Write(text[from:])
			return widened.Bytes()
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		name := typeOf(start)
		base := baseOf(start.Name.Local, name)
		if base == "" {
			continue
		}
		widened.Write(text[from:at])
		widened.Write(bytes.Replace(text[at:decoder.InputOffset()], []byte(`:type="`+name+`"`), []byte(`:type="`+base+`"`), 1))
		if from, err = endOf(decoder); err != nil {
			return text
		}
	}
}

// baseOf is the type that a value of CNS is widened to; empty for others, and for the fault of a call, which is vim25's own.
func baseOf(element, name string) string {
	switch {
	case !strings.HasPrefix(name, "Cns"):
		return ""
	case !strings.HasSuffix(name, "Fault"):
		return "DynamicData"
	case element == "fault":
		return "VimFault"
	}
	return ""
}

// typeOf is the type that an element names with its xsi:type, whatever the prefix is called.
func typeOf(start xml.StartElement) string {
	for _, a := range start.Attr {
		if a.Name.Space != "" && a.Name.Space != "xmlns" && a.Name.Local == "type" {
			return a.Value
		}
	}
	return ""
}

// endOf skips what is inside an element and returns the place of its end tag.
func endOf(decoder *xml.Decoder) (int, error) {
	for depth := 0; ; {
		at := int(decoder.InputOffset())
		token, err := decoder.RawToken()
		if err != nil {
			return 0, err
		}
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			if depth == 0 {
				return at, nil
			}
			depth--
		}
	}
}
