package control

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/inventory"
	"vsphere-drivers.example/lab/vcenter/internal/traffic"
)

// chance is when a rule strikes, as requests spell it. Fields that are left out have defaults, hence the pointers.
type chance struct {
	Count       *int     `json:"count"`
	Skip        int      `json:"skip"`
	Probability *float64 `json:"probability"`
	Seed        int64    `json:"seed"`
}

func (c chance) rule(count int) (traffic.Chance, error) {
	made := traffic.Chance{Count: count, Skip: c.Skip, Probability: 1, Seed: c.Seed}
	if c.Count != nil {
		made.Count = *c.Count
	}
	if c.Probability != nil {
		made.Probability = *c.Probability
	}
	return made, fieldOf(made.Validate())
}

// fieldOf makes a field error of an error that starts with the field's name.
func fieldOf(err error) error {
	if err == nil {
		return nil
	}
	field, text, ok := strings.Cut(err.Error(), ": ")
	if !ok {
		return wrong("body", "%s", err)
	}
	return &inventory.FieldError{Field: field, Text: text}
}

type faultRequest struct {
	Method string          `json:"method"`
	Object string          `json:"object"`
	User   string          `json:"user"`
	Fault  string          `json:"fault"`
	Fields json.RawMessage `json:"fields"`
	At     string          `json:"at"`
	Delay  int             `json:"delay_ms"`
	Jitter int             `json:"jitter_ms"`
	chance
}

// maxDelay is an hour.
const maxDelay = 3_600_000

// armed is the answer to a new rule.
type armed struct {
	ID int `json:"id"`
}

func (c *Control) addFault(r faultRequest) (armed, error) {
	rule := traffic.CallRule{Method: r.Method, Object: r.Object, User: r.User, At: r.At, Fault: r.Fault, Delay: r.Delay, Jitter: r.Jitter}
	if rule.At == "" {
		rule.At = traffic.AtCall
	}
	if !slices.Contains(traffic.Places, rule.At) {
		return armed{}, wrong("at", "%q is unknown; known are %s", rule.At, strings.Join(traffic.Places, ", "))
	}
	var fault types.BaseMethodFault
	switch {
	case rule.At == traffic.AtNever || rule.At == traffic.AtHold || rule.At == traffic.AtGone:
		if r.Fault != "" {
			return armed{}, wrong("fault", "a rule at %s has no fault", rule.At)
		}
	case r.Fault == "":
		return armed{}, wrong("fault", "is missing; give the name of a vSphere fault such as NoPermission")
	default:
		made, err := traffic.MakeFault(r.Fault, r.Fields)
		if err != nil {
			return armed{}, fieldOf(err)
		}
		fault = made
	}
	var err error
	if rule.Chance, err = r.chance.rule(1); err != nil {
		return armed{}, err
	}
	if err := checkCall(rule); err != nil {
		return armed{}, err
	}
	if err := checkTask(rule); err != nil {
		return armed{}, err
	}
	return armed{c.vc.Traffic.AddCall(rule, fault)}, nil
}

// checkTask refuses what only the tasks of CNS and VSLM can do.
func checkTask(rule traffic.CallRule) error {
	ofCNS, ofVSLM := strings.HasPrefix(rule.Method, "Cns"), strings.HasPrefix(rule.Method, "Vslm")
	switch rule.At {
	case traffic.AtHalf:
		if !ofCNS {
			return wrong("at", "only a method of CNS can be half done")
		}
	case traffic.AtResultLate:
		if !ofCNS {
			return wrong("at", "only a method of CNS has results of volumes")
		}
	case traffic.AtHold, traffic.AtLate, traffic.AtGone:
		if !ofCNS && !ofVSLM {
			return wrong("at", "%s is for methods of CNS and VSLM", rule.At)
		}
	}
	return nil
}

type delayRequest struct {
	Method string `json:"method"`
	Object string `json:"object"`
	User   string `json:"user"`
	Delay  int    `json:"delay_ms"`
	Jitter int    `json:"jitter_ms"`
	chance
}

func (c *Control) addDelay(r delayRequest) (armed, error) {
	rule := traffic.CallRule{Method: r.Method, Object: r.Object, User: r.User, At: traffic.AtCall, Delay: r.Delay, Jitter: r.Jitter}
	if r.Delay == 0 && r.Jitter == 0 {
		return armed{}, wrong("delay_ms", "is missing")
	}
	var err error
	if rule.Chance, err = r.chance.rule(0); err != nil {
		return armed{}, err
	}
	if err := checkCall(rule); err != nil {
		return armed{}, err
	}
	return armed{c.vc.Traffic.AddCall(rule, nil)}, nil
}

func checkCall(rule traffic.CallRule) error {
	switch {
	case rule.Method == "":
		return wrong("method", "is missing; give a SOAP method such as CnsCreateVolume, or * for all")
	case rule.Delay < 0 || rule.Delay > maxDelay:
		return wrong("delay_ms", "must be between 0 and %d", maxDelay)
	case rule.Jitter < 0 || rule.Jitter > maxDelay:
		return wrong("jitter_ms", "must be between 0 and %d", maxDelay)
	}
	return nil
}

type httpRequest struct {
	Path   string `json:"path"`
	Method string `json:"method"`
	Kind   string `json:"kind"`
	Status int    `json:"status"`
	chance
}

func (c *Control) addHTTP(r httpRequest) (armed, error) {
	rule := traffic.HTTPRule{Path: r.Path, Method: r.Method, Kind: r.Kind, Status: r.Status}
	hasStatus := r.Kind == traffic.KindStatus || r.Kind == traffic.KindUnauthenticated
	switch {
	case !slices.Contains(traffic.Kinds, r.Kind):
		return armed{}, wrong("kind", "%q is unknown; known are %s", r.Kind, strings.Join(traffic.Kinds, ", "))
	case r.Path == "" && r.Method == "":
		return armed{}, wrong("path", "is missing; give the start of a path such as /sdk, or a SOAP method")
	case r.Path != "" && !strings.HasPrefix(r.Path, "/"):
		return armed{}, wrong("path", "must start with /")
	case !hasStatus && r.Status != 0:
		return armed{}, wrong("status", "only a rule of kind status or unauthenticated has one")
	case r.Kind == traffic.KindStatus && r.Status == 0:
		rule.Status = http.StatusServiceUnavailable
	case r.Kind == traffic.KindUnauthenticated && r.Status == 0:
		rule.Status = http.StatusUnauthorized
	case hasStatus && (r.Status < 200 || r.Status > 599):
		return armed{}, wrong("status", "must be between 200 and 599")
	}
	var err error
	if rule.Chance, err = r.chance.rule(1); err != nil {
		return armed{}, err
	}
	return armed{c.vc.Traffic.AddHTTP(rule)}, nil
}

func (c *Control) removeRules(nothing) (done, error) {
	c.vc.Traffic.Remove(0)
	return done{true}, nil
}

func (c *Control) removeRule(id string) (done, error) {
	number, err := strconv.Atoi(id)
	if err != nil || number <= 0 || !c.vc.Traffic.Remove(number) {
		return done{}, wrong("id", "there is no rule %q; it may be spent", id)
	}
	return done{true}, nil
}

func (c *Control) resetCalls(nothing) (done, error) {
	c.vc.Traffic.ResetCounts()
	return done{true}, nil
}
