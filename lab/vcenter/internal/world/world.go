// Package world is the description of a simulated vCenter: what a test author writes in YAML, checked and with
// defaults filled in. It knows nothing about the simulator, so a description can be checked without starting one.
package world

import (
	"fmt"
	"strconv"
	"strings"
)

// World is one vCenter: its release, its users and everything in its inventory.
type World struct {
	Name         string         `yaml:"name"`
	Release      string         `yaml:"release"`
	InstanceUUID string         `yaml:"instance_uuid"`
	Assumptions  map[string]any `yaml:"assumptions"`
	Latency      string         `yaml:"latency"` // how long calls and tasks take: a profile's name

	Roles       []Role       `yaml:"roles"`
	Users       []User       `yaml:"users"`
	Categories  []Category   `yaml:"categories"`
	Policies    []Policy     `yaml:"policies"`
	Datacenters []Datacenter `yaml:"datacenters"`
	Generate    Generate     `yaml:"generate"`
}

// Role is a named set of privileges, next to the ones every vCenter has (Admin, ReadOnly, NoAccess, View, Anonymous).
type Role struct {
	Name       string   `yaml:"name"`
	Privileges []string `yaml:"privileges"`
}

// User is an account of the single sign-on domain, with the permissions it has in the inventory.
type User struct {
	Name        string       `yaml:"name"` // name@domain
	Password    string       `yaml:"password"`
	Groups      []string     `yaml:"groups"` // single sign-on groups, such as Administrators
	Disabled    bool         `yaml:"disabled"`
	Locked      bool         `yaml:"locked"`
	Permissions []Permission `yaml:"permissions"`
}

// Permission gives a role on one object, and below it when Propagate is set.
type Permission struct {
	Role      string `yaml:"role"`
	On        string `yaml:"on"` // inventory path; / is the root folder
	Propagate Yes    `yaml:"propagate"`
}

// Category is a tag category with its tags.
type Category struct {
	Name        string   `yaml:"name"`
	Cardinality string   `yaml:"cardinality"` // single or multiple
	Types       []string `yaml:"types"`       // vSphere types the tags may be put on; none means all
	Tags        []Tag    `yaml:"tags"`
}

// Tag is a tag and the inventory paths of the objects it is on.
type Tag struct {
	Name string   `yaml:"name"`
	On   []string `yaml:"on"`
}

// Policy is a storage policy and the datastores that satisfy it.
type Policy struct {
	Name        string   `yaml:"name"`
	ID          string   `yaml:"id"` // profile UUID; made from the name when left out
	Description string   `yaml:"description"`
	Datastores  []string `yaml:"datastores"` // inventory paths
}

// Datacenter is one datacenter and all that is inside.
type Datacenter struct {
	Name       string      `yaml:"name"`
	Folder     string      `yaml:"folder"`  // path of folders above it, from the root
	Folders    []string    `yaml:"folders"` // folders inside, starting with vm/, host/, datastore/ or network/
	Networks   []Network   `yaml:"networks"`
	Clusters   []Cluster   `yaml:"clusters"`
	Hosts      []Host      `yaml:"hosts"` // hosts outside any cluster
	Pods       []Pod       `yaml:"datastore_clusters"`
	Datastores []Datastore `yaml:"datastores"`
	VMs        []VM        `yaml:"vms"`
}

// Network is a standard network, or a distributed port group when Switch names a distributed switch.
type Network struct {
	Name   string `yaml:"name"`
	Switch string `yaml:"switch"`
}

// Cluster is a compute cluster with its hosts and resource pools.
type Cluster struct {
	Name   string   `yaml:"name"`
	Folder string   `yaml:"folder"` // path below the datacenter's host folder
	Hosts  []Host   `yaml:"hosts"`
	Pools  []string `yaml:"pools"` // paths below the root pool: k8s, k8s/team-a

	FileService bool `yaml:"vsan_file_service"` // file shares can be made on its vSAN datastores
}

