package traffic

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// locked tells whether others must wait for an object that the context holds or held.
func locked(ctx *simulator.Context, object mo.Reference) bool {
	return held(ctx)[object.Reference()] > 0
}

// breakOff panics while it holds the locks, one of them twice.
func breakOff(ctx *simulator.Context, outer, inner mo.Reference) {
	defer func() { _ = recover() }()
	ctx.WithLock(outer, func() {
		ctx.WithLock(inner, func() {
			ctx.WithLock(outer, func() { panic("oops") })
		})
	})
}

func registry() (*simulator.Registry, *mo.Folder, *mo.Folder) {
	made := simulator.NewRegistry()
	made.Path = vim25.Path
	var folders [2]*mo.Folder
	for i, name := range []string{"group-1", "group-2"} {
		folders[i] = new(mo.Folder)
		folders[i].Self = types.ManagedObjectReference{Type: "Folder", Value: name}
		made.Put(folders[i])
	}
	return made, folders[0], folders[1]
}

func TestAllLocksOfABrokenCallAreGivenBack(t *testing.T) {
	vim, outer, inner := registry()
	ctx, other := &simulator.Context{Map: vim}, &simulator.Context{Map: vim}
	breakOff(ctx, outer, inner)
	if !locked(ctx, outer) || !locked(ctx, inner) {
		t.Fatal("the library releases locks itself: this code is no longer needed")
	}
	keep := vim.AcquireLock(other, new(types.ManagedObjectReference)) // of another call
	release(ctx)
	done := make(chan struct{})
	go func() {
		other.WithLock(outer, func() { other.WithLock(inner, func() {}) })
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("an object is still locked")
	}
	keep() // panics when the lock was taken away
}

func TestABrokenCallWithATaskKeepsItsLocks(t *testing.T) {
	vim, outer, inner := registry()
	ctx := &simulator.Context{Map: vim}
	end := make(chan struct{})
	task := simulator.CreateTask(outer, "wait", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		<-end
		return nil, nil
	})
	task.Run(ctx)
	breakOff(ctx, outer, inner)
	release(ctx)
	if !locked(ctx, outer) {
		t.Error("the task lost its lock")
	}
	close(end)
	task.Wait()
}

func TestAPanicIsAnsweredInTheLanguageOfTheRequest(t *testing.T) {
	traffic := New()
	broken := traffic.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a < b") }))
	for content, want := range map[string]string{"text/xml": "<reason>a &lt; b</reason>", "application/json": "<h1>500"} {
		request := httptest.NewRequest(http.MethodPost, "/x", nil)
		request.Header.Set("Content-Type", content)
		answer := httptest.NewRecorder()
		broken.ServeHTTP(answer, request)
		if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), want) {
			t.Errorf("%s: %d %s", content, answer.Code, answer.Body)
		}
	}
	if got := traffic.Requests(); len(got) != 1 || got[0].Status != 500 || got[0].Count != 2 {
		t.Errorf("counted %v", got)
	}
}
