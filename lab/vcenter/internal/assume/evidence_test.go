package assume

import (
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// evidence has a line for every row of the collection of evidence about real vCenters; its head says what a line means.
//
//go:embed evidence.txt
var evidence string

// counterpart is what answers one row of the evidence.
type counterpart struct {
	tests  []string
	reason string
	open   bool
}

func readEvidence(text string) (map[string]counterpart, []string) {
	found, wrong := map[string]counterpart{}, []string{}
	for _, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		facts, reason, _ := strings.Cut(line, " - ")
		fields := strings.Fields(facts)
		if _, twice := found[fields[0]]; twice {
			wrong = append(wrong, fields[0]+" stands twice")
		}
		c := counterpart{tests: fields[1:], reason: strings.TrimSpace(reason)}
		if slices.Equal(c.tests, []string{"open"}) {
			c = counterpart{open: true}
		}
		found[fields[0]] = c
	}
	return found, wrong
}

// cited are the assumptions that name each row in their evidence, such as X2, A3 or C1–C3.
func cited(t *testing.T, all []string) map[string][]*Row {
	t.Helper()
	by := map[string][]*Row{}
	id := regexp.MustCompile(`\b([A-Z])(\d+[a-z]?)(?:–([A-Z])(\d+))?\b`)
	for _, r := range All() {
		for _, match := range id.FindAllStringSubmatch(r.Evidence, -1) {
			names := []string{match[1] + match[2]}
			if match[3] != "" {
				var from, to int
				if _, err := fmt.Sscan(match[2], &from); err != nil || match[1] != match[3] {
					t.Errorf("%s: %s is not a range", r.Name, match[0])
				}
				if _, err := fmt.Sscan(match[4], &to); err != nil {
					t.Error(err)
				}
				names = nil
				for number := from; number <= to; number++ {
					names = append(names, fmt.Sprintf("%s%d", match[1], number))
				}
			}
			for _, name := range names {
				if !slices.Contains(all, name) {
					t.Errorf("%s cites %s, which is no row of the evidence", r.Name, name)
				}
				by[name] = append(by[name], r)
			}
		}
	}
	return by
}

// goTests are the names of all tests of the simulator, as package.Test.
func goTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	clause := regexp.MustCompile(`(?m)^package (\w+?)(?:_test)?$`)
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range test.FindAllSubmatch(text, -1) {
			names[string(clause.FindSubmatch(text)[1])+"."+string(match[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestEveryRowOfTheEvidenceHasACounterpartOrAReason(t *testing.T) {
	all := allIDs()
	found, wrong := readEvidence(evidence)
	for _, problem := range wrong {
		t.Error(problem)
	}
	for id := range found {
		if !slices.Contains(all, id) {
			t.Errorf("%s is no row of the evidence", id)
		}
	}
	rows, tests := cited(t, all), goTests(t)
	var open []string
	for _, id := range all {
		c, listed := found[id]
		shown := len(c.tests) > 0
		for _, r := range rows[id] {
			shown = shown || r.ShownBy != ""
		}
		behaviour := id[0] == 'X' || id[0] == 'W' // what the simulator has to do: a reason is no answer
		switch {
		case !listed:
			t.Errorf("%s is missing", id)
		case c.open && len(rows[id]) == 0:
			open = append(open, id)
		case !shown && behaviour:
			t.Errorf("%s has no test, neither here nor by an assumption that cites it", id)
		case !shown && c.reason == "" && len(rows[id]) == 0:
			t.Errorf("%s has no test, no reason, and no assumption that cites it", id)
		}
		for _, name := range c.tests {
			if !tests[name] {
				t.Errorf("%s: there is no test %s", id, name)
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("%d rows are open: %s", len(open), strings.Join(open, " "))
	}
}

func TestShownByNamesTestsThatExist(t *testing.T) {
	tests := goTests(t)
	for _, r := range All() {
		if !tests[r.ShownBy] {
			t.Errorf("%s: there is no test %q", r.Name, r.ShownBy)
		}
	}
}
