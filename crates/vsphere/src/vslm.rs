//! VSLM, the first class disks below the volumes: what migration from plain disks needs.
//!
//! Deliberately absent: making, deleting and attaching disks. That is what [volumes](crate::cns) are for.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    connection::Connection,
    error::{Error, Missing, Remedy},
    fault::Fault,
    reference::Ref,
    types::{
        ID, RetrieveContent, VStorageObject, VslmListVStorageObjectForSpec, VslmRegisterDisk,
        VslmRetrieveVStorageObject, VslmServiceInstance, VslmServiceInstanceContent,
        VslmVStorageObjectManager, VslmVsoVStorageObjectQuerySpec, VslmVsoVStorageObjectResult,
    },
};

/// What has a meaning in a URL.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const ENCODED_IN_PATHS: AsciiSet = ENCODED.remove(b'/');
/// Disks of one page.
const PAGE: i32 = 100;

impl Connection {
    /// The first class disks of this vCenter; reads the content of the service.
    pub async fn disks(&self) -> Result<Disks<'_>, Error> {
        let instance = Ref::<VslmServiceInstance>::new("ServiceInstance");
        let content = self.call(&instance, &RetrieveContent {}).await?;
        Ok(Disks { connection: self, content })
    }
}

/// The first class disks of one vCenter.
#[derive(Debug, Clone)]
pub struct Disks<'a> {
    connection: &'a Connection,
    content: VslmServiceInstanceContent,
}

impl Disks<'_> {
    /// Makes a plain disk a first class disk and returns its id. One that is a first class disk already is
    /// not an error. `url` names the file; see [`file_url`].
    pub async fn register(&self, url: &str, name: Option<&str>) -> Result<String, Error> {
        let register = VslmRegisterDisk { path: url.to_owned(), name: name.map(str::to_owned) };
        match self.connection.call(self.manager(), &register).await {
            Ok(disk) => Ok(disk.config.id.id),
            Err(error) => {
                let known = error.fault().and_then(|fault| fault.find("AlreadyExists"));
                known.and_then(|fault| fault.field("name")).map(str::to_owned).ok_or(error)
            }
        }
    }

    /// Reads one disk. One that does not exist is [`Missing::Volume`], and nothing else is.
    pub async fn read(&self, id: &str) -> Result<VStorageObject, Error> {
        let retrieve = VslmRetrieveVStorageObject { id: ID { id: id.to_owned() } };
        self.connection.call(self.manager(), &retrieve).await.map_err(|mut error| {
            if matches!(error.remedy, Remedy::NotFound { .. } | Remedy::Invalid { .. }) {
                // The id is the only argument, so these two types are about it. Their families are not: a datastore
                // that no host reaches is invalid, too, and the disk on it exists.
                let is_id = matches!(
                    error.fault().map(Fault::type_name),
                    Some("NotFound" | "InvalidArgument")
                );
                let what = Missing::Volume(id.to_owned());
                error.remedy = if is_id { Remedy::NotFound { what } } else { Remedy::Retry };
            }
            error
        })
    }

    /// The disks that satisfy all conditions, page by page, in the order of their ids. Nothing is sent before
    /// the first page is requested.
    pub fn pages(&self, conditions: &[VslmVsoVStorageObjectQuerySpec]) -> DiskPages {
        DiskPages {
            connection: self.connection.clone(),
            manager: self.manager().clone(),
            conditions: conditions.to_vec(),
            size: PAGE,
            after: None,
            done: false,
        }
    }

    fn manager(&self) -> &Ref<VslmVStorageObjectManager> {
        &self.content.vstorage_object_manager
    }
}

/// First class disks, page by page.
#[derive(Debug)]
pub struct DiskPages {
    connection: Connection,
    manager: Ref<VslmVStorageObjectManager>,
    conditions: Vec<VslmVsoVStorageObjectQuerySpec>,
    size: i32,
    /// The last id of the page before: the service has no cursors, but sorts by id.
    after: Option<String>,
    done: bool,
}

impl DiskPages {
    /// At most this many disks a page.
    #[must_use]
    pub fn of(mut self, disks: u16) -> Self {
        self.size = i32::from(disks.max(1));
        self
    }

    /// The next page; nothing after the last one.
    pub async fn next_page(&mut self) -> Result<Option<Vec<VslmVsoVStorageObjectResult>>, Error> {
        if self.done {
            return Ok(None);
        }
        let mut query = self.conditions.clone();
        query.extend(self.after.as_deref().map(|id| condition("id", "greaterThan", id)));
        let list = VslmListVStorageObjectForSpec { query, max_result: self.size };
        let found = self.connection.call(&self.manager, &list).await?.unwrap_or_default();
        let last = found.query_results.last().map(|disk| disk.id.id.clone());
        self.done = found.all_records_returned || last.is_none() || last <= self.after;
        self.after = last;
        Ok((!found.query_results.is_empty()).then_some(found.query_results))
    }
}

/// A condition on disks: a field such as `name`, an operator such as `equals` or `startsWith`, a value.
pub fn condition(field: &str, operator: &str, value: &str) -> VslmVsoVStorageObjectQuerySpec {
    VslmVsoVStorageObjectQuerySpec {
        query_field: field.to_owned(),
        query_operator: operator.to_owned(),
        query_value: vec![value.to_owned()],
    }
}

/// The URL of a file on a datastore, which is how a plain disk is named to VSLM and to CNS:
/// the vCenter's host name, the datacenter's inventory path, the datastore's name, the file's path on it.
///
/// ```
/// let url = vsphere::vslm::file_url("vc.example", "/europe/dc-2", "shared 2", "kubevols/pv.vmdk");
/// assert_eq!(url, "https://vc.example/folder/kubevols/pv.vmdk?dcPath=europe%2Fdc-2&dsName=shared%202");
/// ```
pub fn file_url(vcenter: &str, datacenter: &str, datastore: &str, path: &str) -> String {
    format!(
        "https://{vcenter}/folder/{}?dcPath={}&dsName={}",
        utf8_percent_encode(path, &ENCODED_IN_PATHS),
        utf8_percent_encode(datacenter.trim_matches('/'), &ENCODED),
        utf8_percent_encode(datastore, &ENCODED)
    )
}
