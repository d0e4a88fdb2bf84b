package assume

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// Item is one assumption as documentation and the control endpoint show it.
type Item struct {
	Name    string   `json:"name"`
	Value   any      `json:"value"`
	OneOf   []string `json:"oneOf,omitempty"`
	About   string   `json:"about"`
	Source  string   `json:"source"`
	Default any      `json:"default"`
}

// List tells every assumption with its present value, in the order of the struct.
func (a Assumptions) List() []Item {
	now, usual := reflect.ValueOf(a), reflect.ValueOf(Default())
	items := make([]Item, 0, now.NumField())
	for i := range now.NumField() {
		field := now.Type().Field(i)
		items = append(items, Item{
			Name:    field.Name,
			Value:   now.Field(i).Interface(),
			OneOf:   choices(field),
			About:   field.Tag.Get("about"),
			Source:  field.Tag.Get("source"),
			Default: usual.Field(i).Interface(),
		})
	}
	return items
}

// With returns a copy with the named values changed. Values are what JSON and YAML decode to. If one name or
// value is wrong, nothing is changed and the error names all that are wrong.
func (a Assumptions) With(changes map[string]any) (Assumptions, error) {
	changed := a
	target := reflect.ValueOf(&changed).Elem()
	names := make([]string, 0, len(changes))
	for name := range changes {
		names = append(names, name)
	}
	sort.Strings(names)

	var wrong []error
	for _, name := range names {
		field, found := target.Type().FieldByName(name)
		if !found {
			wrong = append(wrong, fmt.Errorf("assumption %q is unknown; see the list of assumptions for the names", name))
			continue
		}
		if err := assign(target.FieldByIndex(field.Index), field, changes[name]); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return a, errors.Join(wrong...)
	}
	return changed, nil
}

func assign(target reflect.Value, field reflect.StructField, value any) error {
	switch target.Kind() {
	case reflect.Bool:
		on, ok := value.(bool)
		if !ok {
			return fmt.Errorf("assumption %s is %v, but must be true or false", field.Name, value)
		}
		target.SetBool(on)
	case reflect.Int:
		number, ok := wholeNumber(value)
		if !ok || number < 0 {
			return fmt.Errorf("assumption %s is %v, but must be a whole number from 0", field.Name, value)
		}
		target.SetInt(number)
	default:
		text, ok := value.(string)
		if allowed := choices(field); !ok || !slices.Contains(allowed, text) {
			return fmt.Errorf("assumption %s is %v, but must be one of %s", field.Name, value, strings.Join(allowed, ", "))
		}
		target.SetString(text)
	}
	return nil
}

func wholeNumber(value any) (int64, bool) {
	switch number := value.(type) {
	case int:
		return int64(number), true
	case int64:
		return number, true
	case float64:
		return int64(number), number == math.Trunc(number) && math.Abs(number) < 1<<53
	}
	return 0, false
}

func choices(field reflect.StructField) []string {
	if text := field.Tag.Get("oneof"); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}
