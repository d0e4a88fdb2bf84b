package sso

import (
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"

	"vsphere-drivers.example/lab/vcenter/internal/authz/directory"
)

// Limits of vCenter's token service.
const (
	bearerLifetime = 5 * time.Minute
	holderLifetime = 30 * 24 * time.Hour
	clockTolerance = 10 * time.Minute
	timeFormat     = "2006-01-02T15:04:05.000Z"
	trustNS        = "http://docs.oasis-open.org/ws-sx/ws-trust/200512"
)

// assertion is the part of a SAML token that the simulator reads back.
type assertion struct {
	ID        string `xml:"ID,attr"`
	User      string `xml:"Subject>NameID"`
	Signature string `xml:"Signature>SignatureValue"`
}

func (a assertion) redeem(dir *directory.Directory) (directory.Principal, error) {
	return dir.Redeem(a.ID, strings.TrimSpace(a.User), strings.TrimSpace(a.Signature))
}

// RedeemXML checks a bare SAML assertion, as REST logins carry it.
func RedeemXML(dir *directory.Directory, token []byte) (directory.Principal, error) {
	var a assertion
	if err := xml.Unmarshal(token, &a); err != nil {
		return directory.Principal{}, directory.ErrToken
	}
	return a.redeem(dir)
}

// trustRequest is a WS-Trust request for a token.
type trustRequest struct {
	Security struct {
		User        string    `xml:"UsernameToken>Username"`
		Password    string    `xml:"UsernameToken>Password"`
		Certificate string    `xml:"BinarySecurityToken"`
		Assertion   assertion `xml:"Assertion"`
	} `xml:"Header>Security"`
	Request struct {
		Type     string    `xml:"RequestType"`
		KeyType  string    `xml:"KeyType"`
		Created  string    `xml:"Lifetime>Created"`
		Expires  string    `xml:"Lifetime>Expires"`
		Renewing assertion `xml:"RenewTarget>Assertion"`
	} `xml:"Body>RequestSecurityToken"`
}

// tokenService is vCenter's security token service.
type tokenService struct{ dir *directory.Directory }

// trustError is a WS-Trust fault: its code is part of the protocol.
type trustError struct{ code, text string }

func (e *trustError) Error() string { return e.text }

