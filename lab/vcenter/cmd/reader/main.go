// Command reader reads the VMs of a vCenter with govmomi's own client, as its users do: what our client is compared with in
// time and memory.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const usage = `reader -url URL -thumbprint SHA|-ca FILE -user NAME -password-env VARIABLE [-page N] [-repeat N]

Reads ten properties of every VM, -repeat times with at most -page VMs in an answer (0: as vCenter likes), and prints
how many VMs the last reading found and how many seconds each took, as JSON. It ends when standard input ends.
`

var properties = []string{
	"name", "runtime.powerState", "runtime.host", "config.uuid", "config.instanceUuid",
	"guest.ipAddress", "guest.net", "guest.toolsRunningStatus", "config.version", "config.hardware.numCPU",
}

type options struct {
	url, thumbprint, ca, user, passwordEnv string

	page, repeat int
}

type result struct {
	VMs     int       `json:"vms"`
	Seconds []float64 `json:"seconds"`
}

func main() {
	var o options
	flag.StringVar(&o.url, "url", "", "")
	flag.StringVar(&o.thumbprint, "thumbprint", "", "")
	flag.StringVar(&o.ca, "ca", "", "")
	flag.StringVar(&o.user, "user", "", "")
	flag.StringVar(&o.passwordEnv, "password-env", "", "")
	flag.IntVar(&o.page, "page", 0, "")
	flag.IntVar(&o.repeat, "repeat", 1, "")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	complete := o.url != "" && o.user != "" && o.passwordEnv != "" && (o.thumbprint == "") != (o.ca == "")
	if !complete || flag.NArg() != 0 || o.page < 0 || o.repeat < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), o, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, in io.Reader, out io.Writer) (err error) {
	client, err := connect(ctx, o)
	if err != nil {
		return err
	}
	sessions := session.NewManager(client)
	if err := sessions.Login(ctx, url.UserPassword(o.user, os.Getenv(o.passwordEnv))); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sessions.Logout(ctx)) }()

	all, err := view.NewManager(client).CreateContainerView(ctx, client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		return err
	}
	var vms []mo.VirtualMachine
	seconds := make([]float64, o.repeat)
	for i := range seconds {
		start := time.Now()
		if vms, err = read(ctx, client, all.Reference(), int32(o.page)); err != nil {
			return err
		}
		seconds[i] = time.Since(start).Seconds()
	}
	if err := json.NewEncoder(out).Encode(result{len(vms), seconds}); err != nil {
		return err
	}
	// Whoever measures us looks now.
	_, err = io.Copy(io.Discard, in)
	return err
}

func connect(ctx context.Context, o options) (*vim25.Client, error) {
	target, err := soap.ParseURL(o.url)
	if err != nil {
		return nil, err
	}
	transport := soap.NewClient(target, false)
	if o.ca != "" {
		if err := transport.SetRootCAs(o.ca); err != nil {
			return nil, err
		}
	} else {
		transport.SetThumbprint(target.Host, o.thumbprint)
	}
	return vim25.NewClient(ctx, transport)
}

// read is what the view's own Retrieve does, with the size of a page, which Retrieve does not let one choose.
func read(ctx context.Context, client *vim25.Client, all types.ManagedObjectReference, page int32) ([]mo.VirtualMachine, error) {
	spec := types.PropertyFilterSpec{
		PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: properties}},
		ObjectSet: []types.ObjectSpec{{
			Obj:       all,
			Skip:      types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: all.Type, Path: "view"}},
		}},
	}
	collector := property.DefaultCollector(client)
	found, err := collector.RetrieveProperties(ctx, types.RetrieveProperties{SpecSet: []types.PropertyFilterSpec{spec}}, page)
	if err != nil {
		return nil, err
	}
	var vms []mo.VirtualMachine
	err = mo.LoadObjectContent(found.Returnval, &vms)
	return vms, err
}
