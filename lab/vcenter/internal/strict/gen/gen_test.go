package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestCallsAreReadFromPythonLiterals(t *testing.T) {
	got, ok, err := parseCall(`Create("a.b", None, [("f", "int[]", 0, F_OPTIONAL | F_SECRET), ], ())`)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	want := call{name: "Create", args: []any{"a.b", nil, []any{[]any{"f", "int[]", 0, 12}}, []any{}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v", got)
	}
}

func TestOtherLinesAreNoCalls(t *testing.T) {
	for _, line := range []string{"", "# Create(1)", "from .VmomiSupport import CreateDataType", "x = 1"} {
		if _, ok, err := parseCall(line); ok || err != nil {
			t.Errorf("%q: %v %v", line, ok, err)
		}
	}
}

func TestBrokenCallsAreErrors(t *testing.T) {
	for _, line := range []string{`f("a)`, `f([1)`, `f(unknown)`} {
		if _, _, err := parseCall(line); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}

func TestAnUnexpectedFormIsAnErrorWithItsLine(t *testing.T) {
	err := newModel().read("AddVersion(\"v\", \"\", \"\")\nCreateDataType(\"a\", \"b\")")
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

func TestMarksAreMadeFromVersionsNewerThanTheOldestRelease(t *testing.T) {
	m := newModel()
	text := `AddVersion("vim.version.version15", "vim25", "6.7.3", 0, "vim25")
AddVersion("vim.version.v8", "vim25", "8.0.0.0", 0, "vim25")
AddVersion("pbm.version.v8", "pbm", "8.0.0.0", 0, "pbm")
AddVersionParent("vim.version.v8", "vim.version.version15")
AddVersionParent("pbm.version.v8", "vim.version.v8")
AddVersionParent("pbm.version.v8", "vim.version.version15")`
	if err := m.read(text); err != nil {
		t.Fatal(err)
	}
	g := &generator{model: m}
	for version, want := range map[string]string{
		"vim.version.version15": "-", "vim.version.v8": "vim:8.0.0.0", "pbm.version.v8": "vim:8.0.0.0", "vmodl.version.version0": "-",
	} {
		if got := g.since(version); got != want {
			t.Errorf("%s: %s", version, got)
		}
	}
}
