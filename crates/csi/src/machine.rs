//! Which VM this node is, and how many volumes fit on it.
//!
//! vCenter knows the VM by its BIOS UUID. The guest sees it as the serial number, which nothing can mistake. Where
//! that is missing (not every firmware shows it), the Node's provider id has it, which the cloud controller manager
//! wrote; then what the firmware and the kubelet report as UUID, although some firmware swaps its first bytes.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use daemon::permissions::{Permission, Scope};
use k8s_openapi::api::{core::v1, storage::v1::CSINode};
use kube::{Api, Client};
use tokio::time::timeout;
use tracing::{debug, info};

use crate::refusal::{Kind, Refusal};

/// On the CSINode: how many volumes fit on the node's VM, written by the controller.
pub const MAX_VOLUMES: &str = "csi.vsphere.vmware.com/max-volumes-per-node";
/// Four controllers with fifteen places each, without the boot disk.
pub const USUAL_VOLUMES: i64 = 59;
/// What a provider id begins with.
const PROVIDER: &str = "vsphere://";
/// The API has this long: the kubelet waits, and tries again.
const BOUND: Duration = Duration::from_secs(5);

/// The VM of this node.
#[derive(Clone)]
pub struct Machine {
    /// The API, and the name of this Node.
    api: Option<(Client, String)>,
    /// `/sys/class/dmi/id`
    firmware: PathBuf,
    id: Arc<Mutex<Option<String>>>,
    /// How many volumes fit, as last read.
    slots: Arc<Mutex<Option<i64>>>,
}

/// What the service must be allowed to do in Kubernetes.
pub fn permissions() -> Vec<Permission> {
    vec![
        Permission::new(Scope::Cluster, ("", "nodes"), &["get"]),
        Permission::new(Scope::Cluster, ("storage.k8s.io", "csinodes"), &["get"]),
    ]
}

impl Machine {
    /// This machine, which the API knows by a name.
    pub fn new(api: Option<(Client, String)>) -> Self {
        Self {
            api,
            firmware: "/sys/class/dmi/id".into(),
            id: Arc::default(),
            slots: Arc::default(),
        }
    }

    /// The BIOS UUID of the VM, in lower case.
    ///
    /// # Errors
    /// When nothing names it, or the API does not answer.
    pub async fn id(&self) -> Result<String, Refusal> {
        let known = self.id.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(id) = known {
            return Ok(id);
        }
        let (id, source) = self.find().await?;
        info!(id, source, "VM of this node identified");
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.clone());
        Ok(id)
    }

    async fn find(&self) -> Result<(String, &'static str), Refusal> {
        let firmware = |name: &str| fs::read_to_string(self.firmware.join(name)).ok();
        let serial = firmware("product_serial");
        if let Some(id) = serial.as_deref().and_then(of_serial) {
            return Ok((id, "product_serial"));
        }
        let node = match &self.api {
            Some((client, name)) => Some(read_node(client, name).await?),
            None => None,
        };
        let provider = node.as_ref().and_then(|node| node.spec.as_ref()?.provider_id.as_deref());
        if let Some(id) = provider.and_then(|text| uuid(text.strip_prefix(PROVIDER)?)) {
            return Ok((id, "provider id of the Node"));
        }
        if let Some(id) = firmware("product_uuid").as_deref().and_then(uuid) {
            return Ok((id, "product_uuid"));
        }
        let status = node.as_ref().and_then(|node| node.status.as_ref()?.node_info.as_ref());
        if let Some(id) = status.and_then(|info| uuid(&info.system_uuid)) {
            return Ok((id, "system UUID of the Node"));
        }
        let what = "neither the firmware nor the Node names the VM of this node";
        let remedy = "the container needs /sys of the node and the variable NODE_NAME";
        Err(Refusal::new(Kind::Unavailable, what).remedy(remedy))
    }

    /// How many volumes fit, as the controller wrote it; the usual number if it did not. While the API does not answer,
    /// the last number stays, so that the scheduler does not fill a node that is full.
    pub async fn max_volumes(&self) -> i64 {
        let Some((client, name)) = &self.api else { return USUAL_VOLUMES };
        let nodes: Api<CSINode> = Api::all(client.clone());
        let found = timeout(BOUND, nodes.get_opt(name)).await;
        let mut last = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(Ok(found)) = found else {
            debug!(answer = ?found.err(), "could not read the CSINode");
            return last.unwrap_or(USUAL_VOLUMES);
        };
        let annotation = found.and_then(|node| node.metadata.annotations?.remove(MAX_VOLUMES));
        let number = annotation.and_then(|text| text.trim().parse::<i64>().ok());
        // 0 would mean that any number fits.
        *last = number.map(|number| number.max(1));
        last.unwrap_or(USUAL_VOLUMES)
    }
}

async fn read_node(client: &Client, name: &str) -> Result<v1::Node, Refusal> {
    let what = format!("could not read the Node {name}, which names the VM of this node");
    let nodes: Api<v1::Node> = Api::all(client.clone());
    match timeout(BOUND, nodes.get(name)).await {
        Ok(Ok(node)) => Ok(node),
        Ok(Err(error)) => Err(Refusal::new(Kind::Unavailable, what).because(error)),
        Err(_) => {
            Err(Refusal::new(Kind::Unavailable, format!("{what}: no answer within {BOUND:?}")))
        }
    }
}

