package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const golden = "../../../../crates/vsphere/tests/golden"

func performed(t *testing.T) map[string]string {
	t.Helper()
	requests, err := all(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, r := range requests {
		if files[r.file()] != "" {
			t.Errorf("two requests are called %s", r.file())
		}
		files[r.file()] = r.text
	}
	return files
}

func TestTwoRunsAreEqual(t *testing.T) {
	first, second := performed(t), performed(t)
	for file, text := range first {
		if second[file] != text {
			t.Errorf("%s was first\n%s\nand then\n%s", file, text, second[file])
		}
	}
}

func TestTheGoldenFilesAreWhatWeSend(t *testing.T) {
	sent := performed(t)
	entries, err := os.ReadDir(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(golden, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if sent[entry.Name()] != string(text) {
			t.Errorf("%s is out of date; run go run ./cmd/requests -out ../../crates/vsphere/tests/golden", entry.Name())
		}
		delete(sent, entry.Name())
	}
	for file := range sent {
		t.Errorf("%s is missing from the golden files", file)
	}
}

func TestEveryRequestParses(t *testing.T) {
	for file, text := range performed(t) {
		if !strings.HasSuffix(file, ".xml") {
			continue
		}
		// The prefixes are not bound, which the decoder does not mind.
		decoder := xml.NewDecoder(strings.NewReader(text))
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", file, err)
				break
			}
		}
	}
}

func TestTheNormalFormDoesNotDependOnPrefixes(t *testing.T) {
	const want = `<Call b="2" xsi:type="Kind">
  <text>&lt;a> &amp; "b"</text>
  <empty></empty>
  <value xsi:type="xsd:int">1</value>
</Call>
`
	for _, body := range []string{
		`<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"
			xmlns:x="http://www.w3.org/2001/XMLSchema"><e:Body><Call xmlns="urn:vsan" xmlns:v="urn:vsan" i:type="v:Kind" b="2">
			<text>&lt;a&gt; &amp; &quot;b&quot;</text><empty/><value i:type="x:int">1</value></Call></e:Body></e:Envelope>`,
		`<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><Call xmlns="urn:vsan" b="2" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
			xsi:type="Kind"><text>&lt;a> &amp; "b"</text><empty></empty><value xsi:type="xsd:int">1</value></Call></Body></Envelope>`,
	} {
		_, call, err := readEnvelope([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		call.write(&text, "")
		if text.String() != want {
			t.Errorf("got\n%s", text.String())
		}
	}
}
