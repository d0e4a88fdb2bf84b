//! The name of this cluster at vCenter: from the configuration, or from a ConfigMap that is made once.
//!
//! Two clusters with one name would take each other's volumes for their own, so the ConfigMap is immutable, and a
//! configuration that contradicts it is refused.

use std::{collections::BTreeMap, fs};

use cloud_config::{ClusterId, ClusterIdProblem, CsiConfig};
use daemon::permissions::{Permission, Scope};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};

const CONFIG_MAP: &str = "vsphere-csi-cluster-id";
const KEY: &str = "clusterID";
/// The kernel's generator of random UUIDs.
const RANDOM: &str = "/proc/sys/kernel/random/uuid";

/// Why the name of the cluster is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unknown {
    #[error(transparent)]
    Problem(#[from] ClusterIdProblem),
    #[error("the ConfigMap {CONFIG_MAP} could not be read or created")]
    Api(#[from] kube::Error),
    #[error("{RANDOM} could not be read")]
    Random(#[from] std::io::Error),
}

impl Unknown {
    /// Whether it lasts until somebody changes the configuration or the ConfigMap.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::Problem(_))
    }
}

/// What is asked of the API server.
pub(crate) fn permissions(namespace: &str) -> Vec<Permission> {
    let scope = || Scope::Namespace(namespace.to_owned());
    vec![
        Permission::new(scope(), ("", "configmaps"), &["get"]).named(CONFIG_MAP),
        // A name cannot be required of what does not exist yet.
        Permission::new(scope(), ("", "configmaps"), &["create"]),
    ]
}

/// The name of the cluster; one is made if there is none.
pub(crate) async fn find(
    client: &Client,
    namespace: &str,
    config: &CsiConfig,
) -> Result<ClusterId, Unknown> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let recorded = |map: &ConfigMap| map.data.as_ref()?.get(KEY).cloned();
    loop {
        let found = maps.get_opt(CONFIG_MAP).await?;
        let id = found.as_ref().map(|map| recorded(map).unwrap_or_default());
        if let Some(id) = config.resolve_cluster_id(id.as_deref())? {
            return Ok(id);
        }
        let id = fs::read_to_string(RANDOM)?.trim().to_owned();
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([(KEY.to_owned(), id)])),
            immutable: Some(true),
            ..ConfigMap::default()
        };
        match maps.create(&PostParams::default(), &map).await {
            Ok(_) => {}
            // Another replica was first.
            Err(kube::Error::Api(answer)) if answer.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
}
