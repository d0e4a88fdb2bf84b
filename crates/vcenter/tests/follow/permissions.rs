//! What a follower does while its user may not read what is configured, and how that ends.

use std::time::{Duration, Instant};

use cloud_config::{CredentialSource, Inline};
use lab::vcenter::Fault;
use vcenter::Health;
use vsphere::types::Permission;

use crate::site::{Site, is_current, names, section, wait_for};

/// How often a method was called, by whomever.
async fn calls(site: &Site, method: &str) -> u64 {
    let calls = site.simulator.control().calls().await.unwrap();
    let all = calls["calls"].as_array().unwrap().iter();
    all.filter(|call| call["method"] == method).filter_map(|call| call["count"].as_u64()).sum()
}

/// How often the watch was started: each time it makes its own collector first.
async fn starts(site: &Site) -> u64 {
    calls(site, "CreatePropertyCollector").await
}

#[tokio::test]
async fn a_user_without_a_role_is_tried_ever_more_seldom_and_noticed_when_it_gets_one() {
    let with_nobody = |simulator: &lab::VCenter| {
        let mut section = section(simulator, &["dc-1"]);
        let inline =
            Inline { user: "nobody@vsphere.local".to_owned(), password: "Lab-nobody-1!".into() };
        section.credentials = CredentialSource::Inline(inline);
        section
    };
    let mut site = Site::with(with_nobody, &["k8s-zone"]).await;
    // vCenter answers the login itself with NoPermission.
    let (mut logins, mut since) = (0, Instant::now());
    wait_for("there was no login for six seconds", async || {
        let now = calls(&site, "Login").await;
        if logins != now {
            (logins, since) = (now, Instant::now());
        }
        logins > 0 && since.elapsed() > Duration::from_secs(6)
    })
    .await;
    assert!(!is_current(&site.view.snapshot()));

    let administrator = site.connection();
    let roles = administrator.authorization().roles().await.unwrap();
    let role_id = roles.iter().find(|role| role.name == "ReadOnly").unwrap().role_id;
    let principal = "VSPHERE.LOCAL\\nobody".to_owned();
    let read = Permission { principal, role_id, propagate: true, ..Permission::default() };
    let root = administrator.inventory().root().await.unwrap();
    administrator.authorization().set_permission(&root, read).await.unwrap();
    administrator.close().await;
    assert_eq!(names(&*site.current().await), ["node-1", "node-2"]);
    site.stop().await;
}

#[tokio::test]
async fn a_datacenter_that_is_refused_for_a_while_does_not_restart_the_watch_of_the_others() {
    let mut site = Site::start(&["dc-1", "/europe/dc-2"]).await;
    site.current().await;
    // The next watch may read the tree and one datacenter; the other is refused twice.
    let refused = Fault::next("CreateContainerView", "NoPermission");
    site.simulator.control().fail(&Fault { skip: 2, count: 2, ..refused }).await.unwrap();
    site.simulator.control().expire_sessions().await.unwrap();
    let is_partial =
        |health: Health| !matches!(health, Health::Current { .. } | Health::Unavailable(_));
    site.until("one datacenter is refused", |snapshot| is_partial(snapshot.health())).await;
    let (started, views) = (starts(&site).await, calls(&site, "CreateContainerView").await);
    let again = async || calls(&site, "CreateContainerView").await > views;
    wait_for("the datacenter is tried again", again).await;
    let snapshot = site.current().await;
    assert_eq!(names(&snapshot), ["node-1", "node-2", "old-vm"]);
    assert_eq!(starts(&site).await, started, "the watch of the others went on");
    site.stop().await;
}
