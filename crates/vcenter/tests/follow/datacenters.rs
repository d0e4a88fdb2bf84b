//! Which datacenters are watched, and what is said of those that cannot be.

use vcenter::Health;

use crate::site::{Site, is_current, names};

#[tokio::test]
async fn only_the_configured_datacenters_are_watched() {
    let mut site = Site::start(&["/dc-1"]).await;
    assert_eq!(names(&*site.current().await), ["node-1", "node-2"]);
    site.stop().await;
}

#[tokio::test]
async fn without_configured_datacenters_everything_is_watched() {
    let mut site = Site::start(&[]).await;
    let snapshot = site.current().await;
    assert_eq!(names(&snapshot), ["node-1", "node-2", "old-vm"]);
    let vm = snapshot.vms().find(|vm| vm.name == "node-1").unwrap();
    let place = snapshot.place(vm);
    assert_eq!(place.host.as_deref(), Some("esx-1.lab.example"));
    assert_eq!(place.cluster.as_deref(), Some("cluster-1"));
    assert_eq!(place.datacenter.as_deref(), Some("dc-1"));
    let ancestors = snapshot.ancestors(vm);
    let kinds: Vec<_> = ancestors.folder.iter().map(|at| at.kind()).collect();
    assert_eq!(kinds, ["Folder", "Folder", "Datacenter", "Folder"]);
    assert_eq!(ancestors.host.last(), ancestors.folder.last());
    assert_eq!(ancestors.pool.first().map(|at| at.kind()), Some("ResourcePool"));
    site.stop().await;
}

#[tokio::test]
async fn a_datacenter_that_cannot_be_resolved_leaves_the_others_usable() {
    let mut site = Site::start(&["dc-1", "nowhere"]).await;
    let partial = |health: Health| matches!(health, Health::Partial(_));
    let snapshot = site.until("it is partial", |snapshot| partial(snapshot.health())).await;
    assert_eq!(names(&snapshot), ["node-1", "node-2"]);
    let Health::Partial(outage) = snapshot.health() else { unreachable!() };
    assert!(outage.why.contains("\"nowhere\", only /dc-1, /europe/dc-2;"), "{}", outage.why);
    site.stop().await;
}

#[tokio::test]
async fn a_vcenter_that_shows_no_configured_datacenter_is_unavailable() {
    let mut site = Site::start(&["nowhere"]).await;
    let is_missing = |health: Health| matches!(health, Health::Unavailable(outage) if outage.why.contains("nowhere"));
    site.until("it says why", |snapshot| is_missing(snapshot.health())).await;
    site.stop().await;
}

#[tokio::test]
async fn a_datacenter_that_is_renamed_later_is_followed() {
    let mut site = Site::start(&["/dc-1", "/europe/moved"]).await;
    site.until("it has dc-1", |snapshot| names(snapshot) == ["node-1", "node-2"]).await;
    site.simulator.control().rename("/europe/dc-2", "moved").await.unwrap();
    let snapshot = site.current().await;
    assert_eq!(names(&snapshot), ["node-1", "node-2", "old-vm"]);
    site.simulator.control().rename("/europe/moved", "elsewhere").await.unwrap();
    site.until("it is gone again", |snapshot| {
        !is_current(snapshot) && names(snapshot) == ["node-1", "node-2"]
    })
    .await;
    site.stop().await;
}
