package pyvmomi

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"vsphere-drivers.example/lab/vcenter/internal/vcenter"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

const recordings = "testdata/pyvmomi"

// serve starts the vCenter of a recording: the default world, as the release that the name of the file begins with.
func serve(t *testing.T, release string) *vcenter.VCenter {
	t.Helper()
	w, err := world.Default()
	if err != nil {
		t.Fatal(err)
	}
	w.Release = release
	home := t.TempDir()
	t.Chdir(home)
	vc, err := vcenter.Start(w, vcenter.Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vc.Close(); err != nil {
			t.Error(err)
		}
	})
	return vc
}

// TestRequestsOfPyVmomiAreAnswered sends what VMware's Python client sent, byte by byte except for what differs from run to
// run, to a vCenter as the recorded one was, and wants the same outcomes.
func TestRequestsOfPyVmomiAreAnswered(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recordings, "*.txt"))
	if err != nil || len(files) < 7 {
		t.Fatalf("only %d recordings, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			session, err := parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			release, _, _ := strings.Cut(filepath.Base(file), "-")
			r := &replay{t: t, vc: serve(t, release), transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			defer r.transport.CloseIdleConnections()
			for i, e := range session {
				if !r.send(i, e) {
					break // what follows needs this answer
				}
			}
		})
	}
}

// replay is a recorded session under way.
type replay struct {
	t         *testing.T
	vc        *vcenter.VCenter
	transport *http.Transport
	answers   []answer
}

// send makes one exchange. Whoever asked for the state of a task asked until it had ended.
func (r *replay) send(i int, e exchange) bool {
	r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		got, err := r.exchange(e)
		if err != nil {
			r.t.Errorf("exchange %d: %v", i, err)
			return false
		}
		outcome := got.outcome()
		if outcome == e.want {
			r.answers = append(r.answers, got)
			return true
		}
		if !strings.Contains(e.want, "state=") || got.status != http.StatusOK || time.Now().After(deadline) {
			r.t.Errorf("exchange %d: %s %s\n%s\ngot  %s\nwant %s\n%s", i, e.method, e.path, r.expand(e.body), outcome, e.want, got.body)
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *replay) exchange(e exchange) (answer, error) {
	request, err := http.NewRequest(e.method, "https://"+r.vc.URL.Host+e.path, strings.NewReader(r.expand(e.body)))
	if err != nil {
		return answer{}, err
	}
	for name, values := range e.header {
		for _, value := range values {
			request.Header[name] = append(request.Header[name], r.expand(value))
		}
	}
	response, err := r.transport.RoundTrip(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header.Get("Set-Cookie"), body}, err
}

var placeholder = regexp.MustCompile(`\{(/[^{}]*|\d+\.[\w.]+|now\+\d+|host)\}`)

// expand puts values in place of placeholders.
func (r *replay) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(whole string) string {
		value, err := r.value(whole[1 : len(whole)-1])
		if err != nil {
			r.t.Fatalf("%s: %v", whole, err)
		}
		return value
	})
}

func (r *replay) value(name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		if ref := r.vc.Inventory.At(name); ref != nil {
			return ref.Value, nil
		}
		return "", fmt.Errorf("there is nothing at this path")
	}
	if name == "host" {
		return r.vc.URL.Host, nil
	}
	if seconds, ok := strings.CutPrefix(name, "now+"); ok {
		after, err := strconv.Atoi(seconds)
		return time.Now().UTC().Add(time.Duration(after) * time.Second).Format("2006-01-02T15:04:05.000Z"), err
	}
	words := strings.Split(name, ".")
	i, err := strconv.Atoi(words[0])
	if err != nil || i >= len(r.answers) {
		return "", fmt.Errorf("there is no such answer")
	}
	from := &r.answers[i]
	switch {
	case words[1] == "cookie":
		return from.cookie, nil
	case words[1] == "session":
		return token.FindStringSubmatch(from.cookie)[1], nil
	case words[1] == "assertion":
		return string(assertion.Find(from.body)), nil
	case len(words) != 3:
		return "", fmt.Errorf("an element and its place are wanted")
	}
	place, err := strconv.Atoi(words[2])
	if err != nil {
		return "", err
	}
	for _, l := range leaves(from.body) {
		if l.name == words[1] {
			if place == 0 {
				return l.text, nil
			}
			place--
		}
	}
	return "", fmt.Errorf("answer %d has no such element: %s", i, from.body)
}
