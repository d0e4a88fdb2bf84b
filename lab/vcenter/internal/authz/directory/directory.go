// Package directory is the single sign-on store of one vCenter: people, solution users, groups, passwords,
// lock-out and the tokens issued to them. It knows nothing of HTTP, roles or inventory; the SOAP, REST and
// STS front ends all log in against it, so that a password changed in one place is changed in all.
package directory

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Names every vCenter has from its first boot on.
const (
	DefaultDomain       = "vsphere.local"
	AdministratorName   = "Administrator"
	AdministratorsGroup = "Administrators"
	DefaultPassword     = "VMware1!" // of the initial Administrator, when the description gives none
)

// Reasons a principal is refused. SOAP logins show all of them as InvalidLogin, as vCenter does.
var (
	ErrCredentials = errors.New("unknown user or wrong password")
	ErrLocked      = errors.New("account is locked")
	ErrDisabled    = errors.New("account is disabled")
	ErrExpired     = errors.New("password is expired")
	ErrToken       = errors.New("token is unknown, forged or expired")
	ErrNotFound    = errors.New("no such principal")
	ErrExists      = errors.New("principal exists")
	ErrPassword    = errors.New("password does not follow the policy")
)

// User is a person as a description gives it. Name is name@domain, DOMAIN\name or bare.
type User struct {
	Name     string
	Password string
	Groups   []string
	Disabled bool
	Locked   bool
}

// Group is a group as a description gives it; Members may be users and groups.
type Group struct {
	Name        string
	Description string
	Members     []string
}

// Lockout says when failed logins lock an account. The defaults are vCenter's.
type Lockout struct {
	MaxFailed int           // failed logins that lock; 5, negative: none do
	Window    time.Duration // within which they must fall; 180 s
	Unlock    time.Duration // after which the account opens again; 300 s, negative: only by Unlock
}

// Config is what a description says about users.
type Config struct {
	Domain  string // system domain, DefaultDomain when empty
	Users   []User
	Groups  []Group
	Lockout Lockout
	Now     func() time.Time
}

// Directory is the store. All methods are safe for concurrent use.
type Directory struct {
	domain  string
	lockout Lockout
	now     func() time.Time

	mu      sync.RWMutex
	failed  []FailedLogin
	domains []string // others than the system domain, as the users name them
	people  map[Principal]*Person
	groups  map[Principal]*group
	tokens  map[string]token
	secret  []byte
}

// Person is one account. Solution users have a certificate in place of a password.
type Person struct {
	ID          Principal
	Description string
	FirstName   string
	LastName    string
	Email       string
	Certificate string // solution users: base64 of the DER
	Solution    bool
	Disabled    bool
	Expired     bool // the password must be changed before it opens anything
	Locked      bool // filled when read

	password string
	failed   []time.Time
	lockedAt time.Time
	held     bool // locked by hand: time does not unlock it
}

// New builds the store. Administrator of the system domain always exists and is in Administrators.
func New(cfg Config) (*Directory, error) {
	secret, err := newSecret()
	if err != nil {
		return nil, fmt.Errorf("no random bytes for the token key: %w; check the system's random source", err)
	}
	d := &Directory{
		domain: cfg.Domain, lockout: cfg.Lockout, now: cfg.Now, secret: secret,
		people: map[Principal]*Person{}, groups: map[Principal]*group{}, tokens: map[string]token{},
	}
	if d.domain == "" {
		d.domain = DefaultDomain
	}
	if d.now == nil {
		d.now = time.Now
	}
	d.lockout = Defaults(d.lockout)
	return d, d.fill(cfg)
}

// Defaults fills what is left out of a policy with vCenter's defaults.
func Defaults(policy Lockout) Lockout {
	if policy.MaxFailed == 0 {
		policy.MaxFailed = 5
	}
	if policy.Window == 0 {
		policy.Window = 180 * time.Second
	}
	if policy.Unlock == 0 {
		policy.Unlock = 300 * time.Second
	}
	return policy
}

