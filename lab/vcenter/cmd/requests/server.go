package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/vmware/govmomi/vim25/soap"
	vimxml "github.com/vmware/govmomi/vim25/xml"
)

// refused is the status of REST calls that we have recorded and do not perform.
const refused = http.StatusTeapot

const fault = `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><Fault><faultcode>ServerFaultCode</faultcode>` +
	`<faultstring>recorded</faultstring></Fault></Body></Envelope>`

// Of the newest release, so that the library leaves nothing out for an older one.
const vsanVersions = `<namespaces version="1.0"><namespace><name>urn:vsan</name><version>9.1.0.0</version></namespace></namespaces>`

// A recorder is a vCenter that writes down what it is asked. It answers only what libraries need to go on, and refuses the rest.
type recorder struct {
	url  *url.URL
	http *http.Server

	mu   sync.Mutex
	seen []recorded
}

type recorded struct {
	method string
	rest   bool
	text   string
}

func listen() (*recorder, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &recorder{url: &url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/sdk"}}
	r.http = &http.Server{Handler: r}
	go r.http.Serve(listener)
	return r, nil
}

func (r *recorder) close() { r.http.Close() }

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// last is the latest request of a method.
func (r *recorder) last(method string) (recorded, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.seen) - 1; i >= 0; i-- {
		if r.seen[i].method == method {
			return r.seen[i], true
		}
	}
	return recorded{}, false
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	switch {
	case err != nil:
	case strings.HasPrefix(req.URL.Path, "/rest/"):
		err = r.serveREST(w, req, body)
	case req.URL.Path == "/sdk/vsanServiceVersions.xml":
		_, err = io.WriteString(w, vsanVersions)
	default:
		err = r.serveSOAP(w, req, body)
	}
	if err != nil {
		// The client reports this as an error that is no refusal.
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (r *recorder) serveSOAP(w http.ResponseWriter, req *http.Request, body []byte) error {
	header, call, err := readEnvelope(body)
	if err != nil {
		return err
	}
	action, version, _ := strings.Cut(req.Header.Get("SOAPAction"), "/")
	if !strings.HasPrefix(action, "urn:") {
		action = strings.Trim(action+"/"+version, `"`)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "<!-- path %s  action %s -->\n", req.URL.Path, action)
	ids := map[string]string{}
	if header != nil {
		header.hide(ids)
		header.write(&text, "")
	}
	call.hide(ids)
	call.write(&text, "")
	r.record(recorded{call.name, false, text.String()})

	http.SetCookie(w, &http.Cookie{Name: soap.SessionCookieName, Value: "cookie", Path: "/"})
	// One round of updates is enough.
	answer, known := answers[req.URL.Path+" "+call.name]
	if !known || call.has("version", "1") {
		w.WriteHeader(http.StatusInternalServerError)
		_, err = io.WriteString(w, fault)
		return err
	}
	encoded, err := vimxml.Marshal(soap.Envelope{Body: answer})
	if err != nil {
		return err
	}
	_, err = w.Write(encoded)
	return err
}

// The headers of REST calls that decide what the call does.
var restHeaders = []string{"Accept", "Authorization", "Content-Type", "Vmware-Api-Session-Id", "Vmware-Use-Header-Authn"}

func (r *recorder) serveREST(w http.ResponseWriter, req *http.Request, body []byte) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", req.Method, req.RequestURI)
	for _, name := range restHeaders {
		if value := req.Header.Get(name); value != "" {
			fmt.Fprintf(&text, "%s: %s\n", strings.ToLower(name), value)
		}
	}
	if len(body) != 0 {
		var value any
		if err := json.Unmarshal(body, &value); err != nil {
			return err
		}
		sorted, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "\n%s\n", sorted)
	}
	method := req.Method + " " + req.RequestURI
	r.record(recorded{method, true, text.String()})
	if method != createSession {
		w.WriteHeader(refused)
		return nil
	}
	_, err := io.WriteString(w, `{"value": "session-1"}`)
	return err
}

func (r *recorder) record(request recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, request)
}

var errNoCall = errors.New("the request has no call in its body")
