package strict

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/vmware/govmomi"
	_ "github.com/vmware/govmomi/cns/simulator"
	_ "github.com/vmware/govmomi/lookup/simulator"
	_ "github.com/vmware/govmomi/pbm/simulator"
	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/ssoadmin/simulator"
	_ "github.com/vmware/govmomi/sts/simulator"
	_ "github.com/vmware/govmomi/vslm/simulator"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// release is a profile by name; "next" is one that knows all the table knows.
func release(t testing.TB, name string) *profile.Profile {
	t.Helper()
	if name == "next" {
		return &profile.Profile{Name: name, Rank: 99, APIVersion: "9.1.1.0", Version: "9.1.1", VSANVersion: "9.1.1.0"}
	}
	p, err := profile.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gateOf(t testing.TB, name string) *gate {
	t.Helper()
	g, err := newGate(Config{Profile: release(t, name)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// vc is a stock govmomi simulator behind the middleware. It keeps the faults the middleware wrote, to tell them from
// those of the server behind.
type vc struct {
	url           *url.URL
	stock, strict http.Handler

	mu      sync.Mutex
	refused []string
}

// refusals returns the faults since the last call.
func (v *vc) refusals() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	got := v.refused
	v.refused = nil
	return got
}

// passes fails the test if the middleware refused anything since the last look.
func (v *vc) passes(t testing.TB, what string) {
	t.Helper()
	for _, fault := range v.refusals() {
		t.Errorf("%s was refused:\n%s", what, fault)
	}
}

// start runs a simulator of one release behind the middleware.
func start(t testing.TB, config Config) *vc {
	t.Helper()
	model := simulator.VPX()
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Remove)
	model.Service.RegisterEndpoints = true
	s := model.Service.NewServer()
	t.Cleanup(s.Close)
	v := &vc{url: s.URL, stock: s.Config.Handler}
	strict, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Config.Handler = v.watch(strict, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/sdk/vimServiceVersions.xml":
			writeVersions(w, "urn:vim25", config.Profile.APIVersion)
		case "/sdk/vsanServiceVersions.xml":
			writeVersions(w, "urn:vsan", config.Profile.VSANVersion)
		default:
			v.stock.ServeHTTP(w, r)
		}
	}))
	v.strict = s.Config.Handler
	return v
}

func writeVersions(w http.ResponseWriter, namespace, version string) {
	fmt.Fprintf(w, `<?xml version="1.0"?><namespaces version="1.0"><namespace><name>%s</name><version>%s</version></namespace></namespaces>`,
		namespace, version)
}

// watch keeps what the middleware answers by itself.
func (v *vc) watch(strict func(http.Handler) http.Handler, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed := false
		copied := &copyWriter{ResponseWriter: w}
		strict(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			next.ServeHTTP(w, r)
		})).ServeHTTP(copied, r)
		if !passed {
			v.mu.Lock()
			v.refused = append(v.refused, copied.body.String())
			v.mu.Unlock()
		}
	})
}

type copyWriter struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (w *copyWriter) Write(b []byte) (int, error) {
	w.body.Write(b)
	return w.ResponseWriter.Write(b)
}

func login(t testing.TB, v *vc) (context.Context, *govmomi.Client) {
	t.Helper()
	ctx := context.Background()
	c, err := govmomi.NewClient(ctx, v.url, true)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, c
}
