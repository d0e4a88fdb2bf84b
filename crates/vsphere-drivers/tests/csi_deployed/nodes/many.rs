//! As many volumes on one node as a busy node has.

use futures::future::join_all;
use lab::Lab;

use super::tenant::{Tenant, claim, pod};

const COUNT: usize = 40;

pub(super) async fn forty_volumes_on_one_node(lab: &Lab) {
    let tenant = Tenant::new(lab, "many").await;
    let names: Vec<String> = (0..COUNT).map(|number| format!("v{number}")).collect();
    for name in &names {
        tenant.claim(claim(name, "vsphere", "16Mi", "Filesystem")).await;
    }
    let claims: Vec<&str> = names.iter().map(String::as_str).collect();
    tenant.run(pod("collector", "node-1", &claims)).await;
    tenant
        .shell("collector", "for each in /v[0-9]*; do echo $each > $each/name; done; sync")
        .unwrap();
    let read = "for each in /v[0-9]*; do test $(cat $each/name) = $each && echo $each; done";
    assert_eq!(tenant.shell("collector", read).unwrap().lines().count(), COUNT);
    // Each is a disk of its own.
    let devices = "for each in /v[0-9]*; do df $each | tail -n 1 | cut -d' ' -f1; done | sort -u";
    assert_eq!(tenant.shell("collector", devices).unwrap().lines().count(), COUNT);
    tenant.stop("collector").await;
    join_all(names.iter().map(|name| tenant.discard(name))).await;
}
