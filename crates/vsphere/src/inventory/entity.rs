//! The objects of the inventory with the properties that somebody asks for again and again.
//!
//! Each struct can be read once and watched; [`Entity`] is all of them, for one watch over a whole vCenter.
//! Large properties (devices, extraConfig, the children of folders) are not here: a watch would send them
//! for every object at every change. Parents tell the same as children, and cheaper.

use crate::{
    inventory::Uuid,
    object, objects,
    reference::Ref,
    types::{
        ComputeResource, Datacenter as DatacenterKind, Datastore as DatastoreKind,
        DatastoreHostMount, Folder as FolderKind, GuestNicInfo, HostSystem, ManagedEntity,
        ResourcePool, VirtualApp, VirtualMachine,
    },
};

crate::xml::text_enum! {
    /// Whether a machine runs.
    PowerState {
        On = "poweredOn",
        Off = "poweredOff",
        Suspended = "suspended",
        Standby = "standBy",
        Unknown = "unknown",
    }

    /// Whether vCenter, or the host of a VM, has the machine in its hands.
    ConnectionState {
        Connected = "connected",
        Disconnected = "disconnected",
        NotResponding = "notResponding",
        Orphaned = "orphaned",
        Inaccessible = "inaccessible",
        Invalid = "invalid",
    }
}

object! {
    /// A virtual machine, or a template of one.
    pub struct Vm: VirtualMachine {
        /// Its name in the inventory; the guest's may be another.
        pub name: String = "name",
        /// The id of its BIOS, which the guest sees. A VM that is being created has none.
        pub uuid: Option<Uuid> = "summary.config.uuid",
        /// The id that vCenter keeps unique.
        pub instance_uuid: Option<Uuid> = "summary.config.instanceUuid",
        /// Whether it is a template, which never runs.
        pub template: bool = "summary.config.template",
        /// Whether it runs, as far as vCenter knows: see `connection`.
        pub power: PowerState = "runtime.powerState",
        /// Whether its host answers; if not, everything else here may be old.
        pub connection: ConnectionState = "runtime.connectionState",
        /// The host it is on.
        pub host: Option<Ref<HostSystem>> = "runtime.host",
        /// The folder it is in; none if it is in a vApp.
        pub parent: Option<Ref<ManagedEntity>> = "parent",
        /// The resource pool it is in; templates have none.
        pub pool: Option<Ref<ResourcePool>> = "resourcePool",
        /// The vApp it is in, if it is in one.
        pub vapp: Option<Ref<VirtualApp>> = "parentVApp",
        /// The guest's name, as VMware Tools report it.
        pub host_name: Option<String> = "guest.hostName",
        /// The guest's first address, as VMware Tools report it.
        pub ip_address: Option<String> = "guest.ipAddress",
        /// The guest's network interfaces, as VMware Tools report them.
        pub nics: Vec<GuestNicInfo> = "guest.net",
        /// `guestToolsRunning`, `guestToolsNotRunning` or `guestToolsExecutingScripts`.
        pub tools: Option<String> = "guest.toolsRunningStatus",
        /// The guest's operating system as the VM is configured for it: `ubuntu64Guest`.
        pub guest_id: Option<String> = "summary.config.guestId",
        /// The number of virtual processors.
        pub cpus: Option<i32> = "summary.config.numCpu",
        /// The memory in MiB.
        pub memory_mib: Option<i32> = "summary.config.memorySizeMB",
        /// The version of the virtual hardware: `vmx-19`.
        pub hardware_version: Option<String> = "config.version",
    }
}

impl Vm {
    /// Whether the tools in the guest run, without which the guest's name and addresses are not known.
    pub fn tools_run(&self) -> bool {
        self.tools.as_deref().is_some_and(|status| status != "guestToolsNotRunning")
    }
}

object! {
    /// A host that runs VMs.
    pub struct Host: HostSystem {
        /// Its name: the one by which vCenter reaches it.
        pub name: String = "name",
        /// Its cluster, or the compute resource of its own.
        pub parent: Option<Ref<ManagedEntity>> = "parent",
        /// Whether it answers.
        pub connection: ConnectionState = "runtime.connectionState",
        /// Whether it runs, as far as vCenter knows.
        pub power: PowerState = "runtime.powerState",
        /// Whether it is in maintenance mode, in which it runs no VM.
        pub maintenance: bool = "runtime.inMaintenanceMode",
        /// The datastores it mounts, accessible or not.
        pub datastores: Vec<Ref<DatastoreKind>> = "datastore",
    }
}

