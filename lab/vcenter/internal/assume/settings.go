package assume

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"vsphere-drivers.example/lab/vcenter/internal/profile"
)

// The variables of the environment by which a walk steers every vCenter of a process, whichever test starts it.
const (
	// Forced has assumptions as Name=value,Name=value. They take the place of defaults; what a description or the
	// control endpoint sets wins.
	Forced = "VCENTER_ASSUME"
	// Recorded is a file to which Name=value is appended when the default of an assumption is read for the first time.
	Recorded = "VCENTER_CONSULTED"
)

// Settings are the assumptions of one vCenter. They are safe for use by several goroutines.
type Settings struct {
	release *profile.Profile
	file    string

	mu       sync.Mutex
	values   []any
	explicit []bool // set by a description or the control endpoint
	seen     []bool // the default was consulted
}

// For gives the defaults of a release, with what the environment forces.
func For(release *profile.Profile) (*Settings, error) {
	s := &Settings{
		release: release, file: os.Getenv(Recorded),
		values: make([]any, len(rows)), explicit: make([]bool, len(rows)), seen: make([]bool, len(rows)),
	}
	for i, r := range rows {
		s.values[i] = r.Default(release)
	}
	forced := os.Getenv(Forced)
	if forced == "" {
		return s, nil
	}
	for _, pair := range strings.Split(forced, ",") {
		name, text, _ := strings.Cut(pair, "=")
		r, err := Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Forced, err)
		}
		if s.values[r.place], err = r.parse(text); err != nil {
			return nil, fmt.Errorf("%s: %w", Forced, err)
		}
	}
	return s, nil
}

func (s *Settings) read(r *Row) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.explicit[r.place] && !s.seen[r.place] {
		s.seen[r.place] = true
		s.record(r)
	}
	return s.values[r.place]
}

// record appends a line to the file of the walk. Several vCenters and processes may do so at once.
func (s *Settings) record(r *Row) {
	if s.file == "" {
		return
	}
	file, err := os.OpenFile(s.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(file, "%s=%v\n", r.Name, s.values[r.place])
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		panic(fmt.Sprintf("%s: %s", Recorded, err))
	}
}

// Set switches assumptions, from the next time that they are read. If one name or value is wrong, nothing changes and
// the error names all that are wrong.
func (s *Settings) Set(changes map[string]any) error {
	type change struct {
		row   *Row
		value any
	}
	var wrong []error
	var checked []change
	for name, value := range changes {
		r, err := Lookup(name)
		if err == nil {
			value, err = r.Check(value)
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		checked = append(checked, change{r, value})
	}
	if len(wrong) > 0 {
		slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return errors.Join(wrong...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range checked {
		s.values[c.row.place], s.explicit[c.row.place] = c.value, true
	}
	return nil
}

// Item is one assumption as the control endpoint shows it.
type Item struct {
	Name      string `json:"name"`
	Value     any    `json:"value"`
	Default   any    `json:"default"`
	Choices   []any  `json:"choices"`
	Consulted bool   `json:"consulted"`
	About     string `json:"about"`
	Evidence  string `json:"evidence"`
}

// List gives every assumption with its present value.
func (s *Settings) List() []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]Item, len(rows))
	for i, r := range rows {
		items[i] = Item{
			Name: r.Name, Value: s.values[i], Default: r.Default(s.release), Choices: r.Choices, Consulted: s.seen[i],
			About: r.About, Evidence: r.Evidence,
		}
	}
	return items
}
