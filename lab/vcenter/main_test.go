package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmware/govmomi"
)

const patience = time.Minute

// process is the command, running inside the test.
type process struct {
	t      *testing.T
	stdin  *io.PipeWriter
	ready  ready
	ended  chan int
	stderr *bytes.Buffer
}

// begin runs the command and waits for its line on standard output.
func begin(t *testing.T, arguments ...string) *process {
	t.Helper()
	t.Chdir(t.TempDir()) // the command changes the working directory; this puts it back
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	p := &process{t: t, stdin: stdin, ended: make(chan int, 1), stderr: new(bytes.Buffer)}
	go func() {
		code := run(arguments, in, out, p.stderr)
		_ = out.Close()
		p.ended <- code
	}()
	t.Cleanup(func() { _ = stdin.Close() })
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("no line on standard output: %v; standard error: %s", err, p.stderr)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	if err := json.Unmarshal(line, &p.ready); err != nil {
		t.Fatalf("%s: %s", line, err)
	}
	return p
}

func (p *process) end() {
	p.t.Helper()
	select {
	case code := <-p.ended:
		if code != 0 {
			p.t.Errorf("ended with %d: %s", code, p.stderr)
		}
	case <-time.After(patience):
		p.t.Fatal("it does not end")
	}
}

func (p *process) login(i int) *govmomi.Client {
	p.t.Helper()
	address, err := url.Parse(p.ready.VCenters[i].URL)
	if err != nil {
		p.t.Fatal(err)
	}
	address.User = url.UserPassword("administrator@vsphere.local", "Lab-admin-1!")
	client, err := govmomi.NewClient(context.Background(), address, true)
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

func TestTheDefaultWorldServesAClientAndEndsWithStandardInput(t *testing.T) {
	p := begin(t, "-world", "default", "-exit-with-stdin")
	if got := p.login(0).ServiceContent.About.ApiVersion; got != "8.0.3.0" {
		t.Errorf("API version %s", got)
	}
	at := p.ready.VCenters[0]
	if at.Name != "vcenter" || len(at.ThumbprintSHA1) != 59 || len(at.ThumbprintSHA256) != 95 {
		t.Errorf("got %+v", at)
	}
	answer, err := http.Get(at.Control + "/state")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("control endpoint: %v %v", answer, err)
	}
	_ = answer.Body.Close()
	_ = p.stdin.Close()
	p.end()
}

func TestSignalsEndIt(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			p := begin(t, "-world", "default")
			if err := syscall.Kill(os.Getpid(), signal); err != nil {
				t.Fatal(err)
			}
			p.end()
		})
	}
}

func TestOneProcessHoldsSeveralVCenters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two.yaml")
	user := "users: [{name: administrator@vsphere.local, password: Lab-admin-1!, permissions: [{role: Admin, on: /}]}]\n"
	text := "name: a\n" + user + "datacenters: [{name: dc}]\n---\nname: b\nrelease: 7.0U3\n" + user + "datacenters: [{name: dc}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, "-world", file, "-world", "default", "-exit-with-stdin", "-generate", "3")
	if len(p.ready.VCenters) != 3 || p.ready.VCenters[1].Name != "b" || p.ready.VCenters[1].Release != "7.0U3" {
		t.Fatalf("got %+v", p.ready)
	}
	seen := map[string]bool{}
	for i := range p.ready.VCenters {
		seen[p.login(i).ServiceContent.About.InstanceUuid] = true
		seen[p.ready.VCenters[i].ThumbprintSHA1] = true
	}
	if len(seen) != 6 {
		t.Errorf("instance UUIDs and thumbprints are not all different: %v", seen)
	}
	_ = p.stdin.Close()
	p.end()
}

func TestTheLatencyOfADescriptionIsSaidAndCanBeReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(file, []byte("latency: loaded\ndatacenters: [{name: dc}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, arguments := range map[string][]string{"loaded": nil, "idle": {"-latency", "idle"}, "none": {"-latency", "none"}} {
		p := begin(t, append([]string{"-world", file, "-exit-with-stdin"}, arguments...)...)
		if got := p.ready.VCenters[0].Latency; got != want {
			t.Errorf("%v: %s", arguments, got)
		}
		_ = p.stdin.Close()
		p.end()
	}
}

func TestMistakesEndWithTwoAndSayWhere(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\ndatacentres: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	two := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(two, []byte("name: a\ndatacenters: [{name: dc}]\n---\nname: b\ndatacenters: [{name: dc}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"a bad description":           {[]string{"-world", bad}, bad + `:2: datacentres: unknown field; did you mean "datacenters"?`},
		"no description":              {nil, "-world is missing"},
		"a missing file":              {[]string{"-world", "/nowhere/x.yaml"}, "no such file"},
		"an unknown flag":             {[]string{"-wrld", "default"}, "wrld"},
		"a stray argument":            {[]string{"-world", "default", "more"}, `unknown argument "more"`},
		"a key without authority":     {[]string{"-world", "default", "-ca-key", "x"}, "-ca and -ca-key belong together"},
		"an unknown latency":          {[]string{"-world", "default", "-latency", "slow"}, `latency profile "slow" is unknown`},
		"JSON of nothing":             {[]string{"-world", "default", "-json"}, "-json belongs to -assumptions"},
		"a negative number of VMs":    {[]string{"-world", "default", "-generate", "-1"}, "-generate must not be negative"},
		"one port for several worlds": {[]string{"-world", two, "-listen", "127.0.0.1:9443"}, "cannot share a port"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(test.arguments, strings.NewReader(""), &stdout, &stderr)
			if code != exitUsage || !strings.Contains(stderr.String(), test.want) || stdout.Len() != 0 {
				t.Errorf("code %d, output %q, error %q", code, stdout.String(), stderr.String())
			}
		})
	}
}

func TestADescriptionCanBeCheckedWithoutStarting(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-world", "default", "-check"}, strings.NewReader(""), &stdout, &stderr); code != 0 || stdout.Len()+stderr.Len() != 0 {
		t.Errorf("code %d, %s%s", code, stdout.String(), stderr.String())
	}
}

func TestAnUnreadableAuthorityIsAFailure(t *testing.T) {
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	code := run([]string{"-world", "default", "-ca", "/nowhere/ca.pem", "-ca-key", "/nowhere/ca.key"}, strings.NewReader(""), &stdout, &stderr)
	if code != exitFailure || !strings.Contains(stderr.String(), "certificate authority") {
		t.Errorf("code %d, %s", code, stderr.String())
	}
}
