package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

const (
	tableBegin = "<!-- assumptions -->\n"
	tableEnd   = "<!-- end of assumptions -->\n"
)

func readREADME(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheREADMEListsEveryAssumption(t *testing.T) {
	table := assume.Table()
	text := readREADME(t)
	before, rest, found := strings.Cut(text, tableBegin)
	present, after, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		t.Fatal("README.md has lost the marks around the table of assumptions")
	}
	if present == table {
		return
	}
	if os.Getenv("UPDATE_README") == "" {
		t.Fatal("the table of assumptions is out of date; run UPDATE_README=1 go test -run README .")
	}
	if err := os.WriteFile("README.md", []byte(before+tableBegin+table+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheREADMEShowsEveryFieldOfADescription(t *testing.T) {
	_, text, _ := strings.Cut(readREADME(t), "```yaml")
	text, _, _ = strings.Cut(text, "```")
	for _, name := range yamlFields(reflect.TypeFor[world.World](), map[reflect.Type]bool{}) {
		if !regexp.MustCompile(`[\s{]` + name + `:`).MatchString(text) {
			t.Errorf("the description in README.md lacks %s", name)
		}
	}
	if _, err := world.Parse(strings.NewReader(text)); err != nil {
		t.Errorf("the description in README.md is wrong:\n%s", err)
	}
}

func yamlFields(kind reflect.Type, seen map[reflect.Type]bool) []string {
	for kind.Kind() == reflect.Slice || kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || seen[kind] {
		return nil
	}
	seen[kind] = true
	var names []string
	for i := range kind.NumField() {
		if name := kind.Field(i).Tag.Get("yaml"); name != "" {
			names = append(names, name)
			names = append(names, yamlFields(kind.Field(i).Type, seen)...)
		}
	}
	return names
}

func TestTheREADMEListsEveryControlCallAndFlag(t *testing.T) {
	text := readREADME(t)
	routes, err := os.ReadFile("internal/control/control.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`"((?:GET|POST|DELETE) [^"]+)":`).FindAllStringSubmatch(string(routes), -1) {
		if !strings.Contains(text, "`"+match[1]+"`") {
			t.Errorf("README.md lacks the call %s", match[1])
		}
	}
	flags, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`flags\.(?:Func|StringVar|IntVar|BoolVar)\((?:&[\w.]+, )?"([\w-]+)"`).FindAllStringSubmatch(string(flags), -1) {
		if !regexp.MustCompile("`-" + match[1] + "[ `]").MatchString(text) {
			t.Errorf("README.md lacks the flag -%s", match[1])
		}
	}
}
