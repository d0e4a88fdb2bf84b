package pyvmomi

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// What is recorded: every scenario of session.py with one release, and volumes with those whose CNS has other fields.
var recorded = map[string][]string{
	"6.7U3": {"volumes"},
	"8.0U3": {"inventory", "volumes", "policies", "disks", "tokens"},
	"9.1":   {"volumes"},
}

// TestRecordPyVmomi writes the recordings anew. It runs only if PYVMOMI names a Python that has pyVmomi; see README.md.
func TestRecordPyVmomi(t *testing.T) {
	python := os.Getenv("PYVMOMI")
	if python == "" {
		t.Skip("PYVMOMI names no Python with pyVmomi; nothing was recorded")
	}
	folder, err := filepath.Abs(recordings)
	if err != nil {
		t.Fatal(err)
	}
	for release, scenarios := range recorded {
		for _, scenario := range scenarios {
			t.Run(release+"-"+scenario, func(t *testing.T) {
				vc := serve(t, release)
				p := &proxy{to: "https://" + vc.URL.Host}
				p.transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
				server := httptest.NewTLSServer(p)
				defer server.Close()
				host := strings.TrimPrefix(server.URL, "https://")
				address, port, _ := strings.Cut(host, ":")
				script := exec.Command(python, filepath.Join(folder, "session.py"), scenario, address, port)
				if output, err := script.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, output)
				}
				known := map[string]string{}
				for _, object := range vc.Inventory.Objects(func(types.ManagedObjectReference) []string { return nil }) {
					known[object.Ref] = "{" + object.Path + "}"
				}
				session := generalize(trim(p.seen, known), known, host)
				for i, e := range session {
					if strings.Contains(e.want, "state=running") || strings.Contains(e.want, "state=queued") {
						t.Fatalf("exchange %d saw a task before its end, which depends on time: %s", i, e.body)
					}
				}
				if err := os.WriteFile(filepath.Join(folder, release+"-"+scenario+".txt"), []byte(format(session)), 0o644); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// seen is an exchange as it was on the wire.
type seen struct {
	exchange
	answer answer
}

// proxy passes requests on and keeps them.
type proxy struct {
	to        string
	transport http.Transport

	mu   sync.Mutex
	seen []seen
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	request, err := http.NewRequest(r.Method, p.to+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	request.Header = r.Header.Clone()
	response, err := p.transport.RoundTrip(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	kept := http.Header{}
	for _, name := range headers {
		if values := r.Header.Values(name); len(values) > 0 {
			kept[name] = values
		}
	}
	p.mu.Lock()
	p.seen = append(p.seen, seen{
		exchange{method: r.Method, path: r.URL.Path, header: kept, body: string(body)},
		answer{response.StatusCode, response.Header.Get("Set-Cookie"), text},
	})
	p.mu.Unlock()
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(text) // a client that is gone needs no answer
}

var shapeless = regexp.MustCompile(`>[^<]*<|type="[^"]*"`)

// trim leaves out what shows nothing new: all but the last of the polls for one task, and reads that have the form of an
// earlier one, unless a later request uses their answer.
func trim(all []seen, known map[string]string) []seen {
	var last []seen
	for i, s := range all {
		if i+1 < len(all) && s.body == all[i+1].body && s.path == all[i+1].path && s.body != "" {
			continue
		}
		last = append(last, s)
	}
	used := format(generalize(last, known, ""))
	forms := map[string]bool{}
	var kept []seen
	for i, s := range last {
		form := fmt.Sprint(s.answer.status) + s.path + s.header.Get("Soapaction") + shapeless.ReplaceAllString(s.body, "")
		reads := strings.Contains(s.body, "<Fetch ") || strings.Contains(s.body, "<RetrieveServiceContent ")
		if forms[form] && reads && !strings.Contains(s.answer.outcome(), "state=") && !strings.Contains(used, fmt.Sprintf("{%d.", i)) {
			continue
		}
		forms[form] = true
		kept = append(kept, s)
	}
	return kept
}

// Values that a server makes up, and elements whose values are too short to be recognized elsewhere.
var (
	madeUp = regexp.MustCompile(`^((task|hostdatastorebrowser)-\d+|session\[.*|.*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}.*)$`)
	short  = []string{"version", "token"}
)

// generalize puts placeholders in place of what differs from run to run.
func generalize(session []seen, objects map[string]string, host string) []exchange {
	known := map[string]string{}
	for value, name := range objects {
		known[value] = name
	}
	var list []exchange
	for i, s := range session {
		e := s.exchange
		e.header = http.Header{}
		for name, values := range s.header {
			for _, value := range values {
				if cookie, ok := known[value]; ok {
					value = cookie
				} else if match := token.FindStringSubmatch(value); match != nil && known[match[1]] != "" {
					value = strings.Replace(value, match[1], known[match[1]], 1)
				}
				e.header[name] = append(e.header[name], value)
			}
		}
		e.body = generalizeBody(session[:i], s.body, known)
		if host != "" {
			e.body = strings.ReplaceAll(e.body, host, "{host}")
		}
		e.want = s.answer.outcome()
		list = append(list, e)

		places := map[string]int{}
		for _, l := range leaves(s.answer.body) {
			if _, ok := known[l.text]; !ok && madeUp.MatchString(l.text) {
				known[l.text] = fmt.Sprintf("{%d.%s.%d}", i, l.name, places[l.name])
			}
			places[l.name]++
		}
		if s.answer.cookie != "" {
			known[s.answer.cookie] = fmt.Sprintf("{%d.cookie}", i)
			known[token.FindStringSubmatch(s.answer.cookie)[1]] = fmt.Sprintf("{%d.session}", i)
		}
	}
	return list
}

func generalizeBody(before []seen, body string, known map[string]string) string {
	for i := len(before) - 1; i >= 0; i-- {
		if token := assertion.FindString(body); token != "" && assertion.Match(before[i].answer.body) {
			body = strings.Replace(body, token, fmt.Sprintf("{%d.assertion}", i), 1)
		}
	}
	var text strings.Builder
	from := 0
	var created time.Time
	for _, l := range leaves([]byte(body)) {
		name, ok := known[l.text]
		switch at, err := time.Parse(time.RFC3339, l.text); {
		case err == nil && (l.name == "Created" || l.name == "Expires"):
			if created.IsZero() {
				created = at
			}
			name, ok = fmt.Sprintf("{now+%d}", int(at.Sub(created).Seconds())), true
		case slices.Contains(short, l.name) && l.text != "":
			name, ok = latest(before, l)
		}
		if ok {
			text.WriteString(body[from:l.start] + name)
			from = l.end
		}
	}
	return text.String() + body[from:]
}

// latest finds the last answer that has an element of the same name and text.
func latest(before []seen, wanted leaf) (string, bool) {
	for i := len(before) - 1; i >= 0; i-- {
		place := 0
		for _, l := range leaves(before[i].answer.body) {
			if l.name != wanted.name {
				continue
			}
			if l.text == wanted.text {
				return fmt.Sprintf("{%d.%s.%d}", i, l.name, place), true
			}
			place++
		}
	}
	return "", false
}