/// `VMware-42 30 b1 a0 5e ed 40 00-80 00 00 00 00 00 00 01`
fn of_serial(text: &str) -> Option<String> {
    uuid(text.trim().strip_prefix("VMware-")?)
}

/// A UUID in any spelling, as vCenter writes it.
fn uuid(text: &str) -> Option<String> {
    let digits: String =
        text.trim().chars().filter(|one| !matches!(one, '-' | ' ')).collect::<String>();
    let digits = digits.to_ascii_lowercase();
    let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    // What firmware without a UUID reports.
    let is_real =
        digits.bytes().any(|byte| byte != b'0') && digits.bytes().any(|byte| byte != b'f');
    (is_hex && is_real).then(|| {
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-")
    })
}

#[cfg(test)]
mod tests {
    use kube::api::{Patch, PatchParams, PostParams};
    use lab::{ControlPlane, kubelet};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    const ID: &str = "4230b1a0-5eed-4000-8000-000000000001";

    #[test]
    fn a_serial_number_of_a_vm_is_its_uuid() {
        let serial = "VMware-42 30 b1 a0 5e ed 40 00-80 00 00 00 00 00 00 01\n";
        assert_eq!(of_serial(serial).as_deref(), Some(ID));
        for wrong in ["", "VMware-", "VMware-42 30", ID, "None", "VMware-zz 30 b1 a0 5e ed 40 00"] {
            assert_eq!(of_serial(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_uuid_is_written_as_vcenter_does() {
        for text in
            [ID, "4230B1A0-5EED-4000-8000-000000000001\n", "4230b1a05eed40008000000000000001"]
        {
            assert_eq!(uuid(text).as_deref(), Some(ID), "{text}");
        }
        for wrong in ["", "00000000-0000-0000-0000-000000000000", "4230b1a0", &"é".repeat(16)] {
            assert_eq!(uuid(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn without_an_api_the_firmware_names_the_vm_and_the_serial_number_wins() {
        let firmware = TempDir::new().unwrap();
        let machine = Machine { firmware: firmware.path().to_owned(), ..Machine::new(None) };
        let refusal = machine.id().await.unwrap_err();
        assert_eq!(refusal.kind, Kind::Unavailable, "{refusal}");
        fs::write(firmware.path().join("product_uuid"), ID.replace("4230", "3042")).unwrap();
        let other = Machine { id: Arc::default(), ..machine.clone() };
        assert_eq!(other.id().await.unwrap(), ID.replace("4230", "3042"));
        let serial = "VMware-42 30 b1 a0 5e ed 40 00-80 00 00 00 00 00 00 01";
        fs::write(firmware.path().join("product_serial"), serial).unwrap();
        assert_eq!(machine.id().await.unwrap(), ID);
        assert_eq!(machine.max_volumes().await, USUAL_VOLUMES);
    }

    #[tokio::test]
    async fn the_node_names_the_vm_and_the_csinode_how_many_volumes_fit() {
        let plane = ControlPlane::start().await.unwrap();
        let firmware = TempDir::new().unwrap();
        let machine = |name: &str| Machine {
            firmware: firmware.path().to_owned(),
            ..Machine::new(Some((plane.client(), name.to_owned())))
        };
        let refusal = machine("node-1").id().await.unwrap_err();
        assert!(refusal.to_string().contains("could not read the Node node-1"), "{refusal}");
        let (swapped, provider) = (ID.replace("4230", "3042"), format!("vsphere://{ID}"));
        let nodes = Api::all(plane.client());
        kubelet::register(&nodes, "node-1", &swapped, Some(&provider)).await.unwrap();
        kubelet::register(&nodes, "node-2", &swapped, None).await.unwrap();
        assert_eq!(machine("node-1").id().await.unwrap(), ID);
        assert_eq!(machine("node-2").id().await.unwrap(), swapped);

        let machine = machine("node-1");
        assert_eq!(machine.max_volumes().await, USUAL_VOLUMES, "there is no CSINode yet");
        let csi_nodes: Api<CSINode> = Api::all(plane.client());
        let new = json!({"metadata": {"name": "node-1"}, "spec": {"drivers": []}});
        let new = serde_json::from_value(new).unwrap();
        csi_nodes.create(&PostParams::default(), &new).await.unwrap();
        for (annotation, expected) in [("27", 27), ("0", 1), ("many", 59), (" 255\n", 255)] {
            let patch = json!({"metadata": {"annotations": {MAX_VOLUMES: annotation}}});
            let patch = Patch::Merge(patch);
            csi_nodes.patch("node-1", &PatchParams::default(), &patch).await.unwrap();
            assert_eq!(machine.max_volumes().await, expected, "{annotation}");
        }
        drop(plane);
        assert_eq!(machine.max_volumes().await, 255, "the last number stays");
    }
}
