// Command requests prints what govmomi's client libraries put on the wire, in a normal form that other clients can be
// compared with. It calls the libraries' own functions against a server of its own that only listens.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/soap"
)

const usage = `requests [-out DIR]

Without -out it prints one JSON object of names and requests; with it, one file per request goes to the directory.
`

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	out := flag.String("out", "", "directory to write to")
	flag.Parse()
	if flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "requests:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	requests, err := all(context.Background())
	if err != nil {
		return err
	}
	if out == "" {
		names := map[string]string{}
		for _, r := range requests {
			names[r.name] = r.text
		}
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(names)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, r := range requests {
		if err := os.WriteFile(filepath.Join(out, r.file()), []byte(r.text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// An operation is a call of a library and the request that we want from it: libraries ask for more on the way.
type operation struct {
	name   string
	method string // its name on the wire; of REST, verb and path
	call   func(context.Context, *clients) error
}

// A request is what an operation sent, in normal form.
type request struct {
	name string
	rest bool
	text string
}

func (r request) file() string {
	if r.rest {
		return r.name + ".txt"
	}
	return r.name + ".xml"
}

// all performs every operation, and sorts what it sent by name.
func all(ctx context.Context) ([]request, error) {
	server, err := listen()
	if err != nil {
		return nil, err
	}
	defer server.close()
	c, err := connect(ctx, server.url)
	if err != nil {
		return nil, err
	}
	var requests []request
	for _, operations := range [][]operation{
		sessionOperations, inventoryOperations, machineOperations, permissionOperations, volumeOperations,
		snapshotOperations, storageOperations, ssoOperations, tokenOperations, restOperations,
	} {
		for _, op := range operations {
			server.forget()
			if err := op.call(ctx, c); err != nil && !refusal(err) {
				return nil, fmt.Errorf("%s: %w", op.name, err)
			}
			sent, ok := server.last(op.method)
			if !ok {
				return nil, fmt.Errorf("%s: the library sent no %s", op.name, op.method)
			}
			requests = append(requests, request{op.name, sent.rest, sent.text})
		}
	}
	slices.SortFunc(requests, func(a, b request) int { return strings.Compare(a.name, b.name) })
	return requests, nil
}

// refusal tells the errors that our own server causes from those of a call that did not reach it.
func refusal(err error) bool {
	return soap.IsSoapFault(err) || rest.IsStatusError(err, refused)
}
