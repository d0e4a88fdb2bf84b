package vcenter

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/pbm"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
)

// cookies gives sessions the cookies that vCenter gives them, as recorded with 6.5 and 8.0 in pyVmomi's fixtures: forty
// hexadecimal digits in quotes that have nothing to do with the key in the answer to a login. The library uses the key
// itself, so that a client that mistakes one for the other would not notice.
type cookies struct {
	block cipher.Block // encrypts a key, which is a UUID, so that no list of cookies has to be kept
	// policies is the value of the cookie that the storage policy service sets with every answer. It has the name of vim25's
	// and no path: a client with one jar for all services loses its session.
	policies string
}

func newCookies() (*cookies, error) {
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("secret for cookies: %w", err)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("cipher for cookies: %w", err)
	}
	return &cookies{block: block, policies: uuid.NewString()}, nil
}

// value is the cookie of a session.
func (c *cookies) value(key string) string {
	id, err := uuid.Parse(key)
	if err != nil {
		return key
	}
	var sealed [aes.BlockSize]byte
	c.block.Encrypt(sealed[:], id[:])
	return hex.EncodeToString(append(sealed[:], tail(sealed[:])...))
}

// key is the session of a cookie; empty if it is none of ours.
func (c *cookies) key(value string) string {
	sealed, err := hex.DecodeString(strings.Trim(value, `"`))
	if err != nil || len(sealed) != sha1.Size || string(tail(sealed[:aes.BlockSize])) != string(sealed[aes.BlockSize:]) {
		return ""
	}
	var id uuid.UUID
	c.block.Decrypt(id[:], sealed[:aes.BlockSize])
	return id.String()
}

// tail fills a block up to the length of vCenter's cookies.
func tail(sealed []byte) []byte {
	sum := sha1.Sum(sealed)
	return sum[:sha1.Size-aes.BlockSize]
}

// read makes a registry find sessions by their cookies, wherever it looks for them.
func (c *cookies) read(registry *simulator.Registry) {
	from := registry.Cookie
	if from == nil {
		from = simulator.HTTPCookie
	}
	registry.Cookie = func(ctx *simulator.Context) string { return c.key(from(ctx)) }
}

// write puts the cookies of vim25 and of the storage policy service into answers.
func (c *cookies) write(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == pbm.Path || strings.HasPrefix(r.URL.Path, pbm.Path+"/"):
			w.Header().Add("Set-Cookie", soap.SessionCookieName+"="+c.policies+"; HttpOnly")
		case r.URL.Path == vim25.Path || strings.HasPrefix(r.URL.Path, vim25.Path+"/"):
			w = &cookieWriter{ResponseWriter: w, cookies: c}
		}
		next.ServeHTTP(w, r)
	})
}

// cookieWriter replaces the library's cookie.
type cookieWriter struct {
	http.ResponseWriter
	cookies *cookies
}

// WriteHeader is called by the library for every answer, before the text.
func (w *cookieWriter) WriteHeader(status int) {
	header := w.Header()
	for i, text := range header.Values("Set-Cookie") {
		if cookie, err := http.ParseSetCookie(text); err == nil && cookie.Name == soap.SessionCookieName {
			header["Set-Cookie"][i] = fmt.Sprintf(`%s="%s"; Path=/; HttpOnly; Secure;`, cookie.Name, w.cookies.value(cookie.Value))
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the real writer.
func (w *cookieWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
