//! Finding objects by what guests and people know of them: ids and paths.
//!
//! vCenter's index finds one id per call, so a few ids are searched at once and many are looked up in one
//! list of all VMs. What is found is read before it is returned, so that a VM that vanished in between is left
//! out, and a failure to read is a failure and never "not found".

use std::collections::BTreeSet;

use futures::future::try_join_all;

use crate::{
    error::Error,
    inventory::{Inventory, Uuid},
    object,
    reference::Ref,
    types::{
        Datacenter as DatacenterKind, FindAllByUuid, FindByInventoryPath, ManagedEntity,
        SearchIndex, VirtualMachine,
    },
};

/// With more ids than this, one list of all VMs costs vCenter less than the searches.
const MOST_SEARCHES: usize = 50;

object! {
    /// A VM that was found, with what distinguishes it from others.
    pub struct Found: VirtualMachine {
        /// Its name in the inventory.
        pub name: String = "name",
        /// The id of its BIOS. It may be the other byte order of the one that was looked for.
        pub uuid: Option<Uuid> = "summary.config.uuid",
        /// The id that vCenter keeps unique.
        pub instance_uuid: Option<Uuid> = "summary.config.instanceUuid",
        /// Whether it is a template; templates never run.
        pub template: bool = "summary.config.template",
    }
}

impl Inventory<'_> {
    /// The VMs whose BIOS has one of these ids, in either byte order; in the whole vCenter or in one
    /// datacenter.
    pub async fn vms_by_uuid(
        &self,
        uuids: &[Uuid],
        within: Option<&Ref<DatacenterKind>>,
    ) -> Result<Vec<Found>, Error> {
        let wanted: BTreeSet<Uuid> =
            uuids.iter().flat_map(|uuid| [*uuid, uuid.swapped()]).collect();
        if uuids.len() > MOST_SEARCHES {
            let root = match within {
                Some(datacenter) => datacenter.upcast(),
                None => self.root().await?.upcast(),
            };
            let mut all = self.connection.list_in::<Found, ManagedEntity>(&root).await?;
            all.retain(|found| found.uuid.is_some_and(|uuid| wanted.contains(&uuid)));
            return Ok(all);
        }
        let index = &self.index().await?;
        let searches = wanted.into_iter().map(|uuid| async move {
            let search = FindAllByUuid {
                datacenter: within.cloned(),
                uuid: uuid.to_string(),
                vm_search: true,
                instance_uuid: Some(false),
            };
            self.connection.call(index, &search).await
        });
        let hits = try_join_all(searches).await?.concat();
        let vms: BTreeSet<Ref<VirtualMachine>> = hits.iter().filter_map(Ref::cast).collect();
        self.connection.read(&vms.into_iter().collect::<Vec<_>>()).await
    }

    /// The object at an inventory path such as `/europe/dc-2/vm/k8s/node-1`. In its names `%`, `/` and `\`
    /// are written `%25`, `%2f` and `%5c`.
    pub async fn by_path(&self, path: &str) -> Result<Option<Ref<ManagedEntity>>, Error> {
        let inventory_path = path.trim_matches('/').to_owned();
        if inventory_path.is_empty() {
            return Ok(Some(self.root().await?.upcast()));
        }
        self.connection.call(&self.index().await?, &FindByInventoryPath { inventory_path }).await
    }

    async fn index(&self) -> Result<Ref<SearchIndex>, Error> {
        let content = self.connection.content().await?;
        Ok(content.search_index.unwrap_or_else(|| Ref::new("SearchIndex")))
    }
}
