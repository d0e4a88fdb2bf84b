// Package traffic stands between the clients and a simulated vCenter. It counts the calls, and on request it delays,
// refuses or breaks them, or lets their tasks end badly. The rules come from the control endpoint.
package traffic

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Traffic holds the rules and counters of one vCenter.
type Traffic struct {
	// Resolve gives the references of the objects that have a name, so that rules can use names. It may be nil.
	Resolve func(name string) []types.ManagedObjectReference

	mu      sync.Mutex
	last    int // id of the newest rule
	calls   []*CallRule
	http    []*HTTPRule
	counts  map[Call]int
	paths   map[Request]int
	down    map[string]time.Time // until then every request gets 503 whose path begins so
	pending []pendingTask
	stop    chan struct{} // closed when hung requests and tasks must end
	closed  bool
}

// Call is what calls are counted by.
type Call struct {
	Method string `json:"method"`
	User   string `json:"user"`
}

// Request is what HTTP requests are counted by.
type Request struct {
	Verb   string `json:"verb"`
	Path   string `json:"path"`
	Status int    `json:"status"` // 0 when the connection was broken on request
}

// New has no rules yet.
func New() *Traffic {
	return &Traffic{counts: map[Call]int{}, paths: map[Request]int{}, down: map[string]time.Time{}, stop: make(chan struct{})}
}

// Check counts a decoded call and applies the rules to it: it waits, and returns the fault that the call must get.
func (t *Traffic) Check(ctx *simulator.Context, m *simulator.Method) types.BaseMethodFault {
	remember(ctx)
	user := ""
	if ctx.Session != nil {
		user = ctx.Session.UserName
	}
	if login, ok := m.Body.(*types.Login); ok {
		user = login.UserName
	}
	return t.CheckUser(ctx, user, m)
}

// CheckUser is Check for services that have sessions of their own.
func (t *Traffic) CheckUser(ctx *simulator.Context, user string, m *simulator.Method) types.BaseMethodFault {
	wait, rule := t.match(ctx, m, UserName(user))
	t.Pause(wait)
	if rule != nil && rule.At == AtCall {
		return rule.fault()
	}
	return nil
}

func (t *Traffic) match(ctx *simulator.Context, m *simulator.Method, user string) (time.Duration, *CallRule) {
	t.mu.Lock()
	t.counts[Call{m.Name, user}]++
	rules := slices.Clone(t.calls)
	t.mu.Unlock()
	// Looking at objects takes their locks, and holders of those may be waiting for ours: look first, lock then.
	rules = slices.DeleteFunc(rules, func(rule *CallRule) bool { return !t.applies(rule, m, user) })
	if len(rules) == 0 {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var wait time.Duration
	var hit *CallRule
	for _, rule := range rules {
		if !rule.onlyDelays() && hit != nil || !rule.fires() {
			continue
		}
		wait += rule.pause()
		if !rule.onlyDelays() {
			hit = rule
		}
	}
	t.dropSpent()
	if hit != nil && hit.At != AtCall {
		t.expectTask(hit, m, ctx)
	}
	return wait, hit
}

// Pause waits, but not longer than the vCenter lives or until it restarts.
func (t *Traffic) Pause(wait time.Duration) {
	if wait > 0 {
		t.Pauses()(wait)
	}
}

// Pauses gives a Pause for several waits that all end with the first restart from now on. It tells whether all the time
// went by.
func (t *Traffic) Pauses() func(time.Duration) bool {
	t.mu.Lock()
	stop := t.stop
	t.mu.Unlock()
	return func(wait time.Duration) bool {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-stop:
			return false
		}
	}
}

// Closed tells whether the vCenter is gone.
func (t *Traffic) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Note counts a call that is not SOAP and applies the delays to it. Faults are not for it: they are SOAP's.
func (t *Traffic) Note(user, name string) {
	user = UserName(user)
	t.mu.Lock()
	t.counts[Call{name, user}]++
	var wait time.Duration
	for _, rule := range t.calls {
		fits := rule.onlyDelays() && rule.Object == "" && rule.meets(name, user)
		if fits && rule.fires() {
			wait += rule.pause()
		}
	}
	t.dropSpent()
	t.mu.Unlock()
	t.Pause(wait)
}

// UserName writes a user the way descriptions do, name@domain in small letters, also one given as DOMAIN\name.
func UserName(user string) string {
	if domain, name, ok := strings.Cut(user, `\`); ok {
		user = name + "@" + domain
	}
	return strings.ToLower(user)
}

// Calls counts the calls by method and user, sorted.
func (t *Traffic) Calls() []CallCount {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]CallCount, 0, len(t.counts))
	for call, n := range t.counts {
		list = append(list, CallCount{call, n})
	}
	sort.Slice(list, func(i, j int) bool {
		return list[i].Method < list[j].Method || list[i].Method == list[j].Method && list[i].User < list[j].User
	})
	return list
}

// CallCount is how often a user called a method.
type CallCount struct {
	Call
	Count int `json:"count"`
}

// RequestCount is how often a path was requested and how it was answered.
type RequestCount struct {
	Request
	Count int `json:"count"`
}

// Requests counts the HTTP requests, sorted by path.
func (t *Traffic) Requests() []RequestCount {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]RequestCount, 0, len(t.paths))
	for request, n := range t.paths {
		list = append(list, RequestCount{request, n})
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i].Request, list[j].Request
		return a.Path < b.Path || a.Path == b.Path && (a.Verb < b.Verb || a.Verb == b.Verb && a.Status < b.Status)
	})
	return list
}

// ResetCounts starts counting anew.
func (t *Traffic) ResetCounts() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.counts)
	clear(t.paths)
}

// Interrupt ends every delay, hung request and hung task, and answers 503 for the given time, as a restart does.
func (t *Traffic) Interrupt(down time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	close(t.stop)
	t.stop = make(chan struct{})
	t.down["/"] = time.Now().Add(down)
	t.pending = nil
}

// Down answers 503 to requests whose path begins so, for the given time; 0 ends that.
func (t *Traffic) Down(path string, down time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down[path] = time.Now().Add(down)
}

// Close ends everything that hangs, for good.
func (t *Traffic) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		close(t.stop)
	}
}
