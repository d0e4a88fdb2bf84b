package traffic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func call(name string) (*simulator.Context, *simulator.Method) {
	return new(simulator.Context), &simulator.Method{Name: name, Body: &types.CurrentTime{}}
}

func TestARuleStrikesExactlyAsOftenAsAskedWhenManyCall(t *testing.T) {
	traffic := New()
	fault, err := MakeFault("NoPermission", nil)
	if err != nil {
		t.Fatal(err)
	}
	traffic.AddCall(CallRule{Method: "CurrentTime", At: AtCall, Fault: "NoPermission", Chance: Chance{Count: 7, Skip: 5, Probability: 1}}, fault)
	var struck atomic.Int32
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			for range 20 {
				if traffic.Check(call("CurrentTime")) != nil {
					struck.Add(1)
				}
			}
		})
	}
	calls.Wait()
	if struck.Load() != 7 {
		t.Errorf("struck %d times", struck.Load())
	}
	if counts := traffic.Calls(); len(counts) != 1 || counts[0].Count != 1000 {
		t.Errorf("counted %v", counts)
	}
}

func TestFaultsAreMadeFromNameAndFields(t *testing.T) {
	for _, test := range []struct{ name, fields, want string }{
		{"NoPermission", `{"object":{"type":"Folder","value":"group-d1"},"privilegeId":"a.b"}`, ""},
		{"CnsFault", `{"reason":"x"}`, ""},
		{"TaskInProgress", ``, ""},
		{"Folder", ``, "vSphere has no type"},
		{"GuestInfo", ``, "is no fault"},
		{"NoPermission", `{"nonsense":1}`, "fields: unknown field"},
		{"CnsFault", `{"reason":"a","faultCause":{"fault":{"_typeName":"SystemError","reason":"b"},"localizedMessage":"c"}}`, ""},
		{"CnsFault", `{"faultCause":{"fault":{"_typeName":"SystemError","nonsense":"b"},"localizedMessage":"c"}}`, "fields: unknown field"},
		{"CnsFault", `{"faultCause":{"fault":{"_typeName":"Nonsense"},"localizedMessage":"c"}}`, "no type"},
		{"NoPermission", `{"privilegeId":1}`, "fields: "},
		{"NoPermission", `{`, "fields: "},
	} {
		fault, err := MakeFault(test.name, json.RawMessage(test.fields))
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s %s: %s", test.name, test.fields, err)
		case test.want == "" && !strings.HasSuffix(fmt.Sprintf("%T", fault), "."+test.name):
			t.Errorf("%s became a %T", test.name, fault)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s %s: got %v", test.name, test.fields, err)
		}
	}
}

func TestUsersAreWrittenOneWay(t *testing.T) {
	for given, want := range map[string]string{
		`VSPHERE.LOCAL\csi`: "csi@vsphere.local", "CSI@vsphere.local": "csi@vsphere.local", "": "",
	} {
		if got := UserName(given); got != want {
			t.Errorf("%q became %q", given, got)
		}
	}
}

func TestDelaysEndWithTheVCenter(t *testing.T) {
	traffic := New()
	traffic.AddCall(CallRule{Method: "*", At: AtCall, Delay: 3_600_000, Chance: Chance{Probability: 1}}, nil)
	done := make(chan struct{})
	go func() {
		traffic.Check(call("CurrentTime"))
		traffic.Note("a@b", "GET /api/session")
		close(done)
	}()
	for len(traffic.Calls()) == 0 {
		time.Sleep(time.Millisecond)
	}
	traffic.Close()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the call still waits")
	}
}

func TestTheMethodIsReadFromTheRequestAndTheBodyKept(t *testing.T) {
	const text = `<?xml version="1.0"?><e:Envelope xmlns:e="x"><e:Header><ID>1</ID></e:Header><e:Body><Login xmlns="urn:vim25"><a/></Login></e:Body></e:Envelope>`
	request := httptest.NewRequest(http.MethodPost, "/sdk", strings.NewReader(text))
	if got := soapMethod(request); got != "Login" {
		t.Errorf("got %q", got)
	}
	if rest, err := io.ReadAll(request.Body); err != nil || string(rest) != text {
		t.Errorf("the body became %q, %v", rest, err)
	}
	for _, broken := range []string{"", "<a", "{}", "<Envelope><Body>"} {
		if got := soapMethod(httptest.NewRequest(http.MethodPost, "/sdk", strings.NewReader(broken))); got != "" {
			t.Errorf("%q has method %q", broken, got)
		}
	}
}
