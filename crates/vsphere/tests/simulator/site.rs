//! A simulator and connections to it.

use std::{collections::BTreeMap, time::Duration};

use lab::{
    VCenter, VCenterSpec,
    vcenter::{ADMINISTRATOR, Description},
};
use serde_json::Value;
use vsphere::{
    collector::{Change, Collector},
    connection::{Connection, Settings},
    error::Error,
    property::Object,
    session::Credentials,
    tls::{Roots, Trust},
};

/// Longer than anything takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const CSI: (&str, &str) = ("csi@vsphere.local", "Lab-csi-1!");
pub(crate) const CPI: (&str, &str) = ("cpi@vsphere.local", "Lab-cpi-1!");
pub(crate) const NOBODY: (&str, &str) = ("nobody@vsphere.local", "Lab-nobody-1!");

/// A vCenter of the default world.
pub(crate) async fn vcenter() -> VCenter {
    VCenter::start(&VCenterSpec::default()).await.unwrap()
}

/// A vCenter of the default world, as another release.
pub(crate) async fn vcenter_of(release: &str) -> VCenter {
    let world = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
    described(&world.replace("\nrelease: 8.0U3\n", &format!("\nrelease: {release}\n"))).await
}

/// A vCenter with a world of the test's own.
pub(crate) async fn described(world: &str) -> VCenter {
    let description = Description::Text(world.to_owned());
    VCenter::start(&VCenterSpec { description, ..VCenterSpec::default() }).await.unwrap()
}

/// Fixes answers of vCenter that a test is about, so that it does not run under other assumptions about them.
pub(crate) async fn fix(vcenter: &VCenter, answers: &[(&str, Value)]) {
    for (assumption, value) in answers {
        vcenter.control().assume(assumption, value.clone()).await.unwrap();
    }
}

/// Settings for a user of the default world.
pub(crate) fn settings(vcenter: &VCenter, (user, password): (&str, &str)) -> Settings {
    let endpoint = vcenter.url().parse().unwrap();
    Settings {
        trust: Trust::Verify {
            roots: Roots::File(vcenter.authority().to_owned()),
            thumbprint: None,
        },
        ..Settings::new(endpoint, Credentials::password(user, password))
    }
}

/// A connection of a user of the default world.
pub(crate) fn connect(vcenter: &VCenter, user: (&str, &str)) -> Connection {
    Connection::new(&settings(vcenter, user)).unwrap()
}

/// A connection of the administrator.
pub(crate) fn administrator(vcenter: &VCenter) -> Connection {
    connect(vcenter, ADMINISTRATOR)
}

/// A collector of the VMs of the whole inventory.
pub(crate) async fn watched<T: Object>(
    connection: &Connection,
) -> Result<Collector<Change<T>>, Error> {
    let mut collector = connection.collector().await?;
    let root = connection.inventory().root().await?;
    let vms = collector.below(&root, &["VirtualMachine"]).await?;
    collector.filter(&[vms], None, |change| change).await?;
    Ok(collector)
}

/// The sessions of a user that vCenter has.
pub(crate) async fn sessions(vcenter: &VCenter, user: &str) -> usize {
    let state = vcenter.control().state_as_json().await.unwrap();
    let sessions = state["sessions"].as_array().unwrap();
    let name = user.split('@').next().unwrap().to_lowercase();
    sessions
        .iter()
        .filter(|session| {
            session["user"].as_str().unwrap_or_default().to_lowercase().starts_with(&name)
        })
        .count()
}

/// A vCenter with made up VMs besides the three of the default world.
pub(crate) async fn generated(vms: u32) -> VCenter {
    let spec = VCenterSpec { generated_vms: vms, ..VCenterSpec::default() };
    VCenter::start(&spec).await.unwrap()
}

/// Asks until the answer is yes; a minute is long enough for everything.
pub(crate) async fn wait_for(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, asking).await.is_ok(), "not within a minute: {what}");
}

/// How often SOAP methods were called, by name.
pub(crate) async fn calls(vcenter: &VCenter) -> BTreeMap<String, u64> {
    let state = vcenter.control().state_as_json().await.unwrap();
    let mut calls = BTreeMap::new();
    for call in state["calls"]["calls"].as_array().unwrap() {
        let name = call["method"].as_str().unwrap().to_owned();
        *calls.entry(name).or_default() += call["count"].as_u64().unwrap();
    }
    calls
}
