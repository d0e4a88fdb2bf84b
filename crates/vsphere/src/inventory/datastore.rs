//! Datastores by what volumes need: which hosts reach them, how much room they have.
//!
//! Storage that several datacenters share has an object in each of them. Its URL identifies it, so
//! hosts of different datacenters share it although no object has all of them.

use std::collections::{HashMap, HashSet};

use crate::{
    error::Error,
    inventory::{Datastore, Host, Inventory},
    object,
    reference::Ref,
    types::{
        Datastore as DatastoreKind, DatastoreHostMount, HostSystem, ManagedEntity, StoragePod,
    },
};

object! {
    /// The members of a datastore cluster.
    struct Members: StoragePod {
        children: Vec<Ref<ManagedEntity>> = "childEntity",
    }
}

/// The value of a custom attribute, whatever its name, by which administrators ask for no more volumes on a
/// datastore.
const SUSPENDED: &str = "cns.vmware.com/datastoreSuspended";

impl Datastore {
    /// Whether it can take new files now: some host reaches it, it is not in maintenance, and all of that is
    /// known. vCenter may fail to report what is on an inaccessible datastore, and then the last values stay.
    pub fn is_usable(&self) -> bool {
        self.accessible
            && self.maintenance.as_deref().is_none_or(|mode| mode == "normal")
            && self.unreadable.is_empty()
    }

    /// Whether an administrator asked for no more volumes on it. vCenter itself ignores that.
    pub fn suspended(&self) -> bool {
        self.custom_values.iter().any(|field| field.value == SUSPENDED)
    }

    /// The hosts that reach it and may write to it.
    pub fn writers(&self) -> impl Iterator<Item = &Ref<HostSystem>> {
        self.mounts.iter().filter(|mount| writes(mount)).map(|mount| &mount.key)
    }

    /// Whether it is the storage with this URL.
    pub fn has_url(&self, url: &str) -> bool {
        identity(&self.url) == identity(url)
    }
}

/// Fields that a mount leaves out count as granted: old servers do not send them.
fn writes(mount: &DatastoreHostMount) -> bool {
    let how = &mount.mount_info;
    how.access_mode != "readOnly" && how.mounted.unwrap_or(true) && how.accessible.unwrap_or(true)
}

fn identity(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

/// Those of the datastores that can take new files and whose storage every one of the hosts can write to.
/// Without hosts there are none.
pub fn shared_datastores<'a>(
    datastores: impl IntoIterator<Item = &'a Datastore>,
    hosts: &[Ref<HostSystem>],
) -> Vec<&'a Datastore> {
    let usable: Vec<_> = datastores.into_iter().filter(|datastore| datastore.is_usable()).collect();
    let mut writers: HashMap<&str, HashSet<&Ref<HostSystem>>> = HashMap::new();
    for datastore in &usable {
        writers.entry(identity(&datastore.url)).or_default().extend(datastore.writers());
    }
    let shared = |datastore: &&Datastore| {
        let reached = writers.get(identity(&datastore.url));
        !hosts.is_empty()
            && reached.is_some_and(|reached| hosts.iter().all(|host| reached.contains(host)))
    };
    usable.into_iter().filter(shared).collect()
}

impl Inventory<'_> {
    /// The datastores that can take new files and that all these hosts can write to. Two requests.
    pub async fn datastores_shared_by(
        &self,
        hosts: &[Ref<HostSystem>],
    ) -> Result<Vec<Datastore>, Error> {
        let seen: Vec<Host> = self.connection.read(hosts).await?;
        let mounted: HashSet<Ref<DatastoreKind>> =
            seen.into_iter().flat_map(|host| host.datastores).collect();
        let mounted: Vec<_> = mounted.into_iter().collect();
        let datastores: Vec<Datastore> = self.connection.read(&mounted).await?;
        Ok(shared_datastores(&datastores, hosts).into_iter().cloned().collect())
    }

    /// The datastores with this URL: one in each datacenter that has the storage.
    pub async fn datastores_by_url(&self, url: &str) -> Result<Vec<Datastore>, Error> {
        let all: Vec<Datastore> = self.connection.list().await?;
        Ok(all.into_iter().filter(|datastore| datastore.has_url(url)).collect())
    }

    /// The datastores of a datastore cluster.
    pub async fn datastores_in(&self, cluster: &Ref<StoragePod>) -> Result<Vec<Datastore>, Error> {
        let members: Option<Members> = self.connection.read_one(cluster).await?;
        let children = members.map(|members| members.children).unwrap_or_default();
        let members: Vec<Ref<DatastoreKind>> = children.iter().filter_map(Ref::cast).collect();
        self.connection.read(&members).await
    }
}

