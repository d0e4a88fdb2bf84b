//! Which nodes reach a volume that exists, as its answer says it: Kubernetes runs pods with the volume there only.

use std::collections::BTreeSet;

use vsphere::{reference::Ref, types::Datastore};

use super::{
    super::{
        attempts::while_open,
        change,
        placement::{self, Inventory},
        topology::Segment,
    },
    Creation,
};
use crate::refusal::{Kind, Refusal};

impl Creation<'_> {
    /// The segments that reach a volume; none if the nodes report no topology. `datastore` is where it was just made.
    ///
    /// The answer cannot be corrected later, so there is none while it is not known. The volume exists, so that is not
    /// final.
    pub(super) async fn accessible(
        &self,
        id: &str,
        datastore: Option<Ref<Datastore>>,
    ) -> Result<BTreeSet<Segment>, Refusal> {
        let nodes = self.inner.nodes_in(self.site);
        if !nodes.have_topology() {
            return Ok(BTreeSet::new());
        }
        self.inner.check_located(&self.request.segments)?;
        let datastore = match datastore {
            Some(datastore) => datastore,
            None => self.datastore_of(id).await?,
        };
        let inventory = self.site.inventory(&nodes)?;
        let reached = placement::accessible(&inventory, &datastore);
        let is_requested = |term: &Segment| reached.iter().any(|one| one.is_within(term));
        let is_answer = match &*self.request.segments {
            [] => !reached.is_empty(),
            terms => terms.iter().any(is_requested),
        };
        if is_answer { Ok(reached) } else { Err(self.unreached(id, &datastore, &inventory)) }
    }

    async fn datastore_of(&self, id: &str) -> Result<Ref<Datastore>, Refusal> {
        let disk = change::read_disk(&self.connection, id).await;
        let disk = disk.map_err(|error| while_open(self.refused(error)))?;
        disk.map(|disk| change::datastore_of(&disk).clone()).ok_or_else(|| {
            let what =
                format!("volume {} was created as {id}, whose disk is gone", self.request.name);
            Refusal::new(Kind::Unavailable, what)
        })
    }

    fn unreached(&self, id: &str, datastore: &Ref<Datastore>, inventory: &Inventory) -> Refusal {
        let store = inventory.stores.iter().find(|one| one.datastore == *datastore);
        let path = store.map_or(datastore.value(), |store| &store.path);
        let terms: Vec<String> = self.request.segments.iter().map(ToString::to_string).collect();
        let segments =
            if terms.is_empty() { "any segment".to_owned() } else { terms.join(" or of ") };
        let what = format!(
            "volume {} exists ({id}) on {path}, which not all nodes of {segments} reach",
            self.request.name
        );
        let remedy = "mount the datastore on every host that runs them; the claim is bound then";
        Refusal::new(Kind::Unavailable, what).remedy(remedy)
    }
}
