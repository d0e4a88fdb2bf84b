//! Credentials that change, are wrong, or come late.

use std::{fs, path::Path};

use cloud_config::CredentialSource;
use lab::log::Log;
use tempfile::TempDir;
use vcenter::Health;

use crate::site::{Site, USER, is_current, section, wait_for};

/// Writes user and password as a mounted Secret has them.
fn write(directory: &Path, password: &str) {
    fs::write(directory.join("vcenter.username"), USER.0).unwrap();
    fs::write(directory.join("vcenter.password"), password).unwrap();
}

async fn start(directory: &TempDir) -> Site {
    let path = directory.path().to_owned();
    let with_directory = |simulator: &lab::VCenter| {
        let mut section = section(simulator, &["dc-1"]);
        section.credentials = CredentialSource::Directory(path.clone());
        section
    };
    Site::with(with_directory, &["k8s-zone"]).await
}

async fn failed(site: &Site) -> usize {
    site.simulator.control().failed_logins().await.unwrap().len()
}

#[tokio::test]
async fn a_mistyped_rotation_keeps_the_session_and_costs_one_login() {
    let directory = TempDir::new().unwrap();
    write(directory.path(), USER.1);
    let mut site = start(&directory).await;
    site.current().await;
    write(directory.path(), "mistyped");
    wait_for("it was tried", async || failed(&site).await > 0).await;
    assert!(is_current(&site.view.snapshot()));
    // The next rotation is taken, and nothing was tried in between.
    site.simulator.control().set_password(USER.0, "Lab-cpi-2!").await.unwrap();
    write(directory.path(), "Lab-cpi-2!");
    site.simulator.control().expire_sessions().await.unwrap();
    let sessions = async || site.simulator.control().objects("cpi").await.unwrap().len();
    wait_for("it is logged in again", async || sessions().await == 1).await;
    site.current().await;
    assert!(failed(&site).await <= 2, "{:?}", site.simulator.control().failed_logins().await);
    site.stop().await;
}

#[tokio::test]
async fn credentials_that_come_late_are_taken_and_wrong_ones_are_explained() {
    let directory = TempDir::new().unwrap();
    let mut site = start(&directory).await;
    let why = |health: Health| match health {
        Health::Unavailable(outage) => outage.why,
        other => panic!("{other:?}"),
    };
    let path = directory.path().display().to_string();
    site.until("there are none", |snapshot| why(snapshot.health()).contains(&path)).await;
    write(directory.path(), "wrong");
    let snapshot =
        site.until("they are refused", |snapshot| why(snapshot.health()).contains(USER.0)).await;
    let text = why(snapshot.health());
    assert!(text.contains(&format!("in the directory {path}")), "{text}");
    write(directory.path(), USER.1);
    site.current().await;
    assert_eq!(failed(&site).await, 1);
    site.stop().await;
}

#[tokio::test]
async fn a_normal_start_logs_no_warning() {
    let (log, directory) = (Log::default(), TempDir::new().unwrap());
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    write(directory.path(), USER.1);
    let mut site = start(&directory).await;
    site.current().await;
    site.stop().await;
    drop(guard);
    assert_eq!(log.text(), "");
}
