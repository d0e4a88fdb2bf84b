//! A vCenter that keeps its connections open and does not answer on them.

use std::time::Duration;

use lab::vcenter::{HttpFault, HttpFaultKind};
use vcenter::Health;

use crate::site::{LIMIT, Site, is_current};

#[tokio::test]
async fn a_vcenter_that_stops_answering_on_open_connections_is_not_current_for_long() {
    let mut site = Site::start(&["dc-1"]).await;
    site.current().await;
    let (path, kind) = ("/".to_owned(), HttpFaultKind::Hang);
    let silence = HttpFault { path, method: None, kind, count: 0 };
    site.simulator.control().break_http(&silence).await.unwrap();
    // The poll that is open ends after 20 s, the next one after 50 s without an answer, the new start after 30 s.
    let unanswered = Duration::from_secs(20 + 50 + 30);
    let away = |snapshot: &vcenter::Snapshot| !is_current(snapshot);
    let snapshot = site.until_within(unanswered + LIMIT, "it is unavailable", away).await;
    let Health::Unavailable(outage) = snapshot.health() else { panic!("{:?}", snapshot.health()) };
    assert!(outage.why.contains("no answer within"), "{}", outage.why);
    site.simulator.control().disarm().await.unwrap();
    site.current().await;
    site.stop().await;
}

#[tokio::test]
async fn a_watch_whose_first_answer_does_not_come_is_reported_while_it_is_waited_for() {
    let mut site = Site::start(&["dc-1"]).await;
    site.current().await;
    let (path, kind) = ("/sdk".to_owned(), HttpFaultKind::Hang);
    let polls = HttpFault { path, method: Some("WaitForUpdatesEx".to_owned()), kind, count: 0 };
    site.simulator.control().break_http(&polls).await.unwrap();
    // The session ends the poll that is open. Everything is answered then but the poll of the new watch, which
    // may take minutes.
    site.simulator.control().expire_sessions().await.unwrap();
    let away = |snapshot: &vcenter::Snapshot| !is_current(snapshot);
    let bound = Duration::from_secs(60) + LIMIT;
    let snapshot = site.until_within(bound, "it is unavailable", away).await;
    let Health::Unavailable(outage) = snapshot.health() else { panic!("{:?}", snapshot.health()) };
    assert!(outage.why.contains("not answered within 60s"), "{}", outage.why);
    site.stop().await;
}
