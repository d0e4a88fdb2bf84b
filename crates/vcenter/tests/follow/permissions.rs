//! What a follower does while its user may not read what is configured, and how that ends.

use std::time::{Duration, Instant};

use cloud_config::{CredentialSource, Inline};
use lab::vcenter::Fault;
use vcenter::Health;

use crate::site::{Site, is_current, names, section, wait_for};

/// How often a method was called, by whomever.
async fn calls(site: &Site, method: &str) -> u64 {
    let calls = site.simulator.control().calls().await.unwrap();
    let all = calls["calls"].as_array().unwrap().iter();
    all.filter(|call| call["method"] == method).filter_map(|call| call["count"].as_u64()).sum()
}

/// How often the watch was started: each time it makes its own collector first.
pub(crate) async fn starts(site: &Site) -> u64 {
    calls(site, "CreatePropertyCollector").await
}

/// Waits until a method was called this often, and then not for longer than pauses after lost connections are.
async fn until_seldom(site: &Site, method: &str, times: u64) {
    let (mut last, mut since) = (0, Instant::now());
    wait_for(&format!("there was no {method} for six seconds"), async || {
        let now = calls(site, method).await;
        if last != now {
            (last, since) = (now, Instant::now());
        }
        last >= times && since.elapsed() > Duration::from_secs(6)
    })
    .await;
}

#[tokio::test]
async fn a_user_without_a_role_is_not_logged_in_every_few_seconds() {
    let with_nobody = |simulator: &lab::VCenter| {
        let mut section = section(simulator, &["dc-1"]);
        let inline =
            Inline { user: "nobody@vsphere.local".to_owned(), password: "Lab-nobody-1!".into() };
        section.credentials = CredentialSource::Inline(inline);
        section
    };
    let site = Site::with(with_nobody, &["k8s-zone"]).await;
    // vCenter answers the login itself with NoPermission.
    until_seldom(&site, "Login", 1).await;
    assert_eq!(calls(&site, "Login").await, 1);
    assert!(!is_current(&site.view.snapshot()));
    site.stop().await;
}

#[tokio::test]
async fn a_watch_that_is_refused_starts_ever_more_seldom_and_is_back_when_it_is_allowed() {
    let mut site = Site::start(&["dc-1"]).await;
    site.current().await;
    let refused = Fault::next("CreateContainerView", "NoPermission");
    site.simulator.control().fail(&Fault { count: 1_000_000, ..refused }).await.unwrap();
    site.simulator.control().expire_sessions().await.unwrap();
    let times = starts(&site).await + 3;
    until_seldom(&site, "CreatePropertyCollector", times).await;
    let health = site.view.snapshot().health();
    assert!(matches!(health, Health::Unavailable(_)), "{health:?}");
    site.simulator.control().disarm().await.unwrap();
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
    let is_partial = |health: Health| matches!(health, Health::Partial(_));
    site.until("one datacenter is refused", |snapshot| is_partial(snapshot.health())).await;
    let (started, views) = (starts(&site).await, calls(&site, "CreateContainerView").await);
    let again = async || calls(&site, "CreateContainerView").await > views;
    wait_for("the datacenter is tried again", again).await;
    let snapshot = site.current().await;
    assert_eq!(names(&snapshot), ["node-1", "node-2", "old-vm"]);
    assert_eq!(starts(&site).await, started, "the watch of the others went on");
    site.stop().await;
}