object! {
    /// A cluster, or the compute resource that a host outside of clusters has for itself.
    pub struct Cluster: ComputeResource {
        /// Its name.
        pub name: String = "name",
        /// The folder it is in.
        pub parent: Option<Ref<ManagedEntity>> = "parent",
        /// Its hosts.
        pub hosts: Vec<Ref<HostSystem>> = "host",
        /// The pool that all its pools are in.
        pub pool: Option<Ref<ResourcePool>> = "resourcePool",
    }
}

impl Cluster {
    /// Whether it really is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.reference.kind() == "ClusterComputeResource"
    }
}

object! {
    /// A resource pool or a vApp.
    pub struct Pool: ResourcePool {
        /// Its name.
        pub name: String = "name",
        /// The pool or compute resource it is in.
        pub parent: Option<Ref<ManagedEntity>> = "parent",
        /// The compute resource whose resources it shares out.
        pub owner: Option<Ref<ComputeResource>> = "owner",
    }
}

object! {
    /// A folder, or a datastore cluster, which is one.
    pub struct Folder: FolderKind {
        /// Its name.
        pub name: String = "name",
        /// The folder or datacenter it is in; the root folder is in none.
        pub parent: Option<Ref<ManagedEntity>> = "parent",
    }
}

impl Folder {
    /// Whether it is a datastore cluster.
    pub fn is_datastore_cluster(&self) -> bool {
        self.reference.kind() == "StoragePod"
    }
}

object! {
    /// A datacenter.
    pub struct Datacenter: DatacenterKind {
        /// Its name, which is unique within its folder only.
        pub name: String = "name",
        /// The folder it is in.
        pub parent: Option<Ref<ManagedEntity>> = "parent",
    }
}

object! {
    /// A datastore as one datacenter sees it: several datacenters may share the storage behind it, and then
    /// it has one object in each, all with the same URL.
    pub struct Datastore: DatastoreKind {
        /// Its name, which is unique within its datacenter.
        pub name: String = "name",
        /// The folder or datastore cluster it is in.
        pub parent: Option<Ref<ManagedEntity>> = "parent",
        /// What identifies the storage everywhere: `ds:///vmfs/volumes/…/`.
        pub url: String = "summary.url",
        /// `VMFS`, `NFS`, `NFS41`, `vsan`, `VVOL` and so on.
        pub kind: String = "summary.type",
        /// Its size in bytes.
        pub capacity: i64 = "summary.capacity",
        /// Its free space in bytes, when vCenter last looked.
        pub free: i64 = "summary.freeSpace",
        /// Whether any host reaches it.
        pub accessible: bool = "summary.accessible",
        /// `normal`, `enteringMaintenance` or `inMaintenance`.
        pub maintenance: Option<String> = "summary.maintenanceMode",
        /// Which hosts mount it, and how.
        pub mounts: Vec<DatastoreHostMount> = "host",
    }
}

objects! {
    /// Any object of the inventory that the drivers know, for a watch over everything with one request at a
    /// time.
    #[expect(clippy::large_enum_variant, reason = "nearly all objects of an inventory are VMs")]
    pub enum Entity {
        /// A virtual machine or a template.
        Vm(Vm) = "VirtualMachine",
        /// A host.
        Host(Host) = "HostSystem",
        /// A cluster or a host's own compute resource.
        Cluster(Cluster) = "ComputeResource" | "ClusterComputeResource",
        /// A resource pool or a vApp.
        Pool(Pool) = "ResourcePool" | "VirtualApp",
        /// A folder or a datastore cluster.
        Folder(Folder) = "Folder" | "StoragePod",
        /// A datacenter.
        Datacenter(Datacenter) = "Datacenter",
        /// A datastore.
        Datastore(Datastore) = "Datastore",
    }
}

impl Entity {
    /// Its name, in vCenter's spelling: `%`, `/` and `\` are written `%25`, `%2f` and `%5c`.
    pub fn name(&self) -> &str {
        match self {
            Self::Vm(object) => &object.name,
            Self::Host(object) => &object.name,
            Self::Cluster(object) => &object.name,
            Self::Pool(object) => &object.name,
            Self::Folder(object) => &object.name,
            Self::Datacenter(object) => &object.name,
            Self::Datastore(object) => &object.name,
        }
    }

    /// What it is in. For a VM that is its folder or its vApp, not its host.
    pub fn parent(&self) -> Option<Ref<ManagedEntity>> {
        match self {
            Self::Vm(vm) => vm.parent.clone().or_else(|| Some(vm.vapp.as_ref()?.upcast())),
            Self::Host(object) => object.parent.clone(),
            Self::Cluster(object) => object.parent.clone(),
            Self::Pool(object) => object.parent.clone(),
            Self::Folder(object) => object.parent.clone(),
            Self::Datacenter(object) => object.parent.clone(),
            Self::Datastore(object) => object.parent.clone(),
        }
    }
}
