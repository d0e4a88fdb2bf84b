//! What is in a vCenter: machines, hosts, storage, networks and how they are connected.
//!
//! [`Connection::inventory`] has the requests; each costs a handful of calls however many objects it is about. It
//! hides how ids are spelt, which search needs which call, how an object is connected with its ancestors, and how
//! a virtual card finds its network.
//!
//! What vCenter does not show to a user is simply not there: a search without privileges finds nothing and
//! does not fail. Before "there is none" is taken for the truth, [`Inventory::check_sight`] reports whether the
//! user can see where it looks.
//!
//! ```no_run
//! use vsphere::{connection::Connection, error::Error, inventory::Vm};
//!
//! # async fn example(connection: Connection) -> Result<(), Error> {
//! let vms: Vec<Vm> = connection.list().await?;
//! let references: Vec<_> = vms.iter().map(|vm| vm.reference.clone()).collect();
//! let ancestors = connection.inventory().ancestors(&references).await?;
//! for vm in &vms {
//!     println!("{} runs in {:?}", vm.name, ancestors.get(&vm.reference));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Deliberately absent: the choice between several answers. Two VMs may have the same UUID or the same
//! name, and only the caller knows what that means; it gets all of them.

mod datastore;
mod device;
mod entity;
mod identity;
mod network;
mod search;
mod settings;
mod topology;

pub use datastore::shared_datastores;
pub use device::{Backing, Controller, Device};
pub use entity::{ConnectionState, Datacenter, Datastore, Host, PowerState, Vm};
pub use identity::{InvalidUuid, Uuid};
pub use network::{Card, Cards, Nic, join};
pub use search::Found;
pub use settings::VmSettings;

use crate::{
    connection::Connection,
    error::{Cause, Error, Remedy},
    fault::Fault,
    object,
    reference::Ref,
    types::{Folder as FolderKind, ManagedObject},
};

object! {
    /// A property of the root folder that needs a role on it; its name is visible without one.
    struct Root: FolderKind {
        status: String = "overallStatus",
    }
}

/// Questions about what is in a vCenter. See the [module](self) for what an answer means.
#[derive(Debug, Clone, Copy)]
pub struct Inventory<'a> {
    connection: &'a Connection,
}

impl Connection {
    /// What is in this vCenter.
    pub fn inventory(&self) -> Inventory<'_> {
        Inventory { connection: self }
    }
}

impl Inventory<'_> {
    /// The folder that everything is in. It has no place of its own in inventory paths.
    pub async fn root(&self) -> Result<Ref<FolderKind>, Error> {
        Ok(self.connection.content().await?.root_folder)
    }

    /// Fails with [`Remedy::NoPermission`] when the user may not read the root folder, which the documented
    /// permissions of every driver include. Then searches find what is below other permissions of the user,
    /// or nothing, and that they find nothing means nothing.
    pub async fn check_sight(&self) -> Result<(), Error> {
        let root = self.root().await?;
        let fault = match self.connection.read_one::<Root, _>(&root).await? {
            Some(seen) if seen.unreadable.is_empty() => return Ok(()),
            Some(mut seen) => seen.unreadable.swap_remove(0).fault,
            None => Fault::bare("NoPermission", "the root folder is not shown to the user"),
        };
        Err(self.hidden(root.upcast(), "System.Read", fault))
    }

    /// The error of an object that must be visible and is not.
    fn hidden(&self, object: Ref<ManagedObject>, privilege: &str, fault: Fault) -> Error {
        let cause = Cause::Fault(Box::new(fault));
        let failure = self.connection.wire().failure("RetrievePropertiesEx", String::new(), cause);
        let privilege = Some(privilege.to_owned());
        Error::with(Remedy::NoPermission { object: Some(object), privilege }, failure)
    }
}
