//! Finding objects by what people and guests know of them: ids, names, addresses, paths.
//!
//! vCenter's index finds one id per call, so a few ids are searched at once and many are looked up in one
//! list of all VMs. What is found is read before it is returned, so that a VM that vanished in between is left
//! out, and a failure to read is a failure and never "not found".

use std::collections::BTreeSet;

use futures::future::try_join_all;

use crate::{
    error::Error,
    inventory::{Datacenter, Inventory, Uuid, topology::unescaped},
    object,
    reference::{IsA, Ref},
    types::{
        Datacenter as DatacenterKind, FindAllByDnsName, FindAllByIp, FindAllByUuid,
        FindByInventoryPath, ManagedEntity, SearchIndex, VirtualMachine,
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

/// Which id is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Id {
    Bios,
    Instance,
}

impl Inventory<'_> {
    /// The VMs whose BIOS has one of these ids, in either byte order; in the whole vCenter or in one
    /// datacenter.
    pub async fn vms_by_uuid(
        &self,
        uuids: &[Uuid],
        within: Option<&Ref<DatacenterKind>>,
    ) -> Result<Vec<Found>, Error> {
        self.by_id(Id::Bios, uuids, within).await
    }

    /// The VMs with one of these instance ids, in either byte order.
    pub async fn vms_by_instance_uuid(
        &self,
        uuids: &[Uuid],
        within: Option<&Ref<DatacenterKind>>,
    ) -> Result<Vec<Found>, Error> {
        self.by_id(Id::Instance, uuids, within).await
    }

    /// The VMs whose guest reports this name. Only running guests with VMware Tools do.
    pub async fn vms_by_dns_name(
        &self,
        name: &str,
        within: Option<&Ref<DatacenterKind>>,
    ) -> Result<Vec<Found>, Error> {
        let search = FindAllByDnsName {
            datacenter: within.cloned(),
            dns_name: name.trim().to_lowercase(),
            vm_search: true,
        };
        self.read_hits(self.connection.call(&self.index().await?, &search).await?).await
    }

    /// The VMs whose guest reports this address. Only running guests with VMware Tools do.
    pub async fn vms_by_ip(
        &self,
        address: std::net::IpAddr,
        within: Option<&Ref<DatacenterKind>>,
    ) -> Result<Vec<Found>, Error> {
        let search =
            FindAllByIp { datacenter: within.cloned(), ip: address.to_string(), vm_search: true };
        self.read_hits(self.connection.call(&self.index().await?, &search).await?).await
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

    /// The datacenters that a text means: an inventory path if it has a slash (`/europe/dc-2`), a reference
    /// (`Datacenter:datacenter-3`), or a name, wherever the datacenter is.
    pub async fn datacenters(&self, text: &str) -> Result<Vec<Ref<DatacenterKind>>, Error> {
        if let Some(value) = text.strip_prefix("Datacenter:") {
            let found = self.connection.read_one(&Ref::<DatacenterKind>::new(value)).await?;
            return Ok(found.into_iter().map(|found: Datacenter| found.reference).collect());
        }
        if text.contains('/') {
            let found = self.by_path(text).await?;
            return Ok(found.and_then(|entity| entity.cast()).into_iter().collect());
        }
        let all: Vec<Datacenter> = self.connection.list().await?;
        let named = all.into_iter().filter(|one| one.name == text || unescaped(&one.name) == text);
        Ok(named.map(|one| one.reference).collect())
    }

    async fn by_id(
        &self,
        id: Id,
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
            let is_wanted = |found: &Found| {
                let has = if id == Id::Bios { found.uuid } else { found.instance_uuid };
                has.is_some_and(|uuid| wanted.contains(&uuid))
            };
            let all = self.connection.list_in::<Found, ManagedEntity>(&root).await?;
            return Ok(all.into_iter().filter(is_wanted).collect());
        }
        let index = self.index().await?;
        let search = |uuid: Uuid| FindAllByUuid {
            datacenter: within.cloned(),
            uuid: uuid.to_string(),
            vm_search: true,
            instance_uuid: Some(id == Id::Instance),
        };
        let index = &index;
        let searches = wanted.into_iter().map(|uuid| {
            let search = search(uuid);
            async move { self.connection.call(index, &search).await }
        });
        self.read_hits(try_join_all(searches).await?.concat()).await
    }

    async fn index(&self) -> Result<Ref<SearchIndex>, Error> {
        let content = self.connection.content().await?;
        Ok(content.search_index.unwrap_or_else(|| Ref::new("SearchIndex")))
    }

    async fn read_hits<K: IsA<ManagedEntity>>(
        &self,
        hits: Vec<Ref<K>>,
    ) -> Result<Vec<Found>, Error> {
        let vms: BTreeSet<Ref<VirtualMachine>> = hits.iter().filter_map(Ref::cast).collect();
        let vms: Vec<_> = vms.into_iter().collect();
        self.connection.read(&vms).await
    }
}
