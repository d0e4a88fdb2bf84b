package schema

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed table.txt
var tableText string

//go:embed overlay.txt
var overlayText string

// Table holds what govmomi's structs do not say: versions, VMODL names, which parameters may be left out and
// which kind of managed object a reference must name.
type Table struct {
	versions [2][]string
	types    map[string]*typeFacts
	methods  map[string]*methodFacts
	managed  map[string]managedFacts
	concrete map[string]bool
}

type typeFacts struct {
	vmodl  string
	since  Since
	fields []fieldFacts // in the order of the wire
}

type fieldFacts struct {
	name     string
	since    Since
	optional bool   // pyVmomi says it may be absent though govmomi always sends it
	required bool   // pyVmomi says it must be there though govmomi may leave it out
	single   bool   // pyVmomi has one where govmomi has an array
	abstract string // declared type that govmomi lacks
	ref      string // kind of managed object, if it is a reference
	after    string // for a field govmomi lacks or has elsewhere: the one it follows
	simple   string // for a field govmomi lacks: its simple type
}

type methodFacts struct {
	typeFacts
	on string // kind of managed object that has the method
	// anonymous methods are those whose privilege is System.Anonymous.
	anonymous bool
}

type managedFacts struct {
	vmodl, parent string
	since         Since
}

// Shared is the table generated into this package. It is read only.
var Shared = sync.OnceValues(func() (*Table, error) { return parse(tableText + overlayText) })

// parse reads the table. The form of a line is described in the package comment.
func parse(text string) (*Table, error) {
	t := &Table{
		types:   make(map[string]*typeFacts),
		methods: make(map[string]*methodFacts),
		managed: make(map[string]managedFacts), concrete: make(map[string]bool),
	}
	for n, line := range strings.Split(text, "\n") {
		word := strings.Fields(line)
		if len(word) == 0 || strings.HasPrefix(word[0], "#") {
			continue
		}
		if err := t.add(word); err != nil {
			return nil, fmt.Errorf("table line %d: %w", n+1, err)
		}
	}
	return t, nil
}

func (t *Table) add(word []string) error {
	least := map[string]int{"versions": 3, "managed": 5, "method": 5, "type": 4, "fields": 3, "concrete": 2}
	if need, ok := least[word[0]]; !ok || len(word) < need {
		return fmt.Errorf("%q is no line of the table", strings.Join(word, " "))
	}
	switch word[0] {
	case "versions":
		line := Vim
		if word[1] == "vsan" {
			line = VSAN
		}
		for _, v := range word[2:] {
			t.versions[line] = append(t.versions[line], strings.ReplaceAll(v, "_", " "))
		}
	case "managed":
		since, err := t.since(word[4])
		if err != nil {
			return err
		}
		t.managed[word[1]] = managedFacts{vmodl: word[2], parent: strings.TrimPrefix(word[3], "-"), since: since}
	case "concrete":
		t.concrete[word[1]] = true
	case "type":
		facts, err := t.typeFacts(word[2], word[3], word[4:])
		if err != nil {
			return err
		}
		t.types[word[1]] = &facts
	case "fields":
		have := t.types[word[1]]
		if have == nil {
			return fmt.Errorf("fields of the unknown type %q", word[1])
		}
		facts, err := t.typeFacts("", "-", word[2:])
		if err != nil {
			return err
		}
		have.fields = append(have.fields, facts.fields...)
	case "method":
		m := &methodFacts{on: strings.TrimSuffix(word[3], "!"), anonymous: strings.HasSuffix(word[3], "!")}
		var err error
		if m.typeFacts, err = t.typeFacts(word[2], word[4], word[5:]); err != nil {
			return err
		}
		t.methods[word[1]] = m
	}
	return nil
}

func (t *Table) typeFacts(vmodl, since string, fields []string) (typeFacts, error) {
	facts := typeFacts{vmodl: vmodl}
	var err error
	if facts.since, err = t.since(since); err != nil {
		return facts, err
	}
	for _, f := range fields {
		field, err := t.fieldFacts(f)
		if err != nil {
			return facts, err
		}
		facts.fields = append(facts.fields, field)
	}
	return facts, nil
}

// fieldFacts reads name[?][!][~][=since][@managed][^abstract][+after[:simple]].
func (t *Table) fieldFacts(word string) (fieldFacts, error) {
	var f fieldFacts
	const marks = "?!~=@^+"
	end := strings.IndexAny(word, marks)
	if end < 0 {
		return f, fmt.Errorf("field %q says nothing", word)
	}
	f.name = word[:end]
	rest := word[end:]
	for rest != "" {
		mark := rest[0]
		rest = rest[1:]
		value := rest
		if next := strings.IndexAny(rest, marks); next >= 0 {
			value, rest = rest[:next], rest[next:]
		} else {
			rest = ""
		}
		switch mark {
		case '?':
			f.optional = true
		case '!':
			f.required = true
		case '~':
			f.single = true
		case '^':
			f.abstract = value
		case '=':
			var err error
			if f.since, err = t.since(value); err != nil {
				return f, err
			}
		case '@':
			f.ref = value
		case '+':
			f.after, f.simple, _ = strings.Cut(value, ":")
		}
	}
	return f, nil
}

// since reads vim:VERSION or vsan:VERSION, or - for "always".
func (t *Table) since(word string) (Since, error) {
	if word == "-" {
		return Since{}, nil
	}
	line, version, _ := strings.Cut(word, ":")
	s := Since{Line: Vim}
	if line == "vsan" {
		s.Line = VSAN
	}
	if s.Rank = t.Rank(s.Line, strings.ReplaceAll(version, "_", " ")); s.Rank == 0 {
		return s, fmt.Errorf("version %q is in no history", word)
	}
	return s, nil
}

// Methods lists the calls the table has.
func (t *Table) Methods() []string {
	return slices.Sorted(maps.Keys(t.methods))
}

// Anonymous tells whether a method needs no more than the privilege System.Anonymous, and the kind of managed object
// that has it.
func (t *Table) Anonymous(method string) (on string, anonymous bool) {
	if m := t.methods[method]; m != nil {
		return m.on, m.anonymous
	}
	return "", false
}

// VMODL is the name a managed type has in vCenter's messages; the name itself if the table lacks it.
func (t *Table) VMODL(managed string) string {
	if m, ok := t.managed[managed]; ok {
		return m.vmodl
	}
	return managed
}

// Abstract tells whether a data type exists only to be inherited from. No public description of the API says so; a type
// without any field is taken for one, unless it is known to be used by itself.
func (t *Table) Abstract(o *Object) bool {
	return len(o.Fields) == 0 && !t.concrete[o.Name]
}

// IsManaged tells whether the table has a kind of managed object that this release knows.
func (t *Table) IsManaged(name string, r Release) bool {
	m, ok := t.managed[name]
	return ok && r.Knows(m.since)
}

// Descends tells whether a kind of managed object is base or inherits from it.
func (t *Table) Descends(name, base string) bool {
	// The bound keeps a cycle in the table from hanging the simulator.
	for range 16 {
		if name == base {
			return true
		}
		m, ok := t.managed[name]
		if !ok || m.parent == "" {
			return false
		}
		name = m.parent
	}
	return false
}
