package traffic

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Where a call rule strikes.
const (
	AtCall       = "call"        // the call itself gets the fault, nothing is done
	AtTask       = "task"        // the call succeeds, its task fails with the fault, nothing is done
	AtTaskDone   = "task-done"   // the task does its work and then fails with the fault
	AtNever      = "task-never"  // the task does its work and stays running
	AtResult     = "result"      // a CNS task succeeds, nothing is done, and the fault is in the volume's result
	AtResultDone = "result-done" // the same, but the work is done
	AtResultLate = "result-late" // the same, but the work begins when it is released
	AtHalf       = "task-half"   // a CNS task changes the disks but not CNS's records, and fails with the fault
	AtHold       = "task-hold"   // a task of CNS or VSLM runs, and begins its work when it is released
	AtLate       = "task-late"   // a task of CNS or VSLM fails with the fault, and begins its work when it is released
	AtGone       = "task-gone"   // a task of CNS or VSLM does its work and then cannot be found any more
)

// Places lists where a rule may strike.
var Places = []string{AtCall, AtTask, AtTaskDone, AtNever, AtResult, AtResultDone, AtResultLate, AtHalf, AtHold, AtLate, AtGone}

// Chance says when a rule strikes: it lets Skip matches pass, then strikes Count times (0 is for ever), each time with
// the given probability. The dice are seeded, so that a run can be repeated.
type Chance struct {
	Count       int     `json:"count"`
	Skip        int     `json:"skip"`
	Probability float64 `json:"probability"`
	Seed        int64   `json:"seed"`
	Seen        int     `json:"seen"` // matches so far
	Hits        int     `json:"hits"` // times it struck

	dice *rand.Rand
}

// fires decides about one match.
func (c *Chance) fires() bool {
	if c.spent() {
		return false
	}
	c.Seen++
	if c.Seen <= c.Skip {
		return false
	}
	if c.dice == nil {
		c.dice = rand.New(rand.NewSource(c.Seed))
	}
	if c.Probability < 1 && c.dice.Float64() >= c.Probability {
		return false
	}
	c.Hits++
	return true
}

func (c *Chance) spent() bool { return c.Count > 0 && c.Hits >= c.Count }

// CallRule delays or fails calls of a method.
type CallRule struct {
	ID     int    `json:"id"`
	Method string `json:"method"` // as on the wire, such as CnsCreateVolume or PowerOffVM_Task; * is every method
	Object string `json:"object,omitempty"`
	User   string `json:"user,omitempty"`
	At     string `json:"at"`
	Fault  string `json:"fault,omitempty"`
	Delay  int    `json:"delay_ms,omitempty"`
	Jitter int    `json:"jitter_ms,omitempty"`
	Chance

	made types.BaseMethodFault
}

func (r *CallRule) fault() types.BaseMethodFault { return r.made }

func (r *CallRule) pause() time.Duration {
	wait := time.Duration(r.Delay) * time.Millisecond
	if r.Jitter > 0 {
		wait += time.Duration(r.dice.Int63n(int64(r.Jitter)*int64(time.Millisecond) + 1))
	}
	return wait
}

// AddCall arms a rule; fault is what it fails calls with, nil for a rule that only delays.
func (t *Traffic) AddCall(rule CallRule, fault types.BaseMethodFault) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	rule.ID = t.last
	rule.made = fault
	rule.dice = rand.New(rand.NewSource(rule.Seed))
	t.calls = append(t.calls, &rule)
	return rule.ID
}

// Rules are the armed rules.
func (t *Traffic) Rules() ([]CallRule, []HTTPRule) {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls, https := make([]CallRule, 0, len(t.calls)), make([]HTTPRule, 0, len(t.http))
	for _, rule := range t.calls {
		calls = append(calls, *rule)
	}
	for _, rule := range t.http {
		https = append(https, *rule)
	}
	return calls, https
}

// Remove disarms one rule, or all of them for id 0. It tells whether there was one.
func (t *Traffic) Remove(id int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.calls) + len(t.http)
	t.calls = slices.DeleteFunc(t.calls, func(r *CallRule) bool { return id == 0 || r.ID == id })
	t.http = slices.DeleteFunc(t.http, func(r *HTTPRule) bool { return id == 0 || r.ID == id })
	return id == 0 || len(t.calls)+len(t.http) < before
}

func (t *Traffic) dropSpent() {
	t.calls = slices.DeleteFunc(t.calls, func(r *CallRule) bool { return r.spent() })
	t.http = slices.DeleteFunc(t.http, func(r *HTTPRule) bool { return r.spent() })
}

func (t *Traffic) applies(rule *CallRule, m *simulator.Method, user string) bool {
	return rule.meets(m.Name, user) && (rule.Object == "" || t.concerns(rule.Object, m))
}

func (r *CallRule) meets(method, user string) bool {
	return (r.Method == "*" || r.Method == method) && (r.User == "" || UserName(r.User) == user)
}

func (r *CallRule) onlyDelays() bool { return r.Fault == "" && r.At == AtCall }

// concerns tells whether a call is about an object: called on it, or with it anywhere in its arguments. The second is
// needed because a CNS call is made on the volume manager whatever VM or volume it is about.
func (t *Traffic) concerns(object string, m *simulator.Method) bool {
	wanted := map[string]bool{object: true}
	if t.Resolve != nil {
		for _, ref := range t.Resolve(object) {
			wanted[ref.Value] = true
		}
	}
	return wanted[m.This.Value] || mentions(reflect.ValueOf(m.Body), wanted, 0)
}

// mentions looks for one of the words in a request. Requests are trees, but the depth is bounded anyway.
func mentions(v reflect.Value, wanted map[string]bool, depth int) bool {
	if depth > 40 {
		return false
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && mentions(v.Elem(), wanted, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if mentions(v.Field(i), wanted, depth+1) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if mentions(v.Index(i), wanted, depth+1) {
				return true
			}
		}
	case reflect.String:
		return wanted[v.String()]
	}
	return false
}

// Validate checks the parts of a rule that need no vCenter. The error names the field as the control endpoint spells it.
func (c *Chance) Validate() error {
	switch {
	case c.Count < 0:
		return fmt.Errorf("count: must not be negative; 0 means for ever")
	case c.Skip < 0:
		return fmt.Errorf("skip: must not be negative")
	case c.Probability < 0 || c.Probability > 1:
		return fmt.Errorf("probability: must be between 0 and 1")
	}
	return nil
}
