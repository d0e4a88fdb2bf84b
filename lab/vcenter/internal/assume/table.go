package assume

import (
	"encoding/json"
	"fmt"
	"strings"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// Table is every assumption as a table in Markdown, for `vcenter -assumptions` and the README.
func Table() string {
	var table strings.Builder
	table.WriteString("| name | value, by release | other choices | what it means | evidence | test that fails under the others |\n")
	table.WriteString("| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s |\n", r.Name, r.releases(), r.others(), r.About, r.Evidence, r.ShownBy)
	}
	return table.String()
}

// JSON is every assumption for programs, such as the walk.
func JSON() ([]byte, error) {
	type item struct {
		Name     string         `json:"name"`
		Values   map[string]any `json:"values"` // by release
		Choices  []any          `json:"choices"`
		Unusable []any          `json:"unusable,omitempty"`
		About    string         `json:"about"`
		Evidence string         `json:"evidence"`
		ShownBy  string         `json:"shown_by"`
	}
	items := make([]item, len(rows))
	for i, r := range rows {
		values := map[string]any{}
		for _, p := range profile.All {
			values[p.Name] = r.Default(p)
		}
		items[i] = item{r.Name, values, r.Choices, r.Unusable, r.About, r.Evidence, r.ShownBy}
	}
	return json.MarshalIndent(items, "", "  ")
}

// releases are the values in the order of the releases that changed them.
func (r *Row) releases() string {
	texts := []string{code(r.Since[""])}
	for _, p := range profile.All {
		if value, changed := r.Since[p.Name]; changed {
			texts = append(texts, code(value)+" from "+p.Name)
		}
	}
	return strings.Join(texts, ", ")
}

// others are the choices that are the value of no release.
func (r *Row) others() string {
	var texts []string
	for _, choice := range r.Choices {
		used := false
		for _, value := range r.Since {
			used = used || value == choice
		}
		if !used {
			texts = append(texts, code(choice))
		}
	}
	return strings.Join(texts, ", ")
}

func code(value any) string { return fmt.Sprintf("`%v`", value) }