// Host is an ESXi host.
type Host struct {
	Name        string `yaml:"name"`
	State       string `yaml:"state"` // connected, disconnected or notResponding
	Maintenance bool   `yaml:"maintenance"`
}

// Pod is a datastore cluster (StoragePod).
type Pod struct {
	Name   string `yaml:"name"`
	Folder string `yaml:"folder"` // path below the datacenter's datastore folder
}

// Datastore is a datastore and the hosts that mount it.
type Datastore struct {
	Name         string   `yaml:"name"`
	Type         string   `yaml:"type"` // VMFS, vSAN, NFS, NFS41 or VVOL
	Capacity     Size     `yaml:"capacity"`
	Free         Size     `yaml:"free"` // all of the capacity when left out
	URL          string   `yaml:"url"`
	Hosts        []string `yaml:"hosts"` // names; left out means every host of the datacenter
	Local        bool     `yaml:"local"` // on a disk of its one host
	Pod          string   `yaml:"datastore_cluster"`
	Folder       string   `yaml:"folder"` // path below the datacenter's datastore folder
	Inaccessible bool     `yaml:"inaccessible"`
	Maintenance  bool     `yaml:"maintenance"`
}

// VM is a virtual machine.
type VM struct {
	Name            string `yaml:"name"`
	UUID            string `yaml:"uuid"`
	InstanceUUID    string `yaml:"instance_uuid"`
	Folder          string `yaml:"folder"` // path below the datacenter's vm folder
	Host            string `yaml:"host"`
	Pool            string `yaml:"pool"`
	Datastore       string `yaml:"datastore"`
	Power           string `yaml:"power"` // on, off or suspended
	HardwareVersion string `yaml:"hardware_version"`
	DiskEnableUUID  Yes    `yaml:"disk_enable_uuid"`
	CPUs            int32  `yaml:"cpus"`
	Memory          Size   `yaml:"memory"`
	Disk            Size   `yaml:"disk"` // system disk
	NVMe            bool   `yaml:"nvme"` // an NVMe controller beside the SCSI controller
	Template        bool   `yaml:"template"`
	Guest           Guest  `yaml:"guest"`
	NICs            []NIC  `yaml:"nics"`
	Node            *Node  `yaml:"node"`
}

// Guest is what the guest's tools report.
type Guest struct {
	HostName string `yaml:"host_name"`
	ID       string `yaml:"id"` // guest operating system id
	NoTools  bool   `yaml:"no_tools"`
}

// NIC is one network card of a VM and the addresses the guest has on it.
type NIC struct {
	Network   string   `yaml:"network"`
	MAC       string   `yaml:"mac"`
	Addresses []string `yaml:"addresses"` // with or without prefix length
}

// Node says that the VM is a lab node with real disks.
type Node struct {
	Disks string `yaml:"disks"` // directory bound over the node's /dev/disk/by-id
}

// Generate asks for many VMs of one kind, in a cluster of their own.
type Generate struct {
	VMs         int `yaml:"vms"`
	VMsPerHost  int `yaml:"vms_per_host"`
	VMsPerStore int `yaml:"vms_per_datastore"`
}

// Size is a number of bytes, written 500GiB, 2TiB or 1048576.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
}

func (s *Size) parse(text string) error {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, unit := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, unit.suffix); ok {
			number, factor = strings.TrimSpace(rest), unit.bytes
			break
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || value < 0 || value*float64(factor) > 1<<62 {
		return fmt.Errorf("must be a size such as 500GiB or 2TiB, not %q", text)
	}
	*s = Size(value * float64(factor))
	return nil
}

// Yes is a switch that is on unless the author turns it off.
type Yes struct{ off bool }

// On tells whether the switch is on.
func (y Yes) On() bool { return !y.off }

// No is the switch turned off.
func No() Yes { return Yes{off: true} }

func (y *Yes) parse(text string) error {
	switch strings.ToLower(text) {
	case "true", "yes", "on":
		y.off = false
	case "false", "no", "off":
		y.off = true
	default:
		return fmt.Errorf("must be true or false, not %q", text)
	}
	return nil
}
