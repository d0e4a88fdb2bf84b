package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"vsphere-drivers.example/lab/vcenter/internal/inventory"
)

// maxRequest is far more than any call needs.
const maxRequest = 1 << 20

// done is the answer of calls that have nothing to tell.
type done struct {
	OK bool `json:"ok"`
}

// nothing is the request of calls that take none.
type nothing struct{}

// refusal is the answer to a wrong request.
type refusal struct {
	Error string `json:"error"`
	Field string `json:"field,omitempty"`
}

func wrong(field, format string, args ...any) error {
	return &inventory.FieldError{Field: field, Text: fmt.Sprintf(format, args...)}
}

// read serves a call that changes nothing.
func read[T any](call func() T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, call()) }
}

// act serves a call with a JSON request.
func act[Request, Answer any](call func(Request) (Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if err := decode(r, &request, true); err != nil {
			refuse(w, err)
			return
		}
		answer(w, call, request)
	}
}

// actFree is act for a request whose fields are checked by the call.
func actFree[Answer any](call func(map[string]any) (Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		request := map[string]any{}
		if err := decode(r, &request, false); err != nil {
			refuse(w, err)
			return
		}
		answer(w, call, request)
	}
}

// actOn serves a call that takes one word from the path.
func actOn[Answer any](name string, call func(string) (Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { answer(w, call, r.PathValue(name)) }
}

func answer[Request, Answer any](w http.ResponseWriter, call func(Request) (Answer, error), request Request) {
	result, err := call(request)
	if err != nil {
		refuse(w, err)
		return
	}
	write(w, http.StatusOK, result)
}

// decode is strict: unknown fields and anything after the object are mistakes of the caller that must not pass unseen.
func decode(r *http.Request, into any, strict bool) error {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	switch {
	case err != nil:
		return wrong("body", "cannot be read: %s", err)
	case len(data) > maxRequest:
		return wrong("body", "is longer than %d bytes", maxRequest)
	case len(bytes.TrimSpace(data)) == 0:
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if strict {
		decoder.DisallowUnknownFields()
	}
	if err := decoder.Decode(into); err != nil {
		return jsonProblem(err)
	}
	if decoder.More() {
		return wrong("body", "has more than one JSON object")
	}
	return nil
}

func jsonProblem(err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		field := mismatch.Field[strings.LastIndex(mismatch.Field, ".")+1:] // without the name of an embedded struct
		if field == "" {
			field = "body"
		}
		return wrong(field, "must be of type %s, not %s", mismatch.Type, mismatch.Value)
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if name, ok := strings.CutPrefix(text, "unknown field "); ok {
		return wrong(strings.Trim(name, `"`), "unknown field")
	}
	return wrong("body", "is no JSON object: %s", text)
}

func refuse(w http.ResponseWriter, err error) {
	var field *inventory.FieldError
	if errors.As(err, &field) {
		write(w, http.StatusBadRequest, refusal{Error: field.Error(), Field: field.Field})
		return
	}
	write(w, http.StatusInternalServerError, refusal{Error: err.Error()})
}

func write(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// unknownRoutes answers in JSON what the mux would answer in plain text.
func unknownRoutes(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			write(w, http.StatusNotFound, refusal{Error: fmt.Sprintf("there is no call %s %s; README.md lists them", r.Method, r.URL.Path)})
			return
		}
		mux.ServeHTTP(w, r)
	})
}
