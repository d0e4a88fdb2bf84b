package assume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

func settings(t *testing.T, release string) *Settings {
	t.Helper()
	p, err := profile.Lookup(release)
	if err != nil {
		t.Fatal(err)
	}
	s, err := For(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryRowIsComplete(t *testing.T) {
	names := map[string]bool{}
	for _, r := range All() {
		if r.About == "" || r.Evidence == "" || len(r.Choices) < 2 || names[r.Name] {
			t.Errorf("%s lacks a meaning, evidence or choices, or stands twice: %+v", r.Name, r)
		}
		names[r.Name] = true
		for _, choice := range r.Choices {
			if parsed, err := r.parse(fmt.Sprint(choice)); parsed != choice || strings.ContainsAny(fmt.Sprint(choice), ",\n") {
				t.Errorf("%s: %v cannot be written in %s: it is read as %v, %v", r.Name, choice, Forced, parsed, err)
			}
		}
		for _, choice := range r.Unusable {
			if !slices.Contains(r.Choices, choice) {
				t.Errorf("%s: %v is not among the choices", r.Name, choice)
			}
		}
		for release, value := range r.Since {
			if _, err := profile.Lookup(release); err != nil && release != "" {
				t.Errorf("%s: %v", r.Name, err)
			}
			if _, err := r.Check(value); err != nil {
				t.Error(err)
			}
			if !slices.Contains(r.Choices, value) {
				t.Errorf("%s: %v is not among the choices", r.Name, value)
			}
		}
		if r.Since[""] == nil {
			t.Errorf("%s has no value for the oldest release", r.Name)
		}
	}
}

func TestANameIsThatOfTheVariable(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, r := range All() {
		declared := fmt.Sprintf("var %s = ", r.Name)
		if before, after, found := strings.Cut(source.String(), declared); !found || !strings.Contains(after[:60], `"`+r.Name+`"`) || before == "" {
			t.Errorf("no variable %s holds the row of this name", r.Name)
		}
	}
}

func TestValuesFollowTheRelease(t *testing.T) {
	if Snapshots.In(settings(t, "6.7U3")) || !Snapshots.In(settings(t, "7.0U3")) || !Snapshots.In(settings(t, "9.1")) {
		t.Error("snapshots begin with another release than 7.0U3")
	}
}

func TestSetChangesNamedValues(t *testing.T) {
	s := settings(t, profile.Default)
	if err := s.Set(map[string]any{"SnapshotLimit": float64(3), "LabelsMatch": "all", "RestoreLarger": true}); err != nil {
		t.Fatal(err)
	}
	if SnapshotLimit.In(s) != 3 || LabelsMatch.In(s) != "all" || !RestoreLarger.In(s) {
		t.Errorf("not changed: %+v", s.List())
	}
}

func TestSetRefusesWhatIsWrongAndChangesNothing(t *testing.T) {
	cases := map[string]struct {
		name  string
		value any
		want  string
	}{
		"an unknown name":         {"Nonsense", true, "unknown"},
		"text for a switch":       {"RestoreLarger", "yes", "true or false"},
		"a fraction for a number": {"SnapshotLimit", 1.5, "whole number"},
		"a negative number":       {"SnapshotLimit", -1, "whole number"},
		"text for a number":       {"SnapshotLimit", "3", "whole number"},
		"a text not in the list":  {"LabelsMatch", "panic", "one of any, all"},
		"a number for a text":     {"LabelsMatch", 1, "one of"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := settings(t, profile.Default)
			err := s.Set(map[string]any{"NameLimit": 5, c.name: c.value})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) {
				t.Errorf("error %v does not name %s and say %q", err, c.name, c.want)
			}
			if NameLimit.In(s) == 5 {
				t.Error("a refused change altered another value")
			}
		})
	}
}

func TestTheEnvironmentForcesDefaultsAndRecordsWhatWasRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "consulted")
	t.Setenv(Forced, "LabelsMatch=all,RestoreLarger=true,SnapshotLimit=3")
	t.Setenv(Recorded, file)
	s := settings(t, profile.Default)
	if err := s.Set(map[string]any{"SnapshotLimit": 7}); err != nil {
		t.Fatal(err)
	}
	if LabelsMatch.In(s) != "all" || !RestoreLarger.In(s) || SnapshotLimit.In(s) != 7 {
		t.Errorf("%+v", s.List())
	}
	LabelsMatch.In(s)
	text, err := os.ReadFile(file)
	if want := "LabelsMatch=all\nRestoreLarger=true\n"; err != nil || string(text) != want {
		t.Errorf("recorded %q, %v; want %q", text, err, want)
	}
	for _, wrong := range []string{"Nonsense=1", "LabelsMatch=some", "RestoreLarger=yes", "SnapshotLimit=many"} {
		t.Setenv(Forced, wrong)
		if _, err := For(profile.All[0]); err == nil || !strings.Contains(err.Error(), Forced) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