func (d *Directory) fill(cfg Config) error {
	for _, u := range cfg.Users {
		if at := strings.LastIndex(u.Name, "@"); at >= 0 && !strings.EqualFold(u.Name[at+1:], d.domain) {
			d.domains = append(d.domains, u.Name[at+1:])
		}
	}
	for _, u := range cfg.Users {
		id := d.Parse(u.Name)
		if id.Name == "" || u.Password == "" {
			return fmt.Errorf("user %q: name and password must not be empty", u.Name)
		}
		if _, ok := d.people[id.key()]; ok {
			return fmt.Errorf("user %q is given twice; remove one", u.Name)
		}
		p := &Person{ID: id, password: u.Password, Disabled: u.Disabled, held: u.Locked}
		if u.Locked {
			p.lockedAt = d.now()
		}
		d.people[id.key()] = p
	}
	admin := d.Administrator()
	if d.people[admin.key()] == nil {
		d.people[admin.key()] = &Person{ID: admin, password: DefaultPassword}
	}
	admins := Principal{AdministratorsGroup, d.domain}
	d.groups[admins.key()] = newGroup(admins, "")
	d.groups[admins.key()].members[admin.key()] = true

	for _, g := range cfg.Groups {
		id := d.Parse(g.Name)
		if d.groups[id.key()] == nil {
			d.groups[id.key()] = newGroup(id, g.Description)
		}
	}
	for _, g := range cfg.Groups {
		for _, member := range g.Members {
			if _, err := d.AddMember(g.Name, d.Parse(member)); err != nil {
				return fmt.Errorf("group %q: member %q: %w; list it under users or groups", g.Name, member, err)
			}
		}
	}
	for _, u := range cfg.Users {
		for _, name := range u.Groups {
			id := d.Parse(name)
			if d.groups[id.key()] == nil {
				d.groups[id.key()] = newGroup(id, "")
			}
			d.groups[id.key()].members[d.Parse(u.Name).key()] = true
		}
	}
	return nil
}

// Domain is the system domain's name.
func (d *Directory) Domain() string { return d.domain }

// Administrator is the one account that lock-out does not touch.
func (d *Directory) Administrator() Principal { return Principal{AdministratorName, d.domain} }

// Way is the interface through which a login came.
type Way string

// The interfaces that take a password.
const (
	SOAP Way = "soap"
	REST Way = "rest"
	STS  Way = "sts"
)

