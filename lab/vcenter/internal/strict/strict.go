package strict

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// Config says which vCenter to be strict as.
type Config struct {
	Profile *profile.Profile

	// HasSession tells whether the value of a session cookie belongs to a login that is still valid.
	// Without it the session is left to the handler behind.
	HasSession func(cookie string) bool

	// ShutOut tells whether the endpoint at a path does not know a session that others know; nil: none does.
	ShutOut func(path, cookie string) bool

	// RefuseNewerVersion refuses a SOAPAction whose version is newer than the release. vCenter takes such a request
	// as one of its own newest version: clients with a version of 6.0 and more in their SOAPAction worked with 5.1
	// and failed only at elements 5.1 did not know (terraform-provider-vsphere issues 289 and 571). govmomi sends
	// 9.1.0.0 to everyone. Set it to find out whether a client caps its version.
	RefuseNewerVersion bool

	// MaxBody is the largest request in bytes; 0 means DefaultMaxBody.
	MaxBody int64
}

// DefaultMaxBody is enough for any request of an inventory of ten thousand machines.
const DefaultMaxBody = 16 << 20

// New returns a middleware that lets only those SOAP requests through that the release would understand. All others
// get vCenter's fault. Requests to other paths, and those that are not POST, pass untouched.
func New(config Config) (func(http.Handler) http.Handler, error) {
	g, err := newGate(config)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := g.serviceAt(r.URL.Path)
			if s == nil || r.Method != http.MethodPost {
				next.ServeHTTP(w, r)
				return
			}
			body, refused := readBody(r.Body, g.maxBody)
			r.Body.Close()
			if refused == nil {
				body, refused = g.check(s, r, body)
			}
			if refused != nil {
				refused.write(w)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.ContentLength = int64(len(body))
			next.ServeHTTP(w, r)
		})
	}, nil
}

// readBody reads at most limit bytes.
func readBody(from io.Reader, limit int64) ([]byte, *refusal) {
	body, err := io.ReadAll(io.LimitReader(from, limit+1))
	switch {
	case err != nil && errors.Is(err, io.ErrUnexpectedEOF):
		return nil, undetermined(refuse("The request ended before its announced length"))
	case err != nil:
		return nil, undetermined(refuse("The request could not be read: %v", err))
	case int64(len(body)) > limit:
		return nil, undetermined(refuse("The request is larger than %d bytes", limit))
	}
	return body, nil
}

// check judges a request as a whole and returns it with all types named.
func (g *gate) check(s *service, r *http.Request, body []byte) ([]byte, *refusal) {
	call, refused := g.read(s, r.Header, body)
	if refused != nil {
		return nil, refused
	}
	if !g.admits(s, r, call, body) {
		return nil, s.unauthenticated(call.this)
	}
	return call.typed(body), nil
}
