// Package assume holds what we believe about a real vCenter but could not check on one.
//
// Every belief is a Row: its value in each release, its other choices, and the evidence for it. A row is read with In,
// from the Settings of one vCenter. A test can switch it and see whether a driver survives the other answer, and the
// first real vCenter can correct it in one place.
//
// Rows are declared in the files of this package, by subject. In records what was read, so that a walk through the
// choices (cargo xtask walk) runs a test only under those of the assumptions that it depends on.
package assume

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// Row is one assumption.
type Row struct {
	Name  string // of the variable that holds the row
	About string // what the value means
	// Evidence names rows of the collection of evidence (X2, A3 …) or another source; "unknown" when there is none.
	Evidence string
	// Choices are all values of a text; of a number those that a walk tries; a switch has none.
	Choices []any
	// Since gives the value from a release on; "" is the oldest.
	Since map[string]any
	// Unusable are choices under which no driver can work: their test shows them, a walk leaves them out.
	Unusable []any
	// ShownBy is a test of ours that fails under every other choice, as package.Test.
	ShownBy string

	place int
}

// Text, Switch and Number are assumptions whose values are of these kinds.
type (
	Text   struct{ *Row }
	Switch struct{ *Row }
	Number struct{ *Row }
)

// In reads the assumption for one vCenter.
func (t Text) In(s *Settings) string { return s.read(t.Row).(string) }

// In reads the assumption for one vCenter.
func (t Switch) In(s *Settings) bool { return s.read(t.Row).(bool) }

// In reads the assumption for one vCenter.
func (t Number) In(s *Settings) int { return s.read(t.Row).(int) }

// rows are all assumptions, filled while the package's variables are made and never changed afterwards.
var rows []*Row

func text(r Row) Text     { return Text{add(r)} }
func toggle(r Row) Switch { r.Choices = []any{true, false}; return Switch{add(r)} }
func number(r Row) Number { return Number{add(r)} }

func add(r Row) *Row {
	r.place = len(rows)
	rows = append(rows, &r)
	return &r
}

// All gives every assumption.
func All() []*Row { return slices.Clone(rows) }

// Lookup finds an assumption by its name.
func Lookup(name string) (*Row, error) {
	for _, r := range rows {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("assumption %q is unknown; `vcenter -assumptions` lists them", name)
}

// Default is the value in a release.
func (r *Row) Default(release *profile.Profile) any {
	value := r.Since[""]
	for _, p := range profile.All {
		if v, found := r.Since[p.Name]; found && p.Rank <= release.Rank {
			value = v
		}
	}
	return value
}

// Others are the choices that differ from the value in a release.
func (r *Row) Others(release *profile.Profile) []any {
	return slices.DeleteFunc(slices.Clone(r.Choices), func(v any) bool { return v == r.Default(release) })
}

// Check gives the value as it is stored, or what is wrong with it. Values are what JSON and YAML decode to.
func (r *Row) Check(value any) (any, error) {
	switch r.Since[""].(type) {
	case bool:
		if _, ok := value.(bool); ok {
			return value, nil
		}
		return nil, fmt.Errorf("assumption %s is %v, but must be true or false", r.Name, value)
	case int:
		if number, ok := wholeNumber(value); ok && number >= 0 {
			return number, nil
		}
		return nil, fmt.Errorf("assumption %s is %v, but must be a whole number from 0", r.Name, value)
	}
	if slices.Contains(r.Choices, value) {
		return value, nil
	}
	allowed := make([]string, len(r.Choices))
	for i, choice := range r.Choices {
		allowed[i] = choice.(string)
	}
	return nil, fmt.Errorf("assumption %s is %v, but must be one of %s", r.Name, value, strings.Join(allowed, ", "))
}

// Check tells what is wrong with a name or its value.
func Check(name string, value any) error {
	r, err := Lookup(name)
	if err == nil {
		_, err = r.Check(value)
	}
	return err
}

func wholeNumber(value any) (int, bool) {
	switch number := value.(type) {
	case int:
		return number, true
	case int64:
		return int(number), true
	case float64:
		return int(number), number == math.Trunc(number) && math.Abs(number) < 1<<53
	}
	return 0, false
}

// parse reads a value from text, as the environment has it.
func (r *Row) parse(value string) (any, error) {
	switch reflect.TypeOf(r.Since[""]).Kind() {
	case reflect.Bool:
		return r.Check(map[string]any{"true": true, "false": false}[value])
	case reflect.Int:
		var number int
		if _, err := fmt.Sscan(value, &number); err != nil {
			return r.Check(value)
		}
		return r.Check(number)
	}
	return r.Check(value)
}
