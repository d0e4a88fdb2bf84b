package strict

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// refusal is a fault in the making: what is wrong, then from the inside out where it was found.
type refusal struct {
	code   string
	text   string
	trail  []string
	detail string // element of the fault; InvalidRequest if empty
}

func refuse(format string, args ...any) *refusal {
	return &refusal{code: "ServerFaultCode", text: fmt.Sprintf(format, args...)}
}

// inside adds a place to the trail.
func (r *refusal) inside(format string, args ...any) *refusal {
	r.trail = append(r.trail, fmt.Sprintf(format, args...))
	return r
}

// undetermined adds the places of a request that was given up before its method was known.
func undetermined(r *refusal) *refusal {
	return r.inside("while parsing HTTP request before method was determined\nat line 1, column 0")
}

// notAuthenticated is the fault of a call without a login.
func notAuthenticated(this types.ManagedObjectReference) *refusal {
	return &refusal{
		code: "ServerFaultCode",
		text: "The session is not authenticated.",
		detail: fmt.Sprintf(`<NotAuthenticatedFault xmlns="urn:vim25" xsi:type="NotAuthenticated">`+
			`<object type="%s">%s</object><privilegeId>System.View</privilegeId></NotAuthenticatedFault>`,
			escape.Replace(this.Type), escape.Replace(this.Value)),
	}
}

const invalidRequest = `<InvalidRequestFault xmlns="urn:vim25" xsi:type="InvalidRequest"></InvalidRequestFault>`

// escape makes text safe for XML and leaves line ends as they are.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\r", "&#xD;")

// message is the fault's text. vCenter begins it with an empty line when it tells where.
func (r *refusal) message() string {
	if len(r.trail) == 0 {
		return r.text
	}
	return "\n" + r.text + "\n\n" + strings.Join(r.trail, "\n\n")
}

func (r *refusal) write(w http.ResponseWriter) {
	detail := r.detail
	if detail == "" {
		detail = invalidRequest
	}
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.WriteHeader(http.StatusInternalServerError)
	// A client that is gone needs no answer, hence no check.
	_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
		`<soapenv:Envelope xmlns:soapenc="http://schemas.xmlsoap.org/soap/encoding/"`+
		` xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"`+
		` xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">`+"\n"+
		`<soapenv:Body><soapenv:Fault><faultcode>`+r.code+`</faultcode><faultstring>`+escape.Replace(r.message())+
		`</faultstring><detail>`+detail+`</detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`)
}

// clip keeps a value of the request short enough for a message.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
