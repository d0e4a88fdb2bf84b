package assume

import (
	"strings"
	"testing"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

func TestEveryAssumptionSaysWhatItMeansAndWhereItComesFrom(t *testing.T) {
	for _, item := range Default().List() {
		if item.About == "" || item.Source == "" {
			t.Errorf("%s lacks a meaning or a source: %+v", item.Name, item)
		}
	}
}

func TestDefaultsAreAmongTheAllowedValues(t *testing.T) {
	for _, item := range Default().List() {
		if _, err := (Assumptions{}).With(map[string]any{item.Name: item.Value}); err != nil {
			t.Errorf("the default of %s is not allowed: %v", item.Name, err)
		}
	}
}

func TestReleasesInChoicesExist(t *testing.T) {
	for _, item := range Default().List() {
		if !strings.HasSuffix(item.Name, "Since") {
			continue
		}
		for _, name := range item.OneOf {
			if _, err := profile.Lookup(name); err != nil && name != "never" {
				t.Errorf("%s allows %q: %v", item.Name, name, err)
			}
		}
	}
}

func TestWithChangesNamedValues(t *testing.T) {
	got, err := Default().With(map[string]any{"SnapshotLimit": float64(3), "BusyVM": "TaskInProgress", "MultiWriter": false})
	if err != nil {
		t.Fatal(err)
	}
	if got.SnapshotLimit != 3 || got.BusyVM != "TaskInProgress" || got.MultiWriter {
		t.Errorf("not changed: %+v", got)
	}
}

func TestWithRefusesWhatIsWrongAndChangesNothing(t *testing.T) {
	cases := map[string]struct {
		name  string
		value any
		want  string
	}{
		"an unknown name":         {"Nonsense", true, "unknown"},
		"text for a switch":       {"MultiWriter", "yes", "true or false"},
		"a fraction for a number": {"SnapshotLimit", 1.5, "whole number"},
		"a negative number":       {"SnapshotLimit", -1, "whole number"},
		"text for a number":       {"SnapshotLimit", "3", "whole number"},
		"a text not in the list":  {"BusyVM", "panic", "one of wait, TaskInProgress"},
		"a number for a text":     {"BusyVM", 1, "one of"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Default().With(map[string]any{"NameLimit": 5, c.name: c.value})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) {
				t.Errorf("error %v does not name %s and say %q", err, c.name, c.want)
			}
			if got != Default() {
				t.Error("a refused change altered other values")
			}
		})
	}
}
