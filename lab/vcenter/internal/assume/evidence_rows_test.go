package assume

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// evidenceRows has the ids of all rows of the collection of evidence, by its sections. The collection is not in the
// repository, so whoever changes it runs the test below with its path.
//
//go:embed evidence_rows.txt
var evidenceRows string

const rowsHead = `# The rows of the collection of evidence about real vCenters (shared notes, vcenter-evidence.md), by section. Made by
# EVIDENCE=FILE UPDATE_EVIDENCE=1 go test -run TestTheListOfRowsIsThatOfTheCollection ./internal/assume
# where FILE is the collection; without UPDATE_EVIDENCE the two are compared. evidence.txt then needs a line for each row.
`

func allIDs() []string { return idsIn(evidenceRows) }

func idsIn(list string) []string {
	var ids []string
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "#") {
			ids = append(ids, strings.Fields(line)...)
		}
	}
	return ids
}

// rowsOf makes the list from the collection, whose rows are those of its tables that begin with an id.
func rowsOf(collection string) string {
	row := regexp.MustCompile(`^\| ([A-Z]\d+[a-z]?) \|`)
	var list strings.Builder
	list.WriteString(rowsHead)
	section := ""
	var ids []string
	flush := func() {
		if len(ids) > 0 {
			fmt.Fprintf(&list, "\n# %s\n%s\n", section, strings.Join(ids, " "))
		}
		ids = nil
	}
	for line := range strings.Lines(collection) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			flush()
			section = strings.TrimSpace(title)
		}
		if match := row.FindStringSubmatch(line); match != nil {
			ids = append(ids, match[1])
		}
	}
	flush()
	return list.String()
}

func TestTheListOfRowsIsThatOfTheCollection(t *testing.T) {
	path := os.Getenv("EVIDENCE")
	if path == "" {
		t.Skip("the collection is not in the repository; EVIDENCE names it")
	}
	collection, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := rowsOf(string(collection))
	if list == evidenceRows {
		return
	}
	if os.Getenv("UPDATE_EVIDENCE") == "" {
		t.Fatalf("evidence_rows.txt is not the list of %s; its head says how to make it", path)
	}
	if err := os.WriteFile("evidence_rows.txt", []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheListOfRowsHasNoGapsAndNothingTwice(t *testing.T) {
	ids := allIDs()
	last := map[byte]int{}
	id := regexp.MustCompile(`^[A-Z](\d+)[a-z]?$`)
	for i, name := range ids {
		match := id.FindStringSubmatch(name)
		if match == nil || slices.Contains(ids[:i], name) {
			t.Errorf("%s is no id, or stands twice", name)
			continue
		}
		var number int
		if _, err := fmt.Sscan(match[1], &number); err != nil {
			t.Fatal(err)
		}
		if before := last[name[0]]; number != before+1 && number != before {
			t.Errorf("%s follows on %c%d", name, name[0], before)
		}
		last[name[0]] = number
	}
	if len(ids) < 200 {
		t.Errorf("%d rows", len(ids))
	}
}

func TestRowsAreReadFromTheTablesOfTheCollection(t *testing.T) {
	list := rowsOf("# Title\n\nX9 in a sentence\n\n## 4. Attach\n\n| # | situation |\n| --- | --- |\n| A1 | on this VM |\n| A5b | shared, see | A2 |\n\n### 17.1 Numbers\n| L1 | create |\n")
	if want := rowsHead + "\n# 4. Attach\nA1 A5b\n\n# 17.1 Numbers\nL1\n"; list != want {
		t.Errorf("%q", list)
	}
}
