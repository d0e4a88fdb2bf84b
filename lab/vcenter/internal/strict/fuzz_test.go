package strict

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// FuzzNoRequestPanics feeds mutated requests. Neither the middleware nor govmomi's decoder behind it may panic, and
// what passes must be decodable.
func FuzzNoRequestPanics(f *testing.F) {
	f.Add("urn:vim25/8.0.3.0", []byte(envelope(loginCall)))
	f.Add("urn:vim25/6.7", []byte(filter(`<selectSet xsi:type="TraversalSpec"><name>a</name><type>Folder</type><path>childEntity</path></selectSet>`)))
	f.Add("urn:vim25/8.0.3.0", []byte(filter(`<selectSet/><selectSet><name>a</name></selectSet>`)))
	f.Add("urn:vim25/9.1.0.0", []byte(reconfigure(`<numCPUs>2</numCPUs><extraConfig xsi:type="OptionValue"><key>a</key><value xsi:type="xsd:string">b</value></extraConfig>`)))
	f.Add("urn:vim25/8.0.3.0", []byte(reconfigure(`<extraConfig xsi:type="OptionValue"><key>a</key><value xsi:type="ArrayOfString"><string>b</string></value></extraConfig>`)))
	f.Add("urn:vim25/8.0.3.0", []byte(reconfigure(`<extraConfig xsi:type="OptionValue"><key>a</key><value xsi:type="ManagedObjectReference" type="Folder">b</value></extraConfig>`)))
	f.Add("urn:vsan/", []byte(create(`<name>a</name>`)))
	strict, err := New(Config{Profile: release(f, "8.0U3"), MaxBody: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, action string, body []byte) {
		for _, path := range []string{"/sdk", "/vsanHealth", "/pbm", "/vslm/sdk", "/sso-adminserver/sdk"} {
			r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
			r.Header.Set("SOAPAction", action)
			w := httptest.NewRecorder()
			passed := false
			var typed []byte
			strict(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				passed = true
				typed, _ = io.ReadAll(r.Body)
			})).ServeHTTP(w, r)
			if passed == (w.Code == http.StatusInternalServerError) {
				t.Fatalf("passed: %v, status %d", passed, w.Code)
			}
			if passed && path == "/sdk" {
				if _, err := simulator.UnmarshalBody(types.TypeFunc(), typed); err != nil {
					t.Fatalf("passed but cannot be decoded: %v", err)
				}
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	strict, err := New(Config{Profile: release(b, "8.0U3")})
	if err != nil {
		b.Fatal(err)
	}
	handler := strict(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, body := range map[string]string{
		"login":       envelope(loginCall),
		"filter":      filter(`<skip>false</skip><selectSet xsi:type="TraversalSpec"><name>a</name><type>Folder</type><path>childEntity</path></selectSet>`),
		"reconfigure": reconfigure(`<numCPUs>2</numCPUs><extraConfig xsi:type="OptionValue"><key>a</key><value xsi:type="xsd:string">b</value></extraConfig>`),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/sdk", bytes.NewReader([]byte(body)))
				r.Header.Set("SOAPAction", "urn:vim25/8.0.3.0")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
