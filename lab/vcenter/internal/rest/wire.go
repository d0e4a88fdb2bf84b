package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// refusal is an error of the vAPI: a standard kind and a text. The status follows from the kind.
type refusal struct {
	kind string // as /rest writes it after com.vmware.vapi.std.errors.
	id   string // of the message
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(kind, id, format string, args ...any) error {
	return &refusal{kind, id, fmt.Sprintf(format, args...)}
}

func notFound(what, id string) error {
	return refuse("not_found", "cis.tagging.objectNotFound.error", "Tagging %s %s not found", what, id)
}

func invalid(format string, args ...any) error {
	return refuse("invalid_argument", "cis.tagging.invalidArgument.error", format, args...)
}

var statusOf = map[string]int{
	"unauthenticated":  http.StatusUnauthorized,
	"unauthorized":     http.StatusForbidden,
	"not_found":        http.StatusNotFound,
	"already_exists":   http.StatusBadRequest,
	"invalid_argument": http.StatusBadRequest,
	"invalid_request":  http.StatusBadRequest,

	"service_unavailable": http.StatusServiceUnavailable,
}

type message struct {
	Args    []string `json:"args"`
	Default string   `json:"default_message"`
	ID      string   `json:"id"`
}

// nothing is the result of calls that answer no value.
type nothing struct{}

// created is the result of calls that answer the id of something new.
type created string

// reply writes a result the way its path wants it: /rest wraps it in {"value": …} and always says 200;
// /api writes it bare and says 201 for something new and 204 for nothing.
func (c *call) reply(w http.ResponseWriter, result any, err error) {
	if err != nil {
		c.refuse(w, err)
		return
	}
	status := http.StatusOK
	switch result.(type) {
	case nothing:
		if c.api {
			status = http.StatusNoContent
		}
		w.WriteHeader(status)
		return
	case created:
		if c.api {
			status = http.StatusCreated
		}
	}
	if !c.api {
		result = map[string]any{"value": result}
	}
	writeJSON(w, status, result)
}

func (c *call) refuse(w http.ResponseWriter, err error) {
	r, ok := err.(*refusal)
	if !ok {
		r = &refusal{"internal_server_error", "com.vmware.vapi.internal", err.Error()}
	}
	status, ok := statusOf[r.kind]
	if !ok {
		status = http.StatusInternalServerError
	}
	messages := []message{{Args: []string{}, Default: r.text, ID: r.id}}
	if c.api {
		writeJSON(w, status, map[string]any{"error_type": strings.ToUpper(r.kind), "messages": messages})
		return
	}
	writeJSON(w, status, map[string]any{
		"type": "com.vmware.vapi.std.errors." + r.kind, "value": map[string]any{"messages": messages},
	})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "answer could not be written as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// maxBody bounds a request; the largest real ones list a few thousand objects.
const maxBody = 8 << 20

// call is one request, stripped of the differences between /rest and /api.
type call struct {
	api      bool
	method   string
	resource string // session, category, tag, tag-association
	id       string
	action   string
	user     string
	request  *http.Request
}

// decode reads the body. Unknown fields are refused, as the vAPI does. /rest wraps the specs of create and update.
func (c *call) decode(wrapper string, into any) error {
	data, err := io.ReadAll(io.LimitReader(c.request.Body, maxBody))
	if err != nil {
		return refuse("invalid_request", "com.vmware.vapi.rest.httpNotReadable", "Body cannot be read: %s", err)
	}
	if wrapper != "" && !c.api {
		var wrapped map[string]json.RawMessage
		if err := json.Unmarshal(data, &wrapped); err != nil || len(wrapped) != 1 || wrapped[wrapper] == nil {
			return refuse("invalid_argument", "vapi.data.structure.field.missing", "Body must be an object with the single field %s", wrapper)
		}
		data = wrapped[wrapper]
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return refuse("invalid_argument", "vapi.data.structure.field.unexpected", "Body does not fit: %s", err)
	}
	return nil
}

// parse recognises the two families of paths; nil means neither.
func parse(r *http.Request) *call {
	c := &call{method: r.Method, request: r}
	path, query := r.URL.Path, r.URL.Query()
	switch {
	case strings.HasPrefix(path, "/rest/com/vmware/cis/"):
		c.action = query.Get("~action")
		path = strings.TrimPrefix(path, "/rest/com/vmware/cis/")
	case path == "/api/session":
		c.api, path = true, "session"
	case strings.HasPrefix(path, "/api/cis/tagging/"):
		c.api, c.action = true, query.Get("action")
		path = strings.TrimPrefix(path, "/api/cis/")
	default:
		return nil
	}
	if path == "session" {
		c.resource = path
		return c
	}
	rest, ok := strings.CutPrefix(path, "tagging/")
	if !ok {
		return nil
	}
	var hasID bool
	c.resource, c.id, hasID = strings.Cut(rest, "/")
	if hasID && !c.api {
		if c.id, ok = strings.CutPrefix(c.id, "id:"); !ok {
			return nil
		}
	}
	if hasID && (c.id == "" || strings.Contains(c.id, "/")) {
		return nil
	}
	return c
}
