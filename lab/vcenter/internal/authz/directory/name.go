package directory

import "strings"

// Principal is the name of a user or group: case is kept for display and ignored in comparisons.
type Principal struct {
	Name   string
	Domain string
}

// key is the form two spellings of one principal share.
func (p Principal) key() Principal {
	return Principal{strings.ToLower(p.Name), strings.ToLower(p.Domain)}
}

// Same tells whether both name the same principal.
func (p Principal) Same(other Principal) bool { return p.key() == other.key() }

// String is the form vCenter uses in sessions and permissions: DOMAIN\name.
func (p Principal) String() string { return strings.ToUpper(p.Domain) + `\` + p.Name }

// UPN is the form tokens carry: name@DOMAIN.
func (p Principal) UPN() string { return p.Name + "@" + strings.ToUpper(p.Domain) }

// Parse reads name@domain, DOMAIN\name or a bare name, which belongs to the system domain.
// A domain without a dot is the short name of a known one: EXAMPLE is example.com when there are users of it.
func (d *Directory) Parse(text string) Principal {
	p := Principal{Name: text, Domain: d.domain}
	if domain, name, ok := strings.Cut(text, `\`); ok {
		p = Principal{name, domain}
	} else if at := strings.LastIndex(text, "@"); at >= 0 {
		p = Principal{text[:at], text[at+1:]}
	}
	if p.Domain == "" {
		p.Domain = d.domain
	}
	p.Domain = d.fullDomain(p.Domain)
	return p
}

func (d *Directory) fullDomain(domain string) string {
	if strings.EqualFold(domain, d.domain) {
		return d.domain
	}
	if strings.Contains(domain, ".") {
		return domain
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, known := range d.domains {
		if strings.EqualFold(strings.SplitN(known, ".", 2)[0], domain) {
			return known
		}
	}
	return domain
}