// FailedLogin is a login that was refused, for whatever reason.
type FailedLogin struct {
	User   string    `json:"user"`
	Way    Way       `json:"way"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// FailedLogins lists the logins that were refused, oldest first.
func (d *Directory) FailedLogins() []FailedLogin {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Clone(d.failed)
}

// Login checks a password. Failures count towards the lock-out; a success forgets them.
func (d *Directory) Login(way Way, name, password string) (Principal, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	id, err := d.check(d.Parse(name), password, now)
	if err != nil {
		d.failed = append(d.failed, FailedLogin{User: strings.ToLower(id.UPN()), Way: way, Reason: err.Error(), At: now})
	}
	return id, err
}

func (d *Directory) check(id Principal, password string, now time.Time) (Principal, error) {
	p := d.people[id.key()]
	if p == nil || p.Solution {
		return id, ErrCredentials
	}
	switch {
	case d.locked(p, now):
		return p.ID, ErrLocked
	case subtle.ConstantTimeCompare([]byte(p.password), []byte(password)) != 1:
		d.fail(p, now)
		return p.ID, ErrCredentials
	case p.Disabled:
		return p.ID, ErrDisabled
	case p.Expired:
		return p.ID, ErrExpired
	}
	p.failed = nil
	return p.ID, nil
}

func (d *Directory) locked(p *Person, now time.Time) bool {
	if p.held {
		return true
	}
	if p.lockedAt.IsZero() {
		return false
	}
	if d.lockout.Unlock > 0 && !now.Before(p.lockedAt.Add(d.lockout.Unlock)) {
		p.lockedAt, p.failed = time.Time{}, nil
		return false
	}
	return true
}

func (d *Directory) fail(p *Person, now time.Time) {
	if p.ID.Same(d.Administrator()) || d.lockout.MaxFailed < 0 {
		return
	}
	recent := []time.Time{now}
	for _, at := range p.failed {
		if now.Sub(at) < d.lockout.Window {
			recent = append(recent, at)
		}
	}
	p.failed = recent
	if len(p.failed) >= d.lockout.MaxFailed {
		p.lockedAt = now
	}
}

// Lock closes an account until Unlock, whatever the clock says.
func (d *Directory) Lock(name string) error {
	return d.change(name, func(p *Person) { p.held, p.lockedAt = true, d.now() })
}

// Unlock opens an account and forgets its failed logins.
func (d *Directory) Unlock(name string) error {
	return d.change(name, func(p *Person) { p.held, p.lockedAt, p.failed = false, time.Time{}, nil })
}

// SetDisabled switches an account off or on.
func (d *Directory) SetDisabled(name string, disabled bool) error {
	return d.change(name, func(p *Person) { p.Disabled = disabled })
}

// SetExpired lets a password expire, or makes it valid again.
func (d *Directory) SetExpired(name string, expired bool) error {
	return d.change(name, func(p *Person) { p.Expired = expired })
}

// SetPassword replaces a person's password; open sessions go on, as on vCenter.
func (d *Directory) SetPassword(name, password string) error {
	if err := d.CheckPassword(password); err != nil {
		return err
	}
	return d.change(name, func(p *Person) { p.password, p.failed, p.Expired = password, nil, false })
}

func (d *Directory) change(name string, apply func(*Person)) error {
	id := d.Parse(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.people[id.key()]
	if p == nil {
		return fmt.Errorf("user %s: %w", id, ErrNotFound)
	}
	apply(p)
	return nil
}

// LockoutPolicy is what the store enforces.
func (d *Directory) LockoutPolicy() Lockout {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.lockout
}

// SetLockoutPolicy changes how many failed logins within which time lock an account. Accounts that are locked stay so.
func (d *Directory) SetLockoutPolicy(policy Lockout) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lockout = policy
}

// Find returns a copy of the account.
func (d *Directory) Find(id Principal) (Person, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.people[id.key()]
	if p == nil {
		return Person{}, false
	}
	return d.copy(p), true
}

func (d *Directory) copy(p *Person) Person {
	c := *p
	c.Locked = d.locked(p, d.now())
	c.password, c.failed = "", nil
	return c
}

// People lists the accounts whose name contains search, in the given domain when it is not empty.
func (d *Directory) People(domain, search string) []Person {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []Person
	for _, p := range d.people {
		if matches(p.ID, domain, search) {
			found = append(found, d.copy(p))
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].ID.String() < found[j].ID.String() })
	return found
}

func matches(id Principal, domain, search string) bool {
	return (domain == "" || strings.EqualFold(id.Domain, domain)) &&
		strings.Contains(strings.ToLower(id.Name), strings.ToLower(search))
}

// Create adds a person (with a password) or a solution user (with a certificate) to the system domain.
func (d *Directory) Create(p Person, password string) error {
	p.ID.Domain = d.domain
	if p.ID.Name == "" {
		return fmt.Errorf("user name is empty: %w", ErrNotFound)
	}
	if !p.Solution {
		if err := d.CheckPassword(password); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.people[p.ID.key()] != nil || d.groups[p.ID.key()] != nil {
		return fmt.Errorf("user %s: %w", p.ID, ErrExists)
	}
	p.password = password
	d.people[p.ID.key()] = &p
	return nil
}

// Describe replaces the descriptive fields of an account.
func (d *Directory) Describe(name string, details Person) error {
	return d.change(name, func(p *Person) {
		p.Description, p.FirstName, p.LastName, p.Email = details.Description, details.FirstName, details.LastName, details.Email
		if p.Solution {
			p.Certificate = details.Certificate
		}
	})
}

// Delete removes a user or group of the system domain and its memberships.
func (d *Directory) Delete(name string) error {
	id := d.Parse(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.people[id.key()] == nil && d.groups[id.key()] == nil {
		return fmt.Errorf("%s: %w", id, ErrNotFound)
	}
	delete(d.people, id.key())
	delete(d.groups, id.key())
	for _, g := range d.groups {
		delete(g.members, id.key())
	}
	return nil
}

// Now is the time the store goes by.
func (d *Directory) Now() time.Time { return d.now() }
