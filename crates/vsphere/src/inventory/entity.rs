//! The objects of the inventory with the properties that callers read most often.
//!
//! Each struct can be read once and watched.
//! Large properties (devices, extraConfig, `guest.net`, the children of folders) are not here: a watch would send
//! them for every object at every change. Parents hold the same information as children, and are cheaper.

use crate::{
    inventory::Uuid,
    object,
    reference::Ref,
    types::{
        CustomFieldStringValue, Datacenter as DatacenterKind, Datastore as DatastoreKind,
        DatastoreHostMount, HostSystem, ManagedEntity, ResourcePool, VirtualApp, VirtualMachine,
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
        /// The values of its custom attributes, by which administrators mark it: see
        /// [`suspended`](Self::suspended).
        pub custom_values: Vec<CustomFieldStringValue> = "customValue",
    }
}
