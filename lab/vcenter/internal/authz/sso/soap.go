package sso

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/simulator"
	vim "github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// maxBody bounds a request; the largest real one carries a token of a few kilobytes.
const maxBody = 1 << 20

const soapNS = "http://schemas.xmlsoap.org/soap/envelope/"

// fault is an error with the SOAP fault that shows it.
type fault struct {
	kind    string // xsi:type of the detail
	detail  any
	message string
}

func (f *fault) Error() string { return f.message }

func refuse(kind string, detail any, format string, args ...any) *fault {
	return &fault{kind, detail, fmt.Sprintf(format, args...)}
}

// decode reads one request. Only messages of the SSO namespace that name a target are methods:
// the type tables also hold data types, and those must not be taken for a call.
func decode(data []byte) (*simulator.Method, error) {
	lookup := vim.TypeFunc()
	first := true
	return simulator.UnmarshalBody(func(name string) (reflect.Type, bool) {
		kind, ok := lookup("sso:" + name)
		if first {
			first = false
			if !ok || kind.Kind() != reflect.Struct {
				return nil, false
			}
			if this, has := kind.FieldByName("This"); !has || this.Type != reflect.TypeOf(vim.ManagedObjectReference{}) {
				return nil, false
			}
			return kind, true
		}
		if !ok {
			return lookup(name)
		}
		return kind, ok
	}, data)
}

func readRequest(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return nil, false
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "request body could not be read: "+err.Error(), http.StatusBadRequest)
		return nil, false
	}
	return data, true
}

type envelope struct {
	XMLName xml.Name `xml:"soapenv:Envelope"`
	Env     string   `xml:"xmlns:soapenv,attr"`
	XSD     string   `xml:"xmlns:xsd,attr"`
	XSI     string   `xml:"xmlns:xsi,attr"`
	Body    any      `xml:"soapenv:Body"`
}

// named writes a value as the element <Name xmlns="urn:sso">.
type named struct {
	name  string
	kind  string // xsi:type, for fault details
	value any
}

func (n named) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	start := xml.StartElement{
		Name: xml.Name{Local: n.name},
		Attr: []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: "urn:sso"}},
	}
	if n.kind != "" {
		start.Attr = append(start.Attr, xml.Attr{Name: xml.Name{Local: "xsi:type"}, Value: n.kind})
	}
	return e.EncodeElement(n.value, start)
}

type replyBody struct{ Reply named }

type faultBody struct {
	Fault soapFault `xml:"soapenv:Fault"`
}

type soapFault struct {
	Code   string                `xml:"faultcode"`
	String string                `xml:"faultstring"`
	Detail struct{ Fault named } `xml:"detail"`
}

func write(w http.ResponseWriter, status int, body any) {
	var out bytes.Buffer
	out.WriteString(xml.Header)
	err := xml.NewEncoder(&out).Encode(envelope{
		Env: soapNS, XSD: "http://www.w3.org/2001/XMLSchema", XSI: "http://www.w3.org/2001/XMLSchema-instance", Body: body,
	})
	if err != nil {
		http.Error(w, "answer could not be written as XML: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

func writeReply(w http.ResponseWriter, method string, value any) {
	write(w, http.StatusOK, replyBody{named{name: method + "Response", value: value}})
}

func writeFault(w http.ResponseWriter, f *fault) {
	body := faultBody{Fault: soapFault{Code: "ServerFaultCode", String: f.message}}
	body.Fault.Detail.Fault = named{name: strings.TrimSuffix(f.kind, "Fault") + "Fault", kind: f.kind, value: f.detail}
	write(w, http.StatusInternalServerError, body)
}
