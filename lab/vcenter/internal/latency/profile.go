// Package latency gives the calls and tasks of a simulated vCenter the times that real ones were seen to take.
//
// A Profile has a median and a 95th percentile for each Operation; times are log-normal between and beyond them. A
// Schedule draws them for one vCenter and knows what has to wait for what: creates have a ceiling in all, and attach and
// detach of one VM come one after the other. It never sleeps itself, so that it can be tested by the numbers.
package latency

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Operation is what takes time.
type Operation string

// The operations of calls.
const (
	Call      Operation = "call"       // until there is a task, or the call is refused
	Read      Operation = "read"       // properties of an object, and all small calls
	Query     Operation = "query"      // of volumes
	LoginSOAP Operation = "login soap" // also a token
	LoginREST Operation = "login rest"
	Policies  Operation = "policies" // a question to the storage policies
)

// The operations of tasks. A query is one, too, when it is asynchronous.
const (
	Create         Operation = "create"
	Restore        Operation = "restore" // create from a snapshot, or copy
	Register       Operation = "register"
	CreateShare    Operation = "create share"
	Attach         Operation = "attach"
	Detach         Operation = "detach"
	Delete         Operation = "delete"
	Extend         Operation = "extend"
	Snapshot       Operation = "snapshot"
	DeleteSnapshot Operation = "delete snapshot"
	Metadata       Operation = "metadata"
	QuerySnapshots Operation = "query snapshots"
	Relocate       Operation = "relocate" // and so much for each GiB
	ChangePolicy   Operation = "change policy"
)

// perGiB is what each GiB of a volume adds to its relocation: data is copied.
const perGiB = 10 * time.Second

// Time is how long an operation takes, in seconds. The zero value is no time at all.
type Time struct{ Median, P95 float64 }

// Profile is a kind of vCenter.
type Profile struct {
	Name  string
	times map[Operation]Time
}

// NewProfile is one with other times than the known ones.
func NewProfile(name string, times map[Operation]Time) *Profile { return &Profile{name, times} }

// None takes no time; it is the default.
var None = &Profile{Name: "none"}

// Profiles are the known ones. Their numbers are those of the evidence (section 17.2). The others of fast-lab are idle's:
// only its creates were measured. What a profile lacks takes no time.
var Profiles = []*Profile{
	None,
	{"fast-lab", column(0, map[Operation]Time{Create: {0.4, 0.8}})},
	{"idle", column(0, nil)},
	{"loaded", column(1, nil)},
}

// measured has the idle and the loaded times.
var measured = map[Operation][2]Time{
	Call:           {{0.03, 0.17}, {0.1, 0.3}},
	Read:           {{0.003, 0.02}, {0.02, 0.1}},
	Query:          {{0.3, 0.9}, {0.8, 2}},
	LoginSOAP:      {{0.06, 0.15}, {0.2, 1}},
	LoginREST:      {{0.1, 0.4}, {0.5, 2}},
	Policies:       {{0.15, 0.6}, {0.5, 2}},
	Create:         {{2.5, 9}, {14, 18}},
	Restore:        {{8, 30}, {20, 60}},
	Register:       {{1, 3}, {3, 8}},
	CreateShare:    {{8, 20}, {20, 45}},
	Attach:         {{0.8, 3.5}, {3.6, 6.8}},
	Detach:         {{0.9, 3.5}, {3.2, 6.6}},
	Delete:         {{1, 4}, {4, 10}},
	Extend:         {{1, 4}, {3, 8}},
	Snapshot:       {{5, 12}, {10, 25}},
	DeleteSnapshot: {{4, 12}, {10, 30}},
	Metadata:       {{0.2, 1}, {0.5, 3}},
	QuerySnapshots: {{0.3, 1}, {0.8, 3}},
	Relocate:       {{20, 20}, {20, 20}},
	ChangePolicy:   {{2, 8}, {5, 15}},
}

func column(which int, others map[Operation]Time) map[Operation]Time {
	times := make(map[Operation]Time, len(measured))
	for operation, columns := range measured {
		times[operation] = columns[which]
	}
	for operation, other := range others {
		times[operation] = other
	}
	return times
}

// Lookup finds a profile by its name; the empty name is none.
func Lookup(name string) (*Profile, error) {
	if name == "" {
		return None, nil
	}
	var names []string
	for _, p := range Profiles {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("latency profile %q is unknown; known are %s", name, strings.Join(names, ", "))
}

// The rarest of times are left out, so that one of them cannot decide over a run.
const rarest = 0.001

// Quantile is the time that this share of operations does not exceed. The logarithm of the times is normal: that fits
// what was measured, which has a long tail and never takes less than nothing.
func (t Time) Quantile(share float64) time.Duration {
	if t.Median <= 0 {
		return 0
	}
	share = min(max(share, rarest), 1-rarest)
	sigma := math.Log(t.P95/t.Median) / normal(0.95)
	return time.Duration(t.Median * math.Exp(sigma*normal(share)) * float64(time.Second))
}

// normal is the quantile of the standard normal distribution.
func normal(share float64) float64 { return math.Sqrt2 * math.Erfinv(2*share-1) }
