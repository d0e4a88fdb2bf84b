package vcenter

import (
	"encoding/xml"
	"html"
	"net/http"
	"regexp"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/strict/schema"
)

// notFoundText is what vCenter says about an object that is gone. Clients show nothing else, so the text has to be there
// whoever found out; the library and its callers give none, or one of their own.
func notFoundText(kind, value string) string {
	return "The object '" + kind + ":" + value + "' has already been deleted or has not been completely created"
}

var (
	missingObject = regexp.MustCompile(`<ManagedObjectNotFoundFault [^>]*><obj type="([^"]*)"[^>]*>([^<]*)</obj>`)
	faultText     = regexp.MustCompile(`<faultstring>[^<]*</faultstring>|<faultstring/>`)
)

// nameMissing puts vCenter's text into the faults of vim25 calls on objects that do not exist.
func nameMissing(next http.Handler) (http.Handler, error) {
	table, err := schema.Shared()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == vim25.Path {
			w = &missingWriter{ResponseWriter: w, table: table}
		}
		next.ServeHTTP(w, r)
	}), nil
}

// missingWriter relies on the simulator to write an answer in one piece, after its status.
type missingWriter struct {
	http.ResponseWriter
	table  *schema.Table
	failed bool
}

// WriteHeader notes whether the answer is a fault.
func (w *missingWriter) WriteHeader(status int) {
	w.failed = status == http.StatusInternalServerError
	w.ResponseWriter.WriteHeader(status)
}

// Write writes the answer; the caller's count is that of its own.
func (w *missingWriter) Write(text []byte) (int, error) {
	size := len(text)
	if w.failed {
		text = w.name(text)
	}
	if _, err := w.ResponseWriter.Write(text); err != nil {
		return 0, err
	}
	return size, nil
}

// Unwrap lets http.ResponseController reach the real writer.
func (w *missingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *missingWriter) name(text []byte) []byte {
	found := missingObject.FindSubmatch(text)
	if found == nil {
		return text
	}
	gone := types.ManagedObjectReference{Type: html.UnescapeString(string(found[1])), Value: html.UnescapeString(string(found[2]))}
	sentence, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"faultstring"`
		Text    string   `xml:",chardata"`
	}{Text: notFoundText(w.table.VMODL(gone.Type), gone.Value)})
	if err != nil {
		return text
	}
	return faultText.ReplaceAllLiteral(text, sentence)
}
