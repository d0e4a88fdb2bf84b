package pyvmomi

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// exchange is one request of a recorded session and what must be answered. In a recording, requests hold placeholders
// for what differs from run to run: {/dc-1/vm/k8s/node-1} is the reference of an object, {3.id.0} the text of the first element
// id of the third answer, {3.cookie} and {3.session} its cookie as a whole and the value in it, {3.assertion} its SAML token,
// {now+60} a time and {host} the address of the vCenter.
type exchange struct {
	method, path string
	header       http.Header
	body         string
	want         string // see outcome
}

// The headers of a request that matter, in the order in which they are written.
var headers = []string{"Soapaction", "Cookie", "Content-Type", "Accept-Encoding"}

// format writes a recording.
func format(session []exchange) string {
	var text strings.Builder
	for i, e := range session {
		fmt.Fprintf(&text, "== %d %s %s\n", i, e.method, e.path)
		for _, name := range headers {
			for _, value := range e.header[name] {
				fmt.Fprintf(&text, "%s: %s\n", name, value)
			}
		}
		fmt.Fprintf(&text, "\n%s\n-> %s\n", e.body, e.want)
	}
	return text.String()
}

// parse reads a recording.
func parse(text string) ([]exchange, error) {
	var session []exchange
	for part := range strings.SplitSeq(strings.TrimPrefix(text, "== "), "\n== ") {
		head, rest, found := strings.Cut(part, "\n\n")
		body, want, ends := strings.Cut(rest, "\n-> ")
		lines := strings.Split(head, "\n")
		words := strings.Fields(lines[0])
		if !found || !ends || len(words) != 3 {
			return nil, fmt.Errorf("exchange %d: a line, headers, an empty line, a body and -> are wanted", len(session))
		}
		e := exchange{method: words[1], path: words[2], header: http.Header{}, body: body, want: strings.TrimSpace(want)}
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ": ")
			e.header[name] = append(e.header[name], value)
		}
		session = append(session, e)
	}
	return session, nil
}

// answer is what a server said.
type answer struct {
	status int
	cookie string // as it is set
	body   []byte
}

// leaf is an element with text only.
type leaf struct {
	name, text string
	start, end int // of the text
}

// leaves lists the elements of a document that hold text, in their order.
func leaves(document []byte) []leaf {
	var all []leaf
	var open *leaf
	for decoder := xml.NewDecoder(bytes.NewReader(document)); ; {
		at := int(decoder.InputOffset())
		token, err := decoder.RawToken()
		if err != nil {
			return all
		}
		switch t := token.(type) {
		case xml.StartElement:
			end := int(decoder.InputOffset())
			open = &leaf{name: t.Name.Local, start: end, end: end}
		case xml.CharData:
			if open != nil {
				open.text, open.end = string(t), int(decoder.InputOffset())
			}
		case xml.EndElement:
			if open != nil && at >= open.start {
				all = append(all, *open)
			}
			open = nil
		}
	}
}

var (
	element   = regexp.MustCompile(`<(?:soapenv|S|soap):Body[^>]*>\s*<(?:\w+:)?(\w+)`)
	faultType = regexp.MustCompile(`:type="(?:\w+:)?(\w+)"`)
	assertion = regexp.MustCompile(`(?s)<(\w+:)?Assertion .*</(\w+:)?Assertion>`)
	taskState = regexp.MustCompile(`(?:<state>|:type="TaskInfoState">)(queued|running|success|error)<`)
	token     = regexp.MustCompile(`vmware_soap_session="?([^";]+)`)
)

// outcome sums an answer up: its status and first element, the type of a fault, the state of a task, the faults of
// volumes in its result, and how many objects or volumes there are.
func (a *answer) outcome() string {
	words := []string{fmt.Sprint(a.status)}
	if match := element.FindSubmatch(a.body); match != nil {
		words = append(words, string(match[1]))
	}
	if _, detail, failed := bytes.Cut(a.body, []byte("<detail>")); failed {
		if match := faultType.FindSubmatch(detail); match != nil {
			words = append(words, string(match[1]))
		}
	}
	if match := taskState.FindSubmatch(a.body); match != nil {
		words = append(words, "state="+string(match[1]))
	}
	for _, name := range []string{"objects", "volumes", "volumeResults"} {
		if count := bytes.Count(a.body, []byte("</"+name+">")); count > 0 {
			words = append(words, fmt.Sprintf("%s=%d", name, count))
		}
	}
	if _, result, found := bytes.Cut(a.body, []byte("<volumeResults")); found {
		if _, fault, failed := bytes.Cut(result, []byte("<fault")); failed {
			if match := faultType.FindSubmatch(fault); match != nil {
				words = append(words, "fault="+string(match[1]))
			}
		}
	}
	return strings.Join(words, " ")
}
