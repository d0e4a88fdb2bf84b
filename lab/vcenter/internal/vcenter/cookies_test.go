package vcenter

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// call posts a SOAP request and returns the answer and its cookies as they are on the wire.
func call(t *testing.T, vc *VCenter, path, action, header, body, cookie string) (status int, text string, set []string) {
	t.Helper()
	envelope := `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/">` + header + `<soapenv:Body>` + body + `</soapenv:Body></soapenv:Envelope>`
	request, err := http.NewRequest(http.MethodPost, "https://"+vc.URL.Host+path, strings.NewReader(envelope))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("SOAPAction", action)
	if cookie != "" {
		request.Header.Set("Cookie", cookie)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(all), answer.Header.Values("Set-Cookie")
}

// rawLogin returns the session's key and cookie.
func rawLogin(t *testing.T, vc *VCenter) (key, cookie string) {
	t.Helper()
	status, text, set := call(t, vc, "/sdk", "urn:vim25/8.0.3.0", "", `<Login xmlns="urn:vim25"><_this type="SessionManager">SessionManager</_this>`+
		`<userName>`+admin+`</userName><password>`+adminPassword+`</password></Login>`, "")
	if status != http.StatusOK || len(set) != 1 {
		t.Fatalf("status %d, cookies %q: %s", status, set, text)
	}
	value := regexp.MustCompile(`^vmware_soap_session="([0-9a-f]{40})"; Path=/; HttpOnly; Secure;$`).FindStringSubmatch(set[0])
	if value == nil {
		t.Fatalf("the cookie is %s", set[0])
	}
	return regexp.MustCompile(`<key>(.*?)</key>`).FindStringSubmatch(text)[1], value[1]
}

func TestASessionIsNamedByItsCookieAndNotByItsKey(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	key, cookie := rawLogin(t, vc)
	const (
		now      = `<CurrentTime xmlns="urn:vim25"><_this type="ServiceInstance">ServiceInstance</_this></CurrentTime>`
		profiles = `<PbmQueryProfile xmlns="urn:pbm"><_this type="PbmProfileProfileManager">ProfileManager</_this>` +
			`<resourceType><resourceType>STORAGE</resourceType></resourceType></PbmQueryProfile>`
		disks = `<VslmListVStorageObjectForSpec xmlns="urn:vslm"><_this type="VslmVStorageObjectManager">VStorageObjectManager</_this>` +
			`<maxResult>1</maxResult></VslmListVStorageObjectForSpec>`
		volumes = `<CnsQueryVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">cns-volume-manager</_this><filter/></CnsQueryVolume>`
	)
	for _, test := range []struct {
		path, action, body string
		inHeader           bool
	}{
		{"/sdk", "urn:vim25/8.0.3.0", now, false},
		{"/sdk/vimService", "urn:vim25/8.0.3.0", now, false},
		{"/vsanHealth", "urn:vsan/8.0.3.0", volumes, false},
		{"/pbm", "urn:pbm/2.0", profiles, true},
		{"/pbm/sdk", "urn:pbm/2.0", profiles, true},
		{"/vslm/sdk", "urn:vslm/1.0", disks, true},
	} {
		for value, want := range map[string]int{cookie: http.StatusOK, key: http.StatusInternalServerError, strings.Repeat("0", 40): http.StatusInternalServerError} {
			header, inCookie := "", `vmware_soap_session="`+value+`"; Path=/; HttpOnly; Secure;`
			if test.inHeader {
				header = fmt.Sprintf(`<soapenv:Header><vcSessionCookie>%s</vcSessionCookie></soapenv:Header>`, value)
				inCookie = ""
			}
			status, text, _ := call(t, vc, test.path, test.action, header, test.body, inCookie)
			if status != want || want != http.StatusOK && !strings.Contains(text, "NotAuthenticated") {
				t.Errorf("%s with %s: status %d, %s", test.path, value, status, text)
			}
		}
	}
}

func TestThePolicyServiceSetsACookieThatIsNoSession(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	const content = `<PbmRetrieveServiceContent xmlns="urn:pbm"><_this type="PbmServiceInstance">ServiceInstance</_this></PbmRetrieveServiceContent>`
	status, text, set := call(t, vc, "/pbm/sdk", "urn:pbm/2.0", "", content, "")
	if status != http.StatusOK || len(set) != 1 || !regexp.MustCompile(`^vmware_soap_session=[0-9a-f-]{36}; HttpOnly$`).MatchString(set[0]) {
		t.Fatalf("status %d, cookies %q: %s", status, set, text)
	}
	const now = `<CurrentTime xmlns="urn:vim25"><_this type="ServiceInstance">ServiceInstance</_this></CurrentTime>`
	if status, text, _ := call(t, vc, "/sdk", "urn:vim25/8.0.3.0", "", now, strings.TrimSuffix(set[0], "; HttpOnly")); status != http.StatusInternalServerError {
		t.Errorf("status %d: %s", status, text)
	}
}

func TestStrictModeStandsInFrontOfBothPathsOfThePolicyService(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	const unknown = `<PbmRetrieveServiceContent xmlns="urn:pbm"><_this type="PbmServiceInstance">ServiceInstance</_this><more/></PbmRetrieveServiceContent>`
	for _, path := range []string{"/pbm", "/pbm/sdk"} {
		status, text, _ := call(t, vc, path, "urn:pbm/2.0", "", unknown, "")
		if status != http.StatusInternalServerError || !strings.Contains(text, `Unexpected element tag &quot;more&quot; seen`) {
			t.Errorf("%s: status %d, %s", path, status, text)
		}
	}
}

func TestWithoutASessionTheContentAndItsAbsenceCanBeFetched(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	fetch := func(kind, value, property string) (int, string) {
		status, text, _ := call(t, vc, "/sdk", "urn:vim25/8.0.3.0", "",
			`<Fetch xmlns="urn:vim25"><_this type="`+kind+`">`+value+`</_this><prop>`+property+`</prop></Fetch>`, "")
		return status, text
	}
	if status, text := fetch("ServiceInstance", "ServiceInstance", "content"); status != http.StatusOK || !strings.Contains(text, "<rootFolder ") {
		t.Errorf("content: %d %s", status, text)
	}
	if status, text := fetch("SessionManager", "SessionManager", "currentSession"); status != http.StatusOK || !strings.Contains(text, `<FetchResponse xmlns="urn:vim25"></FetchResponse>`) {
		t.Errorf("current session: %d %s", status, text)
	}
	for _, test := range [][3]string{{"SessionManager", "SessionManager", "sessionList"}, {"Folder", "group-d1", "name"}, {"Folder", "group-d1", "content"}} {
		if status, text := fetch(test[0], test[1], test[2]); status != http.StatusInternalServerError || !strings.Contains(text, "NotAuthenticated") {
			t.Errorf("%v: %d %s", test, status, text)
		}
	}
}

func TestRESTTakesTheCookieOfASOAPSession(t *testing.T) {
	vc := start(t, defaultWorld(t), Options{})
	key, cookie := rawLogin(t, vc)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	for value, want := range map[string]int{cookie: http.StatusOK, key: http.StatusUnauthorized} {
		request, err := http.NewRequest(http.MethodGet, "https://"+vc.URL.Host+"/rest/com/vmware/cis/tagging/category", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("vmware-api-session-id", value)
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: status %d", value, answer.StatusCode)
		}
	}
}
