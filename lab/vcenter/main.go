// Command vcenter is a vCenter for tests: strict, with real disks and faults on request. README.md says how to use it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
	"vsphere-drivers.example/lab/vcenter/internal/control"
	"vsphere-drivers.example/lab/vcenter/internal/latency"
	"vsphere-drivers.example/lab/vcenter/internal/vcenter"
	"vsphere-drivers.example/lab/vcenter/internal/world"
)

// Exit codes: 1 is a failure of ours or the machine, 2 is a mistake in the description or on the command line.
const (
	exitFailure = 1
	exitUsage   = 2
)

type settings struct {
	worlds        []string
	listen        string
	control       string
	ca, caKey     string
	names         []string
	nodes         []string
	home          string
	generate      int
	latency       string
	exitWithStdin bool
	verbose       bool
	check         bool
	assumptions   bool
	json          bool
}

// ready is the line on standard output that says how to reach the vCenters.
type ready struct {
	VCenters []address `json:"vcenters"`
}

type address struct {
	Name             string `json:"name"`
	URL              string `json:"url"`
	URLIPv6          string `json:"url_ipv6,omitempty"`
	ThumbprintSHA1   string `json:"thumbprint_sha1"`
	ThumbprintSHA256 string `json:"thumbprint_sha256"`
	Control          string `json:"control"`
	InstanceUUID     string `json:"instance_uuid"`
	Release          string `json:"release"`
	Latency          string `json:"latency"`
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(arguments []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s, code := parseFlags(arguments, stderr)
	if s == nil {
		return code
	}
	if s.assumptions {
		return printAssumptions(s.json, stdout, stderr)
	}
	worlds, ok := readWorlds(s, stderr)
	if !ok {
		return exitUsage
	}
	if s.check {
		return 0
	}
	if !s.verbose {
		log.SetOutput(io.Discard) // the simulator's library reports every refused call there
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(stop)
	if err := serve(s, worlds, stop, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "vcenter:", err)
		return exitFailure
	}
	return 0
}

func parseFlags(arguments []string, stderr io.Writer) (*settings, int) {
	s := new(settings)
	flags := flag.NewFlagSet("vcenter", flag.ContinueOnError)
	flags.SetOutput(stderr)
	list := func(into *[]string) func(string) error {
		return func(value string) error { *into = append(*into, value); return nil }
	}
	flags.Func("world", "description `FILE`, or default; repeat it for several vCenters", list(&s.worlds))
	flags.StringVar(&s.listen, "listen", "127.0.0.1:0", "`ADDRESS:PORT` of the vCenter; 127.0.0.1 also serves [::1]")
	flags.StringVar(&s.control, "control", "127.0.0.1:0", "`ADDRESS:PORT` of the control endpoint")
	flags.StringVar(&s.ca, "ca", "", "PEM `FILE` of the authority that signs the certificate; without it the certificate is self-signed")
	flags.StringVar(&s.caKey, "ca-key", "", "PEM `FILE` with the authority's key")
	flags.Func("name", "further `NAME` or address for the certificate; repeatable", list(&s.names))
	flags.Func("node", "`VM=DIRECTORY`: the VM is a lab node, and attached disks appear in the directory; repeatable", list(&s.nodes))
	flags.StringVar(&s.home, "home", "", "`DIRECTORY` for files on datastores and disks; a temporary one when left out")
	flags.IntVar(&s.generate, "generate", 0, "add `N` VMs to the world")
	flags.StringVar(&s.latency, "latency", "", "`PROFILE` of how long calls and tasks take, in place of the descriptions' ones: none, fast-lab, idle or loaded")
	flags.BoolVar(&s.exitWithStdin, "exit-with-stdin", false, "end when standard input ends")
	flags.BoolVar(&s.verbose, "verbose", false, "log what the simulator's library reports to standard error")
	flags.BoolVar(&s.check, "check", false, "only check the descriptions")
	flags.BoolVar(&s.assumptions, "assumptions", false, "print the table of assumptions about real vCenters, and end")
	flags.BoolVar(&s.json, "json", false, "with -assumptions: print JSON, with the value in every release")
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, 0
		}
		return nil, exitUsage
	}
	complain := func(text string) (*settings, int) {
		fmt.Fprintln(stderr, "vcenter:", text)
		return nil, exitUsage
	}
	_, unknown := latency.Lookup(s.latency)
	switch {
	case unknown != nil:
		return complain("-latency: " + unknown.Error())
	case flags.NArg() > 0:
		return complain(fmt.Sprintf("unknown argument %q; descriptions are given with -world", flags.Arg(0)))
	case len(s.worlds) == 0 && !s.assumptions:
		return complain("-world is missing; give a description file, or default")
	case (s.ca == "") != (s.caKey == ""):
		return complain("-ca and -ca-key belong together")
	case s.json && !s.assumptions:
		return complain("-json belongs to -assumptions")
	case s.generate < 0:
		return complain("-generate must not be negative")
	}
	return s, 0
}

