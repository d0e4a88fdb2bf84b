package traffic

import (
	"bytes"
	"encoding/xml"
	"io"
	"math/rand"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What an HTTP rule does to a request.
const (
	KindStatus   = "status"   // answers with a status and an HTML page, as the proxy in front of a starting vCenter does
	KindReset    = "reset"    // resets the connection before answering
	KindHang     = "hang"     // does the work and never answers
	KindTruncate = "truncate" // promises the whole answer, sends the first half and closes the connection

	KindUnauthenticated = "unauthenticated" // answers as REST does without a session, with the status of the rule
)

// Kinds lists what an HTTP rule may do.
var Kinds = []string{KindStatus, KindReset, KindHang, KindTruncate, KindUnauthenticated}

// HTTPRule breaks requests below the level of the API.
type HTTPRule struct {
	ID     int    `json:"id"`
	Path   string `json:"path,omitempty"`   // prefix
	Method string `json:"method,omitempty"` // SOAP method in the request's body
	Kind   string `json:"kind"`
	Status int    `json:"status,omitempty"`
	Chance
}

// AddHTTP arms a rule.
func (t *Traffic) AddHTTP(rule HTTPRule) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	rule.ID = t.last
	rule.dice = rand.New(rand.NewSource(rule.Seed))
	t.http = append(t.http, &rule)
	return rule.ID
}

// HTTP puts the counters and the HTTP rules in front of a handler, and answers for it when it panics.
func (t *Traffic) HTTP(next http.Handler) http.Handler {
	next = answerPanics(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &counted{ResponseWriter: w}
		switch rule := t.matchHTTP(r); {
		case t.isDown(r.URL.Path):
			Unavailable(answer, http.StatusServiceUnavailable)
		case rule == nil:
			next.ServeHTTP(answer, r)
		case rule.Kind == KindStatus:
			Unavailable(answer, rule.Status)
		case rule.Kind == KindUnauthenticated:
			unauthenticated(answer, r.URL.Path, rule.Status)
		case rule.Kind == KindReset:
			reset(w)
		case rule.Kind == KindHang:
			next.ServeHTTP(&recorded{header: http.Header{}}, r)
			t.untilGone(r)
			reset(w)
		case rule.Kind == KindTruncate:
			whole := &recorded{header: http.Header{}}
			next.ServeHTTP(whole, r)
			truncate(w, whole)
		}
		t.mu.Lock()
		t.paths[Request{r.Method, r.URL.Path, answer.status}]++
		t.mu.Unlock()
	})
}

func (t *Traffic) isDown(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for prefix, until := range t.down {
		if strings.HasPrefix(path, prefix) && time.Now().Before(until) {
			return true
		}
	}
	return false
}

func (t *Traffic) matchHTTP(r *http.Request) *HTTPRule {
	t.mu.Lock()
	byMethod := slices.ContainsFunc(t.http, func(rule *HTTPRule) bool {
		return rule.Method != "" && strings.HasPrefix(r.URL.Path, rule.Path)
	})
	t.mu.Unlock()
	method := ""
	if byMethod {
		method = soapMethod(r) // reads from the client, so without the lock
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.dropSpent()
	for _, rule := range t.http {
		if strings.HasPrefix(r.URL.Path, rule.Path) && (rule.Method == "" || rule.Method == method) && rule.fires() {
			struck := *rule
			return &struck
		}
	}
	return nil
}

// soapMethod reads the name of the first element in the SOAP body and puts the request's body back.
func soapMethod(r *http.Request) string {
	if r.Body == nil {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	r.Body = io.NopCloser(bytes.NewReader(data))
	if err != nil {
		return ""
	}
	inBody := false
	for decoder := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		if start, ok := token.(xml.StartElement); ok {
			if inBody {
				return start.Name.Local
			}
			inBody = start.Name.Local == "Body"
		}
	}
}

// untilGone waits until the client gives up, or the vCenter restarts or ends.
func (t *Traffic) untilGone(r *http.Request) {
	t.mu.Lock()
	stop := t.stop
	t.mu.Unlock()
	select {
	case <-r.Context().Done():
	case <-stop:
	}
}

// unauthenticated is how REST refuses a request without a session, under the status that the rule names.
func unauthenticated(w http.ResponseWriter, path string, status int) {
	const messages = `[{"args":[],"default_message":"Authentication required.","id":"com.vmware.vapi.endpoint.method.authentication.required"}]`
	body := `{"type":"com.vmware.vapi.std.errors.unauthenticated","value":{"messages":` + messages + `}}`
	if strings.HasPrefix(path, "/api/") {
		body = `{"error_type":"UNAUTHENTICATED","messages":` + messages + `}`
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// Unavailable is a page of the proxy in front of the services.
func Unavailable(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<html><body><h1>"+strconv.Itoa(status)+" "+http.StatusText(status)+"</h1></body></html>\n")
}

// reset makes the kernel send a reset instead of an orderly end.
func reset(w http.ResponseWriter) {
	conn := hijack(w)
	if conn == nil {
		return
	}
	raw := conn
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = wrapped.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
		return
	}
	_ = conn.Close()
}

func truncate(w http.ResponseWriter, whole *recorded) {
	conn := hijack(w)
	if conn == nil {
		return
	}
	defer conn.Close()
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 " + strconv.Itoa(whole.code()) + " " + http.StatusText(whole.code()) + "\r\n")
	whole.header.Set("Content-Length", strconv.Itoa(whole.body.Len()))
	_ = whole.header.Write(&head)
	head.WriteString("\r\n")
	head.Write(whole.body.Bytes()[:whole.body.Len()/2])
	_, _ = conn.Write(head.Bytes())
}

func hijack(w http.ResponseWriter) net.Conn {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return nil
	}
	conn, _, err := hijacker.Hijack()
	if err != nil {
		return nil
	}
	return conn
}

// counted remembers the status of an answer.
type counted struct {
	http.ResponseWriter
	status int
}

func (c *counted) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(data []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the connection.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// recorded keeps an answer instead of sending it.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header { return r.header }

func (r *recorded) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorded) Write(data []byte) (int, error) { return r.body.Write(data) }

func (r *recorded) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}
