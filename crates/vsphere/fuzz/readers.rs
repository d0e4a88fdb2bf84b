//! Every reader of what a server sends, on one document. Shared by the fuzzer and by the tests.

use vsphere::{
    fault::Fault,
    object, objects, recorded,
    reference::Ref,
    types::{
        AnyPbmProfile, CnsQueryResult, CnsVolumeOperationBatchResult, Datastore, DatastoreSummary,
        GuestNicInfo, HostSystem, Permission, ServiceContent, Task, TaskInfo, UserSession,
        VStorageObject, VirtualMachine, sso,
    },
    xml::Value,
};

object! {
    /// Properties of many types.
    pub(crate) struct Vm: VirtualMachine {
        pub(crate) name: String = "name",
        pub(crate) power: Option<String> = "runtime.powerState",
        pub(crate) host: Option<Ref<HostSystem>> = "runtime.host",
        pub(crate) uuid: Option<String> = "config.uuid",
        pub(crate) nics: Vec<GuestNicInfo> = "guest.net",
    }
}

object! {
    /// A structure.
    pub(crate) struct Store: Datastore {
        pub(crate) summary: DatastoreSummary = "summary",
    }
}

object! {
    /// A fault, and what may be anything.
    pub(crate) struct Ended: Task {
        pub(crate) state: String = "info.state",
        pub(crate) error: Option<Fault> = "info.error",
        pub(crate) result: Option<Value> = "info.result",
    }
}

objects! {
    /// What the recorded answers tell of.
    pub(crate) enum Seen {
        /// A VM.
        Vm(Vm) = "VirtualMachine",
        /// A datastore.
        Store(Store) = "Datastore",
        /// A task.
        Task(Ended) = "Task",
    }
}

/// Reads the document as everything that it could be. Most of them are errors; none may panic.
pub(crate) fn read_as_everything(document: &str) {
    drop(recorded::answer::<ServiceContent>(document));
    drop(recorded::answer::<UserSession>(document));
    drop(recorded::answer::<Vec<Permission>>(document));
    drop(recorded::answer::<CnsQueryResult>(document));
    drop(recorded::answer::<CnsVolumeOperationBatchResult>(document));
    drop(recorded::answer::<Vec<AnyPbmProfile>>(document));
    drop(recorded::answer::<VStorageObject>(document));
    drop(recorded::answer::<TaskInfo>(document));
    drop(recorded::answer::<Option<sso::AdminPersonUser>>(document));
    drop(recorded::answer::<Vec<Value>>(document));
    drop(recorded::objects::<Seen>(document));
    drop(recorded::changes::<Seen>(document));
    drop(recorded::versions(document));
    drop(recorded::token(document));
}
