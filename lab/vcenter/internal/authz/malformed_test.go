package authz

import (
	"net/http"
	"strings"
	"testing"
)

func TestMalformedRequestsAreAnsweredNotDropped(t *testing.T) {
	l := start(t, Config{})
	wrap := func(body string) string {
		return `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Header/><Body>` + body + `</Body></Envelope>`
	}
	bodies := []string{
		"", "not xml", "<a>", "<Envelope/>", wrap(""), wrap("text"), wrap("<Unknown/>"),
		wrap(`<AdminGroup xmlns="urn:sso"/>`), wrap(`<PrincipalId xmlns="urn:sso"><name>x</name></PrincipalId>`),
		wrap(`<Login xmlns="urn:sso"/>`), wrap(`<Login xmlns="urn:sso"><_this type="SsoSessionManager">ssoSessionManager</_this></Login>`),
		wrap(`<FindUser xmlns="urn:sso"><_this type="X">y</_this></FindUser>`), wrap(`<ManagedObjectReference/>`),
		wrap(`<RequestSecurityToken xmlns="http://docs.oasis-open.org/ws-sx/ws-trust/200512"/>`),
		wrap(`<RequestSecurityToken><RequestType>x/Issue</RequestType><Lifetime><Created>soon</Created><Expires>later</Expires></Lifetime></RequestSecurityToken>`),
		wrap(`<RequestSecurityToken><RequestType>x/Renew</RequestType></RequestSecurityToken>`),
	}
	for _, path := range []string{"/sso-adminserver/sdk/vsphere.local", "/sso-adminserver/sdk", "/sts/STSService", "/sts/STSService/vsphere.local"} {
		for _, body := range bodies {
			res, err := http.Post(l.url.Scheme+"://"+l.url.Host+path, "text/xml", strings.NewReader(body))
			if err != nil {
				t.Errorf("%s with %q: %v", path, body, err)
				continue
			}
			res.Body.Close()
			if res.StatusCode != http.StatusInternalServerError {
				t.Errorf("%s with %q: %s", path, body, res.Status)
			}
		}
		res, err := http.Get(l.url.Scheme + "://" + l.url.Host + path)
		if err != nil || res.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %v, %v", path, res, err)
		}
	}
}
