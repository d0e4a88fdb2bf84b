package control

import (
	"time"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
	"vsphere-drivers.example/lab/vcenter/internal/cns"
	"vsphere-drivers.example/lab/vcenter/internal/inventory"
	"vsphere-drivers.example/lab/vcenter/internal/traffic"
	"vsphere-drivers.example/lab/vcenter/internal/vcenter"
)

// session is an open session as the endpoint shows it.
type session struct {
	Key        string    `json:"key"`
	User       string    `json:"user"`
	Address    string    `json:"address"`
	Agent      string    `json:"agent"`
	Login      time.Time `json:"login"`
	LastActive time.Time `json:"last_active"`
	Calls      int64     `json:"calls"`
	Kind       string    `json:"kind"` // soap or rest
	// What it made and did not destroy; SOAP only.
	Objects *vcenter.Objects `json:"objects,omitempty"`
}

// state is everything a test or a human may want to know.
type state struct {
	Name         string                  `json:"name"`
	URL          string                  `json:"url"`
	Release      string                  `json:"release"`
	InstanceUUID string                  `json:"instance_uuid"`
	SkewMillis   int64                   `json:"skew_ms"`
	Latency      string                  `json:"latency"`
	Limits       vcenter.Limits          `json:"limits"`
	Inventory    []inventory.Object      `json:"inventory"`
	Sessions     []session               `json:"sessions"`
	FailedLogins []directory.FailedLogin `json:"failed_logins"`
	Volumes      []cns.Volume            `json:"volumes"`
	Attachments  []cns.Attachment        `json:"attachments"`
	Rules        rules                   `json:"rules"`
	Calls        calls                   `json:"calls"`
	Assumptions  []assume.Item           `json:"assumptions"`
}

type rules struct {
	Calls []traffic.CallRule `json:"calls"`
	HTTP  []traffic.HTTPRule `json:"http"`
}

type calls struct {
	Calls    []traffic.CallCount    `json:"calls"`
	Requests []traffic.RequestCount `json:"requests"`
}

func (c *Control) state() state {
	return state{
		Name:         c.vc.World.Name,
		URL:          c.vc.URL.String(),
		Release:      c.vc.Profile.Name,
		InstanceUUID: c.vc.World.InstanceUUID,
		SkewMillis:   c.vc.Clock.Skew().Milliseconds(),
		Latency:      c.vc.Latency.Profile().Name,
		Limits:       c.vc.Limits(),
		Inventory:    c.inventory(),
		Sessions:     c.sessions(),
		FailedLogins: c.failedLogins(),
		Volumes:      c.volumes(),
		Attachments:  c.attachments(),
		Rules:        c.rules(),
		Calls:        c.calls(),
		Assumptions:  c.assumptions(),
	}
}

func (c *Control) inventory() []inventory.Object { return c.vc.Inventory.Objects(c.vc.TagsOf) }

func (c *Control) failedLogins() []directory.FailedLogin {
	return append([]directory.FailedLogin{}, c.vc.Access().Directory().FailedLogins()...)
}

func (c *Control) volumes() []cns.Volume { return c.vc.CNS().Volumes() }

func (c *Control) attachments() []cns.Attachment { return c.vc.CNS().Attachments() }

func (c *Control) sessions() []session {
	list := []session{}
	for _, s := range c.vc.Sessions() {
		made := c.vc.Made(s.Key)
		list = append(list, session{
			Key: s.Key, User: traffic.UserName(s.UserName), Address: s.IpAddress, Agent: s.UserAgent,
			Login: s.LoginTime, LastActive: s.LastActiveTime, Calls: s.CallCount, Kind: "soap",
			Objects: &made,
		})
	}
	for _, s := range c.vc.REST().Sessions() {
		list = append(list, session{Key: s.ID, User: traffic.UserName(s.User), Login: s.Created, LastActive: s.LastAccessed, Kind: "rest"})
	}
	return list
}

func (c *Control) calls() calls { return calls{c.vc.Traffic.Calls(), c.vc.Traffic.Requests()} }

func (c *Control) rules() rules {
	callRules, httpRules := c.vc.Traffic.Rules()
	return rules{callRules, httpRules}
}