func printAssumptions(asJSON bool, stdout, stderr io.Writer) int {
	if !asJSON {
		fmt.Fprint(stdout, assume.Table())
		return 0
	}
	text, err := assume.JSON()
	if err != nil {
		fmt.Fprintln(stderr, "vcenter:", err)
		return exitFailure
	}
	fmt.Fprintln(stdout, string(text))
	return 0
}

// readWorlds reads all descriptions before anything starts, and reports the mistakes of all of them.
func readWorlds(s *settings, stderr io.Writer) ([]*world.World, bool) {
	var worlds []*world.World
	good := true
	for _, name := range s.worlds {
		described, err := readWorld(name)
		var problems world.Problems
		switch {
		case errors.As(err, &problems):
			for _, line := range problems.Lines(name) {
				fmt.Fprintln(stderr, line)
			}
			good = false
		case err != nil:
			fmt.Fprintln(stderr, "vcenter:", err)
			good = false
		}
		worlds = append(worlds, described...)
	}
	if good && len(worlds) > 1 && (fixedPort(s.listen) || fixedPort(s.control)) {
		fmt.Fprintln(stderr, "vcenter: several vCenters cannot share a port; use port 0 for -listen and -control, or one process each")
		good = false
	}
	if good {
		worlds[0].Grow(s.generate)
		for _, w := range worlds {
			if s.latency != "" {
				w.Latency = s.latency
			}
		}
		if err := placeNodes(worlds, s.nodes); err != nil {
			fmt.Fprintln(stderr, "vcenter:", err)
			good = false
		}
	}
	return worlds, good
}

func readWorld(name string) ([]*world.World, error) {
	if name == "default" {
		w, err := world.Default()
		return []*world.World{w}, err
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	worlds, err := world.Parse(file)
	if err != nil {
		return nil, err
	}
	return worlds, absolutePaths(worlds)
}

// absolutePaths is needed because the simulator changes its working directory.
func absolutePaths(worlds []*world.World) error {
	for _, w := range worlds {
		for i := range w.Datacenters {
			for _, vm := range w.Datacenters[i].VMs {
				if vm.Node == nil {
					continue
				}
				path, err := filepath.Abs(vm.Node.Disks)
				if err != nil {
					return fmt.Errorf("disks of VM %s: %w", vm.Name, err)
				}
				vm.Node.Disks = path
			}
		}
	}
	return nil
}

func fixedPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != "0"
}

func serve(s *settings, worlds []*world.World, stop chan os.Signal, stdin io.Reader, stdout io.Writer) (failure error) {
	options := vcenter.Options{Listen: s.listen, Names: s.names}
	if s.ca != "" {
		authority, err := vcenter.LoadAuthority(s.ca, s.caKey)
		if err != nil {
			return err
		}
		options.Authority = authority
	}
	if s.home == "" {
		home, err := os.MkdirTemp("", "vcenter-")
		if err != nil {
			return err
		}
		s.home = home
		defer func() { failure = errors.Join(failure, os.RemoveAll(home)) }()
	}
	home, err := filepath.Abs(s.home)
	if err != nil {
		return fmt.Errorf("home directory: %w", err)
	}
	options.Home = home
	if err := os.Chdir(options.Home); err != nil { // see vcenter.Options.Home
		return fmt.Errorf("home directory: %w", err)
	}
	var line ready
	for _, w := range worlds {
		vc, err := vcenter.Start(w, options)
		if err != nil {
			return err
		}
		defer func() { failure = errors.Join(failure, vc.Close()) }()
		endpoint, err := control.Serve(vc, s.control)
		if err != nil {
			return err
		}
		defer func() { failure = errors.Join(failure, endpoint.Close()) }()
		line.VCenters = append(line.VCenters, addressOf(vc, endpoint))
	}
	if err := json.NewEncoder(stdout).Encode(line); err != nil {
		return fmt.Errorf("say that all is ready: %w", err)
	}
	if s.exitWithStdin {
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			stop <- syscall.SIGTERM
		}()
	}
	<-stop
	return nil
}

func addressOf(vc *vcenter.VCenter, endpoint *control.Control) address {
	short, long := vc.Thumbprints()
	a := address{
		Name: vc.World.Name, URL: vc.URL.String(), ThumbprintSHA1: short, ThumbprintSHA256: long,
		Control: endpoint.URL, InstanceUUID: vc.World.InstanceUUID, Release: vc.Profile.Name, Latency: vc.Latency.Profile().Name,
	}
	if vc.URL6 != nil {
		a.URLIPv6 = vc.URL6.String()
	}
	return a
}
