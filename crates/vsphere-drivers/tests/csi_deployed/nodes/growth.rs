//! Claims that grow: while a pod uses them, and while none does.
//!
//! A mounted ext4 needs CAP_SYS_RESOURCE to grow, which root may lack in a sandbox; xfs does not. A claim that grew while no
//! pod used it has an ext4 that grows before it is mounted, and an xfs that grows afterwards.

use lab::Lab;

use super::tenant::{Tenant, claim, pod};

/// The size of a file system, in MiB.
fn mebibytes(tenant: Tenant<'_>, pod: &str, path: &str) -> u64 {
    let printed = tenant.shell(pod, &format!("df -m {path} | tail -n 1")).unwrap();
    printed.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(super) async fn volumes_grow_online_and_offline(lab: &Lab) {
    let tenant = Tenant::new(lab, "growth").await;
    tokio::join!(
        online(tenant),
        offline(tenant, "idle-xfs", "vsphere-xfs"),
        offline(tenant, "idle-ext4", "vsphere"),
    );
}

async fn online(tenant: Tenant<'_>) {
    tenant.claim(claim("xfs", "vsphere-xfs", "320Mi", "Filesystem")).await;
    tenant.claim(claim("raw", "vsphere", "16Mi", "Block")).await;
    let mut user = pod("online", "node-2", &["xfs", "raw"]);
    let mounts = user["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap();
    mounts.retain(|mount| mount["name"] != "raw");
    user["spec"]["containers"][0]["volumeDevices"] =
        serde_json::json!([{"name": "raw", "devicePath": "/dev/raw"}]);
    tenant.run(user).await;
    tenant.shell("online", "echo before > /xfs/note; sync").unwrap();
    let before = mebibytes(tenant, "online", "/xfs");
    tenant.request("xfs", "640Mi").await;
    tenant.request("raw", "32Mi").await;
    for claim in ["xfs", "raw"] {
        tenant.until_event(claim, &["FileSystemResizeRequired"]).await;
    }
    tenant.touch("online").await;
    tenant.until_size("xfs", "640Mi").await;
    tenant.until_size("raw", "32Mi").await;
    let after = mebibytes(tenant, "online", "/xfs");
    assert!(after > before + 250, "the file system had {before} MiB and has {after} MiB");
    let bytes = tenant.shell("online", "dd if=/dev/raw of=/dev/null bs=1M 2>&1 | tail -n 1");
    assert!(bytes.as_ref().unwrap().contains("32+0 records out"), "{bytes:?}");
    assert_eq!(tenant.shell("online", "cat /xfs/note").unwrap(), "before");
    tenant.stop("online").await;
    tenant.discard("xfs").await;
    tenant.discard("raw").await;
}

async fn offline(tenant: Tenant<'_>, name: &str, class: &str) {
    let [first, second] = ["first", "second"].map(|pod| format!("{pod}-{name}"));
    let note = format!("/{name}/note");
    tenant.claim(claim(name, class, "320Mi", "Filesystem")).await;
    tenant.run(pod(&first, "node-2", &[name])).await;
    tenant.shell(&first, &format!("echo before > {note}; sync")).unwrap();
    let before = mebibytes(tenant, &first, &format!("/{name}"));
    tenant.stop(&first).await;
    tenant.until_detached(name).await;
    tenant.request(name, "480Mi").await;
    // The disk grows at once, its file system when the next pod starts.
    tenant.until_event(name, &["FileSystemResizeRequired"]).await;
    tenant.run(pod(&second, "node-1", &[name])).await;
    tenant.until_size(name, "480Mi").await;
    let after = mebibytes(tenant, &second, &format!("/{name}"));
    assert!(after > before + 120, "{name} had {before} MiB and has {after} MiB");
    assert_eq!(tenant.shell(&second, &format!("cat {note}")).unwrap(), "before");
    tenant.stop(&second).await;
    tenant.discard(name).await;
}
