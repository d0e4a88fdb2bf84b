//! Mistakes that new users make: what `kubectl describe` shows of the claim or the pod has the cause and the remedy.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use lab::{Lab, VCenterSpec, csi_driver, vcenter::Description};
use serde_json::{Value, json};

use super::{
    classes, spec,
    tenant::{Tenant, claim, pod},
};
use crate::csi_lab::deployed;

const SHARED_URL: &str = "ds:///vmfs/volumes/5eed0001-00000001-0001-000000000001/";
/// A second account, with what the documentation asks for.
const COMPLETE: &str = "storage@vsphere.local";

/// The default world with a node without `disk.EnableUUID`, and with an account for the driver that may only read.
fn description() -> Description {
    let usual = include_str!("../../../../../lab/vcenter/internal/world/default.yaml");
    let (user, password) = csi_driver::LOGIN;
    let head = format!("  - name: {user}\n    password: {password}\n");
    let both = format!(
        "{head}    permissions: [{{role: ReadOnly, on: /}}]\n  - name: {COMPLETE}\n    password: {password}\n"
    );
    let (before, second) = usual.split_once("      - name: node-2\n").unwrap();
    let second = second.replacen("disk_enable_uuid: true", "disk_enable_uuid: false", 1);
    let text = format!("{before}      - name: node-2\n{second}").replace(&head, &both);
    Description::Text(text)
}

/// A class whose claims need no pod to be bound.
fn class(name: &str, parameters: &Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": csi_driver::NAME,
        "parameters": parameters,
    })
}

#[tokio::test]
async fn mistakes_of_new_users_are_explained_by_events_of_their_claims_and_pods() {
    let vcenter = VCenterSpec { description: description(), ..VCenterSpec::default() };
    let lab = deployed(&spec(vcenter)).await;
    let mut all = classes();
    all.extend([
        class("any", &json!({})),
        class("typo", &json!({"storagepolicyname": "god"})),
        class("unknown", &json!({"storagepolicy": "gold"})),
        class("full", &json!({"datastoreurl": SHARED_URL})),
        class("ext5", &json!({"csi.storage.k8s.io/fstype": "ext5"})),
    ]);
    lab.control_plane().apply(&all).unwrap();
    let tenant = Tenant::new(&lab, "beginner").await;
    the_account_may_only_read(&lab, tenant).await;
    tokio::join!(
        the_claim_shows(tenant, "typo", "64Mi", &["storage policy \"god\"", "gold"]),
        the_claim_shows(tenant, "unknown", "64Mi", &["\"storagepolicy\"", "storagepolicyname"]),
        the_datastore_is_full(&lab, tenant),
        the_claim_shows(
            tenant,
            "any",
            "20Ti",
            &[
                "no datastore can take 20 TiB",
                "/dc-1/datastore/vsan-1: it has 8 TiB in all",
                "request less"
            ],
        ),
        the_file_system_is_unknown(tenant),
        the_vm_shows_no_disk_ids(tenant),
    );
}

/// Creates a claim of the class and waits for an event with these words.
async fn the_claim_shows(tenant: Tenant<'_>, class: &str, size: &str, words: &[&str]) {
    let name = format!("in-{class}");
    tenant.claim(claim(&name, class, size, "Filesystem")).await;
    tenant.until_event(&name, words).await;
}

async fn the_datastore_is_full(lab: &Lab, tenant: Tenant<'_>) {
    let control = lab.vcenter().unwrap().control();
    control.free_space("shared-1", 1 << 20).await.unwrap();
    let words = ["/dc-1/datastore/shared-1: it has 1 MiB free", "free space on one of them"];
    the_claim_shows(tenant, "full", "64Mi", &words).await;
}

async fn the_file_system_is_unknown(tenant: Tenant<'_>) {
    let words = ["fsType \"ext5\"", "use ext4, ext3, xfs or btrfs", "of the StorageClass"];
    the_claim_shows(tenant, "ext5", "64Mi", &words).await;
}

async fn the_vm_shows_no_disk_ids(tenant: Tenant<'_>) {
    tenant.claim(claim("hidden", "vsphere", "32Mi", "Filesystem")).await;
    tenant.create::<Pod>(pod("blind", "node-2", &["hidden"])).await;
    let words = ["has not appeared", "disk.EnableUUID=TRUE"];
    tenant.until_event("blind", &words).await;
    // It is the VM, not the volume.
    tenant.stop("blind").await;
    tenant.run(pod("seeing", "node-1", &["hidden"])).await;
}

/// The claim shows which privilege is missing, and is bound when the account is corrected in the Secret.
async fn the_account_may_only_read(lab: &Lab, tenant: Tenant<'_>) {
    tenant.claim(claim("denied", "any", "64Mi", "Filesystem")).await;
    let privilege = "grant the user a role with the privilege Cns.Searchable on Folder";
    tenant.until_event("denied", &[privilege, "(the vCenter itself)"]).await;
    let mut secret = csi_driver::secret(lab).unwrap();
    let text = secret["stringData"]["csi-vsphere.conf"].as_str().unwrap();
    let text = text.replace(csi_driver::LOGIN.0, COMPLETE);
    secret["stringData"]["csi-vsphere.conf"] = json!(text);
    lab.control_plane().apply(&[secret]).unwrap();
    // The kubelet writes a Secret's files anew when it looks at the pod.
    let driver = Tenant::of(lab, csi_driver::NAMESPACE);
    let of_controller = ListParams::default().labels("app=vsphere-csi-controller");
    for pod in driver.api::<Pod>().list(&of_controller).await.unwrap().items {
        driver.touch(&pod.metadata.name.unwrap()).await;
    }
    tenant.volume("denied").await;
    tenant.discard("denied").await;
}
