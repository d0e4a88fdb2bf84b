//! The manager that runs in a test, and its configuration.

use std::time::Duration;

use ccm::{Context, Settings, args::Flags};
use clap::Parser;
use cloud_config::{Config, CredentialSource, Inline, IpFamily, SecretName};
use daemon::supervise::{Shutdown, Stop, shutdown};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tokio::task::JoinSet;
use vsphere::tls::Trust;

/// Longer than anything takes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// A manager that runs.
pub(crate) struct Running {
    stop: Stop,
    tasks: JoinSet<()>,
}

impl Running {
    pub(crate) fn start(context: Context, config: Config, settings: Settings) -> Self {
        let (stop, asked): (Stop, Shutdown) = shutdown();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { ccm::run(context, &config, settings, asked).await.unwrap() });
        Self { stop, tasks }
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(mut self) {
        drop(self.stop);
        tokio::time::timeout(BOUND, self.tasks.join_next()).await.unwrap().unwrap().unwrap();
    }
}

/// Settings by flags, as on the command line.
pub(crate) fn settings(flags: &[&str]) -> Settings {
    let line = ["ccm", "--cloud-config=unused"].iter().chain(flags);
    Settings::new(&Flags::try_parse_from(line).unwrap(), false)
}

/// Settings that delete as soon as a deletion is allowed at all: what these leave alone, all others do.
pub(crate) fn eager() -> Settings {
    let flags = ["--node-deletion-grace=0s", "--node-deletion-limit=100", "--place-labels"];
    let mut settings = settings(&flags);
    settings.lifecycle.checks = 1;
    settings
}

/// The Secret that [`put_login`] writes.
pub(crate) fn secret() -> CredentialSource {
    CredentialSource::Secret(SecretName {
        namespace: "kube-system".to_owned(),
        name: "vsphere".to_owned(),
    })
}

/// Writes the Secret with the login for the vCenter `vcenter`, or changes it.
pub(crate) async fn put_login(client: &Client, user: &str, password: &str) -> kube::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let entries = [("vcenter.username", bytes(user)), ("vcenter.password", bytes(password))];
    let secret = Secret {
        metadata: ObjectMeta { name: Some("vsphere".to_owned()), ..ObjectMeta::default() },
        data: Some(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ..Secret::default()
    };
    let params = PatchParams::apply("a test").force();
    secrets.patch("vsphere", &params, &Patch::Apply(&secret)).await.map(drop)
}

/// A vCenter of the configuration.
pub(crate) fn section(name: &str, url: &str, trust: Trust) -> cloud_config::VCenter {
    let inline = Inline { user: "cpi@vsphere.local".to_owned(), password: "Lab-cpi-1!".into() };
    cloud_config::VCenter {
        name: name.to_owned(),
        server: name.to_owned(),
        endpoint: url.parse().unwrap(),
        trust,
        datacenters: Vec::new(),
        credentials: CredentialSource::Inline(inline),
        fallback: None,
        ip_families: vec![IpFamily::V4],
    }
}
