package directory

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/google/uuid"
)

// Token is what the security token service puts into an assertion.
type Token struct {
	ID        string // of the assertion
	User      Principal
	Issued    time.Time
	Expires   time.Time
	Signature string // stands in for the XML signature: only this store can make it
}

type token struct {
	user    Principal
	expires time.Time
}

func newSecret() ([]byte, error) {
	secret := make([]byte, 32)
	_, err := rand.Read(secret)
	return secret, err
}

// Issue makes a token for a user whose credentials were checked.
func (d *Directory) Issue(user Principal, lifetime time.Duration) Token {
	now := d.now().UTC()
	t := Token{ID: "_" + uuid.NewString(), User: user, Issued: now, Expires: now.Add(lifetime)}
	t.Signature = d.sign(t.ID, user)
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, old := range d.tokens {
		if !now.Before(old.expires) {
			delete(d.tokens, id)
		}
	}
	d.tokens[t.ID] = token{user, t.Expires}
	return t
}

func (d *Directory) sign(id string, user Principal) string {
	mac := hmac.New(sha256.New, d.secret)
	mac.Write([]byte(id + "\n" + user.key().Name + "\n" + user.key().Domain))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Redeem checks a token that a client shows: issued here, for this user, not changed, not expired,
// and the account still open.
func (d *Directory) Redeem(id, name, signature string) (Principal, error) {
	user := d.Parse(name)
	if !hmac.Equal([]byte(signature), []byte(d.sign(id, user))) {
		return user, ErrToken
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tokens[id]
	if !ok || !d.now().Before(t.expires) {
		return user, ErrToken
	}
	p := d.people[user.key()]
	switch {
	case p == nil:
		return user, ErrCredentials
	case p.Disabled:
		return user, ErrDisabled
	case d.locked(p, d.now()):
		return user, ErrLocked
	}
	return p.ID, nil
}

// FindCertificate returns the solution user that owns a certificate (base64 of its DER).
func (d *Directory) FindCertificate(certificate string) (Person, bool) {
	if certificate == "" {
		return Person{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.people {
		if p.Solution && !p.Disabled && p.Certificate == certificate {
			return d.copy(p), true
		}
	}
	return Person{}, false
}
