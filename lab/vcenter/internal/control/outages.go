package control

import (
	"slices"
	"strings"
	"time"

	"vsphere-drivers.example/lab/vcenter/internal/cns"
	"vsphere-drivers.example/lab/vcenter/internal/vcenter"
)

type restartRequest struct {
	Down int    `json:"down_ms"`
	Work string `json:"work"`
}

// read gives the time down and what becomes of work that has not begun.
func (r restartRequest) read() (time.Duration, cns.Extent, error) {
	if r.Down < 0 || r.Down > maxDown {
		return 0, "", wrong("down_ms", "must be between 0 and %d", maxDown)
	}
	if r.Work == "" {
		r.Work = string(cns.Whole)
	}
	return time.Duration(r.Down) * time.Millisecond, cns.Extent(r.Work), oneOf("work", r.Work, cns.Extents)
}

func oneOf(field, word string, known []string) error {
	if !slices.Contains(known, word) {
		return wrong(field, "%q is unknown; known are %s", word, strings.Join(known, ", "))
	}
	return nil
}

func (c *Control) restart(r restartRequest) (done, error) {
	down, extent, err := r.read()
	if err != nil {
		return done{}, err
	}
	c.vc.RestartDoing(down, extent)
	return done{true}, nil
}

func (c *Control) restartCNS(r restartRequest) (done, error) {
	down, extent, err := r.read()
	if err != nil {
		return done{}, err
	}
	c.vc.RestartCNS(down, extent)
	return done{true}, nil
}

func (c *Control) syncCNS(nothing) (done, error) {
	c.vc.CNS().Sync()
	return done{true}, nil
}

type policyServiceRequest struct {
	Down *bool `json:"down"`
}

func (c *Control) policyService(r policyServiceRequest) (done, error) {
	if r.Down == nil {
		return done{}, wrong("down", "is missing; give true or false")
	}
	c.vc.SetPolicyService(!*r.Down)
	return done{true}, nil
}

type limitsRequest struct {
	SOAP *int `json:"soap_sessions"`
	REST *int `json:"rest_sessions"`
}

func (c *Control) limits(r limitsRequest) (vcenter.Limits, error) {
	limits := c.vc.Limits()
	for field, change := range map[string]struct{ from, to *int }{
		"soap_sessions": {r.SOAP, &limits.SOAPSessions}, "rest_sessions": {r.REST, &limits.RESTSessions},
	} {
		if change.from == nil {
			continue
		}
		if *change.from < 0 {
			return limits, wrong(field, "must not be negative")
		}
		*change.to = *change.from
	}
	c.vc.SetLimits(limits)
	return limits, nil
}

type sessionRequest struct {
	Key      string `json:"key"`
	HalfDead *bool  `json:"half_dead"`
}

func (c *Control) session(r sessionRequest) (done, error) {
	if r.HalfDead == nil {
		return done{}, wrong("half_dead", "is missing; give true or false")
	}
	if !c.vc.HalveSession(r.Key, *r.HalfDead) {
		return done{}, wrong("key", "there is no SOAP session %q", r.Key)
	}
	return done{true}, nil
}

// status is what queries are made to show of a volume.
func (c *Control) status(r volumeRequest) error {
	for field, given := range map[string]struct {
		word  string
		known []string
	}{"compliance": {r.Compliance, cns.Compliances}, "health": {r.Health, cns.Healths}} {
		if given.word == "" {
			continue
		}
		if err := oneOf(field, given.word, given.known); err != nil {
			return err
		}
	}
	if !c.vc.CNS().SetStatus(r.Volume, cns.Status{Compliance: r.Compliance, Health: r.Health}) {
		return wrong("volume", "there is no volume %q", r.Volume)
	}
	return nil
}

type released struct {
	Released int `json:"released"`
}

func (c *Control) releaseTasks(nothing) (released, error) { return released{c.vc.CNS().Release()}, nil }

type forgotten struct {
	Forgotten int `json:"forgotten"`
}

func (c *Control) forgetTasks(nothing) (forgotten, error) {
	return forgotten{c.vc.ForgetFinishedTasks()}, nil
}
