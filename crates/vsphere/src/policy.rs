//! PBM, the storage policies: by name, by id, and which datastores satisfy them.
//!
//! Deliberately absent: making and changing policies, and the rules inside them.

use std::collections::HashMap;

use strsim::levenshtein;

use crate::{
    connection::Connection,
    error::{Cause, Error},
    fault::Fault,
    reference::{Kind, Ref},
    types::{
        AnyPbmProfile, Datastore, PbmCheckCompatibility, PbmPlacementHub, PbmProfileId,
        PbmProfileResourceType, PbmQueryProfile, PbmRetrieveContent, PbmRetrieveServiceContent,
        PbmServiceInstance, PbmServiceInstanceContent,
    },
    xml::Method,
};

/// The category of the policies that people make; others belong to vCenter's own machinery.
const REQUIREMENT: &str = "REQUIREMENT";
/// How many names are listed for one that does not exist.
const MOST_NEAR: usize = 5;

impl Connection {
    /// The storage policies of this vCenter; reads the content of the service.
    pub async fn policies(&self) -> Result<Policies<'_>, Error> {
        let instance = Ref::<PbmServiceInstance>::new("ServiceInstance");
        let content = self.call(&instance, &PbmRetrieveServiceContent {}).await?;
        Ok(Policies { connection: self, content })
    }
}

/// The storage policies of one vCenter.
#[derive(Debug, Clone)]
pub struct Policies<'a> {
    connection: &'a Connection,
    content: PbmServiceInstanceContent,
}

/// A storage policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its id, by which volumes name it.
    pub id: String,
    /// Its name, by which people do.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
}

/// Which datastores satisfy a policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compatibility {
    /// Those that do, with what vCenter warns of.
    pub compatible: Vec<Judged>,
    /// Those that do not, with the reasons.
    pub incompatible: Vec<Judged>,
}

/// A datastore with the judgement of vCenter.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The datastore.
    pub datastore: Ref<Datastore>,
    /// Warnings or reasons; their messages are for people.
    pub reasons: Vec<Fault>,
}

impl Policies<'_> {
    /// Every policy that volumes can have.
    pub async fn list(&self) -> Result<Vec<Policy>, Error> {
        let query = PbmQueryProfile {
            resource_type: PbmProfileResourceType { resource_type: "STORAGE".to_owned() },
            profile_category: Some(REQUIREMENT.to_owned()),
        };
        let profile_ids = self.connection.call(&self.content.profile_manager, &query).await?;
        if profile_ids.is_empty() {
            return Ok(Vec::new());
        }
        let retrieve = PbmRetrieveContent { profile_ids };
        let profiles = self.connection.call(&self.content.profile_manager, &retrieve).await?;
        Ok(profiles.into_iter().map(policy).collect())
    }

    /// The id of the policy with this name. If there is none, the error lists the names most like it.
    pub async fn id_of(&self, name: &str) -> Result<String, Error> {
        let mut policies = self.list().await?;
        if let Some(found) = policies.iter().find(|policy| policy.name == name) {
            return Ok(found.id.clone());
        }
        let wanted = name.to_lowercase();
        policies.sort_by_cached_key(|policy| levenshtein(&policy.name.to_lowercase(), &wanted));
        let near = policies.into_iter().take(MOST_NEAR).map(|policy| policy.name).collect();
        let unknown = Cause::UnknownPolicy { name: name.to_owned(), near };
        Err(self.connection.wire().error(PbmQueryProfile::NAME, unknown))
    }

    /// The names of policies by id. Policies that do not exist are not there.
    pub async fn names(&self, ids: &[&str]) -> Result<HashMap<String, String>, Error> {
        // With an id that does not exist the service fails the whole call.
        let wanted = self.list().await?.into_iter().filter(|policy| ids.contains(&&*policy.id));
        Ok(wanted.map(|policy| (policy.id, policy.name)).collect())
    }

    /// Which of these datastores satisfy the policy with this id, and why the others do not.
    pub async fn compatibility(
        &self,
        policy: &str,
        datastores: &[Ref<Datastore>],
    ) -> Result<Compatibility, Error> {
        // With none the service judges all of them.
        if datastores.is_empty() {
            return Ok(Compatibility::default());
        }
        let hub = |datastore: &Ref<Datastore>| PbmPlacementHub {
            hub_type: Datastore::NAME.to_owned(),
            hub_id: datastore.value().to_owned(),
        };
        let check = PbmCheckCompatibility {
            hubs_to_search: datastores.iter().map(hub).collect(),
            profile: PbmProfileId { unique_id: policy.to_owned() },
        };
        let results = self.connection.call(&self.content.placement_solver, &check).await?;
        let mut judged = Compatibility::default();
        for result in results {
            let datastore = Ref::new(&result.hub.hub_id);
            if result.error.is_empty() {
                judged.compatible.push(Judged { datastore, reasons: result.warning });
            } else {
                judged.incompatible.push(Judged { datastore, reasons: result.error });
            }
        }
        Ok(judged)
    }
}

fn policy(profile: AnyPbmProfile) -> Policy {
    let (id, name, description) = match profile {
        AnyPbmProfile::PbmCapabilityProfile(profile) => {
            (profile.profile_id, profile.name, profile.description)
        }
        AnyPbmProfile::PbmProfile(profile) | AnyPbmProfile::Other { base: profile, .. } => {
            (profile.profile_id, profile.name, profile.description)
        }
    };
    Policy { id: id.unique_id, name, description }
}