#[cfg(test)]
mod tests {
    use super::shared_datastores;
    use crate::{
        inventory::Datastore,
        property::{Object, Unreadable},
        reference::Ref,
        types::{DatastoreHostMount, HostMountInfo},
        xml::Reader,
    };

    fn datastore(name: &str, url: &str, hosts: &[(&str, &str)]) -> Datastore {
        let mount = |(host, access): &(&str, &str)| DatastoreHostMount {
            key: Ref::new(host),
            mount_info: HostMountInfo {
                access_mode: (*access).to_owned(),
                accessible: Some(true),
                ..HostMountInfo::default()
            },
        };
        Datastore {
            name: name.to_owned(),
            url: url.to_owned(),
            accessible: true,
            mounts: hosts.iter().map(mount).collect(),
            ..Datastore::default()
        }
    }

    #[test]
    fn storage_is_shared_across_datacenters_by_its_url() {
        let rw = "readWrite";
        let stores = [
            datastore("nfs in dc-1", "ds:///vmfs/volumes/a/", &[("h1", rw), ("h2", rw)]),
            datastore("nfs in dc-2", "ds:///vmfs/volumes/a", &[("h3", rw)]),
            datastore("local", "ds:///vmfs/volumes/b/", &[("h1", rw)]),
            datastore("read only", "ds:///vmfs/volumes/c/", &[("h1", rw), ("h3", "readOnly")]),
        ];
        let names = |hosts: &[&str]| -> Vec<String> {
            let hosts: Vec<_> = hosts.iter().map(|host| Ref::new(host)).collect();
            shared_datastores(&stores, &hosts).into_iter().map(|one| one.name.clone()).collect()
        };
        assert_eq!(names(&["h1", "h3"]), ["nfs in dc-1", "nfs in dc-2"]);
        assert_eq!(names(&["h1"]), ["nfs in dc-1", "nfs in dc-2", "local", "read only"]);
        assert_eq!(names(&["h1", "unknown"]), Vec::<String>::new());
        assert_eq!(names(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_datastore_that_is_being_emptied_or_that_nobody_reaches_is_no_place_for_files() {
        let mut store = datastore("one", "ds:///vmfs/volumes/a/", &[("h1", "readWrite")]);
        assert!(store.is_usable());
        store.maintenance = Some("enteringMaintenance".to_owned());
        assert!(!store.is_usable());
        store.maintenance = Some("normal".to_owned());
        assert!(store.is_usable());
        store.accessible = false;
        assert!(!store.is_usable());
        store.accessible = true;
        let path = "summary.accessible".to_owned();
        store.unreadable.push(Unreadable { path, ..Unreadable::default() });
        assert!(!store.is_usable(), "it was accessible when it could last be read");
    }

    #[test]
    fn a_datastore_is_suspended_by_the_value_of_any_custom_attribute() {
        let answer = r#"<val xsi:type="ArrayOfCustomFieldValue">
            <CustomFieldValue xsi:type="CustomFieldStringValue"><key>101</key><value>backup</value></CustomFieldValue>
            <CustomFieldValue xsi:type="CustomFieldFutureValue"><key>102</key></CustomFieldValue>
            <CustomFieldValue xsi:type="CustomFieldStringValue"><key>103</key>
              <value>cns.vmware.com/datastoreSuspended</value></CustomFieldValue></val>"#;
        let mut reader = Reader::new(answer);
        let root = reader.root().unwrap();
        let mut store = Datastore::default();
        store.assign("customValue", &mut reader, &root).unwrap();
        assert!(store.suspended());
        assert_eq!(store.custom_values.len(), 3);
        store.custom_values.pop();
        assert!(!store.suspended());
    }
}