func (s *tokenService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, ok := readRequest(w, r)
	if !ok {
		return
	}
	answer, err := s.answer(data)
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	if err != nil {
		var f *trustError
		if !errors.As(err, &f) {
			f = &trustError{"RequestFailed", err.Error()}
		}
		w.WriteHeader(http.StatusInternalServerError)
		answer = fmt.Sprintf(`<S:Fault xmlns:ns4="http://www.w3.org/2003/05/soap-envelope"><faultcode xmlns:ns0="%s">ns0:%s</faultcode><faultstring>%s</faultstring></S:Fault>`,
			trustNS, f.code, html.EscapeString(f.text))
	}
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><S:Envelope xmlns:S="%s"><S:Body>%s</S:Body></S:Envelope>`, soapNS, answer)
}

func (s *tokenService) answer(data []byte) (string, error) {
	var req trustRequest
	if err := xml.Unmarshal(data, &req); err != nil {
		return "", &trustError{"InvalidRequest", "The request is not a SOAP message: " + err.Error()}
	}
	lifetime, err := s.lifetime(&req)
	if err != nil {
		return "", err
	}
	switch {
	case strings.HasSuffix(req.Request.Type, "/Issue"):
		user, err := s.authenticate(&req)
		if err != nil {
			return "", err
		}
		response := s.response(user, lifetime, req.holder())
		return fmt.Sprintf(`<RequestSecurityTokenResponseCollection xmlns="%s">%s</RequestSecurityTokenResponseCollection>`, trustNS, response), nil
	case strings.HasSuffix(req.Request.Type, "/Renew"):
		user, err := req.Request.Renewing.redeem(s.dir)
		if err != nil {
			return "", &trustError{"UnableToRenew", "The token cannot be renewed: " + err.Error()}
		}
		return s.response(user, lifetime, req.holder()), nil
	}
	return "", &trustError{"InvalidRequest", fmt.Sprintf("Request type %q is not supported", req.Request.Type)}
}

// holder tells whether the token is bound to a key.
func (r *trustRequest) holder() bool { return strings.HasSuffix(r.Request.KeyType, "/PublicKey") }

// lifetime is what the client asked for, within the limits; a client whose clock is off is refused.
func (s *tokenService) lifetime(req *trustRequest) (time.Duration, error) {
	limit := bearerLifetime
	if req.holder() {
		limit = holderLifetime
	}
	if req.Request.Created == "" || req.Request.Expires == "" {
		return limit, nil
	}
	created, err1 := time.Parse(time.RFC3339Nano, req.Request.Created)
	expires, err2 := time.Parse(time.RFC3339Nano, req.Request.Expires)
	if err1 != nil || err2 != nil {
		return 0, &trustError{"InvalidTimeRange", "The requested lifetime is not a pair of times"}
	}
	now := s.dir.Now()
	if created.After(now.Add(clockTolerance)) || !expires.After(now.Add(-clockTolerance)) || !expires.After(created) {
		return 0, &trustError{"InvalidTimeRange", fmt.Sprintf(
			"The token authority rejected an issue request for the time from %s to %s: its own clock says %s",
			req.Request.Created, req.Request.Expires, now.UTC().Format(timeFormat))}
	}
	return min(expires.Sub(created), limit), nil
}

func (s *tokenService) authenticate(req *trustRequest) (directory.Principal, error) {
	var user directory.Principal
	var err error
	switch {
	case req.Security.User != "":
		user, err = s.dir.Login(directory.STS, req.Security.User, req.Security.Password)
	case req.Security.Certificate != "":
		p, ok := s.dir.FindCertificate(bareCertificate(req.Security.Certificate))
		if user = p.ID; !ok {
			err = directory.ErrCredentials
		}
	default:
		user, err = req.Security.Assertion.redeem(s.dir)
	}
	switch {
	case err == nil:
		return user, nil
	case errors.Is(err, directory.ErrLocked):
		return user, &trustError{"FailedAuthentication", fmt.Sprintf("User account locked: {Name: %s, Domain: %s}", user.Name, user.Domain)}
	case errors.Is(err, directory.ErrExpired):
		return user, &trustError{"FailedAuthentication", fmt.Sprintf("User password expired: {Name: %s, Domain: %s}", user.Name, user.Domain)}
	case errors.Is(err, directory.ErrDisabled):
		return user, &trustError{"FailedAuthentication", fmt.Sprintf("User account disabled: {Name: %s, Domain: %s}", user.Name, user.Domain)}
	}
	return user, &trustError{"FailedAuthentication", "Invalid credentials"}
}

// bareCertificate strips PEM lines and white space, so that all spellings of a certificate compare equal.
func bareCertificate(text string) string {
	var b strings.Builder
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
			b.WriteString(strings.Join(strings.Fields(line), ""))
		}
	}
	return b.String()
}

func (s *tokenService) response(user directory.Principal, lifetime time.Duration, holder bool) string {
	t := s.dir.Issue(user, lifetime)
	created, expires := t.Issued.Format(timeFormat), t.Expires.Format(timeFormat)
	return fmt.Sprintf(`<RequestSecurityTokenResponse xmlns="%s"><TokenType>urn:oasis:names:tc:SAML:2.0:assertion</TokenType>`+
		`<Lifetime xmlns:wsu="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd">`+
		`<wsu:Created>%s</wsu:Created><wsu:Expires>%s</wsu:Expires></Lifetime>`+
		`<RequestedSecurityToken>%s</RequestedSecurityToken></RequestSecurityTokenResponse>`,
		trustNS, created, expires, s.assertion(t, holder))
}

// assertion writes the token. Its signature value is the directory's seal, not an XML signature.
func (s *tokenService) assertion(t directory.Token, holder bool) string {
	method := "bearer"
	if holder {
		method = "holder-of-key"
	}
	created, expires := t.Issued.Format(timeFormat), t.Expires.Format(timeFormat)
	var groups strings.Builder
	for _, g := range s.dir.GroupsOf(t.User) {
		fmt.Fprintf(&groups, `<saml2:AttributeValue xsi:type="xs:string">%s</saml2:AttributeValue>`, html.EscapeString(g.Domain+`\`+g.Name))
	}
	return fmt.Sprintf(`<saml2:Assertion xmlns:saml2="urn:oasis:names:tc:SAML:2.0:assertion" xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" ID="%[1]s" IssueInstant="%[2]s" Version="2.0">`+
		`<saml2:Issuer Format="urn:oasis:names:tc:SAML:2.0:nameid-format:entity">https://localhost/websso/SAML2/Metadata/%[4]s</saml2:Issuer>`+
		`<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:SignatureValue>%[5]s</ds:SignatureValue></ds:Signature>`+
		`<saml2:Subject><saml2:NameID Format="http://schemas.xmlsoap.org/claims/UPN">%[6]s</saml2:NameID>`+
		`<saml2:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:%[7]s"><saml2:SubjectConfirmationData NotOnOrAfter="%[3]s"/></saml2:SubjectConfirmation></saml2:Subject>`+
		`<saml2:Conditions NotBefore="%[2]s" NotOnOrAfter="%[3]s"/>`+
		`<saml2:AttributeStatement><saml2:Attribute FriendlyName="Groups" Name="http://rsa.com/schemas/attr-names/2009/01/GroupIdentity" NameFormat="urn:oasis:names:tc:SAML:2.0:attrname-format:uri">%[8]s</saml2:Attribute></saml2:AttributeStatement></saml2:Assertion>`,
		t.ID, created, expires, s.dir.Domain(), t.Signature, html.EscapeString(t.User.UPN()), method, groups.String())
}
