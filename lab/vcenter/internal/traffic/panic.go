package traffic

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// The library trusts the references in requests and panics on wrong ones, and it keeps the locks that it holds then. So
// without help one wrong request ends without an answer, and the next one on the same object never ends.

// callKey is where a request's context keeps a place for the context of its call.
type callKey struct{}

// answerPanics answers a request whose call panics with SystemError and gives its locks back.
func answerPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := new(*simulator.Context)
		answer := &counted{ResponseWriter: w}
		defer func() {
			problem := recover()
			if problem == nil {
				return
			}
			if *call != nil {
				release(*call)
			}
			if problem == http.ErrAbortHandler || answer.status != 0 {
				panic(problem)
			}
			log.Printf("%s %s panicked: %v\n%s", r.Method, r.URL.Path, problem, debug.Stack())
			if strings.Contains(r.Header.Get("Content-Type"), "xml") {
				systemError(answer, fmt.Sprint(problem))
			} else {
				Unavailable(answer, http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), callKey{}, call)))
	})
}

// remember notes the context of a call where answerPanics finds it.
func remember(ctx *simulator.Context) {
	request := hidden[*http.Request](reflect.ValueOf(ctx).Elem(), "req")
	if request == nil || *request == nil {
		return
	}
	if call, ok := (*request).Context().Value(callKey{}).(**simulator.Context); ok {
		*call = ctx
	}
}

func systemError(w http.ResponseWriter, reason string) {
	var text strings.Builder
	_ = xml.EscapeText(&text, []byte(reason)) // a Builder takes everything
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, xml.Header+`<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"`+
		` xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode>`+
		`<faultstring>A general system error occurred: `+text.String()+`</faultstring><detail>`+
		`<SystemErrorFault xmlns="urn:vim25" xsi:type="SystemError"><reason>`+text.String()+`</reason></SystemErrorFault>`+
		`</detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`)
}

// release gives back the locks of a call that panicked. A task shares the locks of the call that started it and may still
// need them; taking them away would end the process. So a call with a task keeps its locks.
func release(ctx *simulator.Context) {
	for _, object := range ctx.Map.AllReference("Task") {
		if task, ok := object.(*simulator.Task); ok && contextOf(task) == ctx {
			return
		}
	}
	for ref, times := range held(ctx) {
		unlock := ctx.Map.AcquireLock(ctx, ref) // never waits: the context has the lock
		for range times + 1 {
			unlock()
		}
	}
}

// held tells how many times a context has which lock. The simulator does not export its locks.
func held(ctx *simulator.Context) map[types.ManagedObjectReference]int64 {
	found := map[types.ManagedObjectReference]int64{}
	registry := reflect.ValueOf(ctx.Map).Elem()
	locks, mu := registry.FieldByName("locks"), hidden[sync.Mutex](registry, "m")
	if mu == nil || locks.Kind() != reflect.Map {
		return found
	}
	mu.Lock()
	defer mu.Unlock()
	for each := locks.MapRange(); each.Next(); {
		key, lock := each.Key(), each.Value().Elem()
		state, count := hidden[sync.Mutex](lock, "stateLock"), hidden[int64](lock, "count")
		if state == nil || count == nil {
			return found
		}
		state.Lock()
		holder := lock.FieldByName("heldBy").Elem()
		if holder.Kind() == reflect.Pointer && holder.UnsafePointer() == reflect.ValueOf(ctx).UnsafePointer() {
			ref := types.ManagedObjectReference{Type: key.FieldByName("Type").String(), Value: key.FieldByName("Value").String()}
			found[ref] = *count
		}
		state.Unlock()
	}
	return found
}

// hidden is a field that the library does not export, nil when there is none with this name and type.
func hidden[T any](object reflect.Value, name string) *T {
	field := object.FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		return nil
	}
	return (*T)(field.Addr().UnsafePointer())
}
