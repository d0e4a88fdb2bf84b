//! Credentials that vCenter refuses must not lock their account, whatever else happens meanwhile.
//!
//! Single sign-on locks an account after five failed logins within three minutes. The promise is three failed logins
//! of a user at one vCenter in any five minutes, counted where they arrive, and that a corrected credential is used all
//! the same: within a minute, of which a busy machine makes more.

use std::{fmt::Write as _, fs, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use lab::{ControlPlane, VCenter, VCenterSpec, Wait, until, vcenter::Description};
use serde_json::json;
use tokio::task::{JoinSet, LocalSet};

use crate::world::{BOUND, MANAGER, Program};

const USER: &str = "cpi@vsphere.local";
const GOOD: &str = "Lab-cpi-1!";
const NEXT: &str = "Lab-cpi-2!";
const MISTYPED: &str = "Lab-cpi-2";
/// What a user may fail at one vCenter, in which time.
const MOST: usize = 3;
const WINDOW: SignedDuration = SignedDuration::from_mins(5);
/// How many times something happens that may lead to a login, one a second.
const PROVOCATIONS: usize = 35;

/// One manager with a Secret, a configuration and vCenters of its own. All share an API server: without Nodes they do
/// not meet.
struct Case {
    name: &'static str,
    plane: Arc<ControlPlane>,
    vcenters: Vec<VCenter>,
    /// What is added to the configuration.
    more: String,
    reloads: bool,
    program: Option<Program>,
}

impl Case {
    async fn start(plane: &Arc<ControlPlane>, name: &'static str, vcenters: usize) -> Self {
        let mut started = Vec::new();
        for at in 0..vcenters {
            // A vCenter is known by the id of its instance, which follows its name.
            let usual = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
            let text = usual.replace("name: vcenter", &format!("name: vcenter-{at}"));
            let description = Description::Text(text);
            let spec = VCenterSpec { description, ..VCenterSpec::default() };
            started.push(VCenter::start(&spec).await.unwrap());
        }
        let plane = Arc::clone(plane);
        let more = String::new();
        Self { name, plane, vcenters: started, more, reloads: false, program: None }
    }

    fn path(&self, kind: &str) -> std::path::PathBuf {
        self.plane.world().dir().join(format!("{}-{kind}", self.name))
    }

    /// The names under which the vCenters are configured; the Secret's keys follow them.
    fn servers(&self) -> impl Iterator<Item = (&'static str, &VCenter)> {
        ["127.0.0.1", "localhost"].into_iter().zip(&self.vcenters)
    }

    fn configure(&self) {
        let authorities =
            self.vcenters.iter().map(|vcenter| fs::read(vcenter.authority()).unwrap());
        fs::write(self.path("ca.pem"), authorities.collect::<Vec<_>>().concat()).unwrap();
        let mut text = format!(
            "global:\n  caFile: {}\n  secretName: {}\n  secretNamespace: kube-system\nvcenter:\n",
            self.path("ca.pem").display(),
            self.name
        );
        for (server, vcenter) in self.servers() {
            let url = vcenter.url();
            let port = url.trim_end_matches("/sdk").rsplit_once(':').unwrap().1;
            writeln!(text, "  at-{server}:\n    server: {server}\n    port: {port}").unwrap();
        }
        text.push_str(&self.more);
        fs::write(self.path("fresh"), text).unwrap();
        fs::rename(self.path("fresh"), self.path("vsphere.conf")).unwrap();
    }

    async fn set_secret(&self, password: &str) {
        let secrets: Api<Secret> = Api::namespaced(self.plane.client(), "kube-system");
        let mut entries = serde_json::Map::new();
        for (server, _) in self.servers() {
            entries.insert(format!("{server}.username"), json!(USER));
            entries.insert(format!("{server}.password"), json!(password));
        }
        let object = json!({"metadata": {"name": self.name}, "stringData": entries});
        if secrets.get_opt(self.name).await.unwrap().is_none() {
            let secret = serde_json::from_value(object).unwrap();
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        } else {
            let patch = Patch::Merge(json!({"stringData": entries}));
            secrets.patch(self.name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    fn run(&mut self) {
        self.configure();
        let config = format!("--cloud-config={}", self.path("vsphere.conf").display());
        let kubeconfig = format!("--kubeconfig={}", self.plane.kubeconfig().display());
        let flags = [&config, &kubeconfig, "--secure-port=0", "--leader-elect=false"];
        self.program = Some(Program::start(MANAGER, &flags, &[]));
    }

    /// Waits until every vCenter has a session of the user.
    async fn is_logged_in(&self, what: &str) {
        for vcenter in &self.vcenters {
            let what = format!("{}: {what}", self.name);
            until(&what, 3 * BOUND, || async {
                let state = vcenter.control().state_as_json().await?;
                let sessions = state["sessions"].to_string().to_lowercase();
                let in_use = sessions.contains("cpi");
                Ok(if in_use { Wait::Done(()) } else { Wait::NotYet(self.failures().await) })
            })
            .await
            .unwrap();
        }
    }

    /// Waits until every vCenter refused a login.
    async fn is_refused(&self) {
        for vcenter in &self.vcenters {
            until(&format!("{}: a refused login", self.name), BOUND, || async {
                let failed = vcenter.control().failed_logins().await?.len();
                Ok(if failed > 0 { Wait::Done(()) } else { Wait::NotYet("no failed login".into()) })
            })
            .await
            .unwrap();
        }
    }

    async fn expire_sessions(&self) {
        for vcenter in &self.vcenters {
            vcenter.control().expire_sessions().await.unwrap();
        }
    }

    /// Everything that makes a manager log in again: sessions end, connections break, tags change, the Secret is
    /// written, the configuration changes.
    async fn provoke(&mut self) {
        let mut beat = tokio::time::interval(Duration::from_secs(1));
        for round in 0..PROVOCATIONS {
            beat.tick().await;
            self.expire_sessions().await;
            for vcenter in &self.vcenters {
                let control = vcenter.control();
                match round % 4 {
                    0 => control.restart(0).await.unwrap(),
                    1 => control.untag("k8s-zone", "zone-1", "cluster-1").await.unwrap(),
                    2 => control.tag("k8s-zone", "zone-1", "cluster-1").await.unwrap(),
                    _ => {}
                }
            }
            let secrets: Api<Secret> = Api::namespaced(self.plane.client(), "kube-system");
            let touch = json!({"metadata": {"annotations": {"touched": round.to_string()}}});
            secrets.patch(self.name, &PatchParams::default(), &Patch::Merge(touch)).await.unwrap();
            if self.reloads {
                let subnet =
                    format!("nodes: {{excludeInternalNetworkSubnetCidr: 192.0.2.{round}/32}}\n");
                self.more = subnet;
                self.configure();
            }
        }
    }

    async fn failures(&self) -> String {
        let mut text = String::new();
        for vcenter in &self.vcenters {
            let failed = vcenter.control().failed_logins().await.unwrap();
            writeln!(text, "{} failed logins: {failed:#?}", failed.len()).unwrap();
        }
        text
    }

    /// Fails when a user failed too often within the window.
    async fn judge(&self) {
        for vcenter in &self.vcenters {
            let failed = vcenter.control().failed_logins().await.unwrap();
            let times: Vec<Timestamp> = failed
                .iter()
                .filter(|login| login.user == USER)
                .map(|login| login.at.parse().unwrap())
                .collect();
            for (at, first) in times.iter().enumerate() {
                let within = times[at..].iter().filter(|time| time.duration_since(*first) < WINDOW);
                let count = within.count();
                assert!(count <= MOST, "{}: {count} in five minutes: {failed:#?}", self.name);
            }
        }
    }

    async fn ends_well(mut self, password: &str) {
        self.set_secret(password).await;
        self.is_logged_in("the corrected credential is used").await;
        self.judge().await;
        self.program.take().unwrap().stop();
    }
}

async fn wrong(mut case: Case) {
    case.set_secret(MISTYPED).await;
    case.run();
    case.is_refused().await;
    case.provoke().await;
    case.ends_well(GOOD).await;
}

/// vCenter has the new password, and the Secret has it with a mistake, while the old sessions go on at first.
async fn mistyped_rotation(mut case: Case) {
    case.set_secret(GOOD).await;
    case.run();
    case.is_logged_in("the first login").await;
    case.vcenters[0].control().set_password(USER, NEXT).await.unwrap();
    case.set_secret(MISTYPED).await;
    case.is_refused().await;
    case.provoke().await;
    case.ends_well(NEXT).await;
}

/// The Secret is changed too early and back again, several times.
async fn rotation_back(mut case: Case) {
    case.set_secret(GOOD).await;
    case.run();
    case.is_logged_in("the first login").await;
    for _ in 0..4 {
        case.set_secret(NEXT).await;
        // Refused by vCenter the first time, not even tried afterwards.
        case.is_refused().await;
        case.expire_sessions().await;
        case.set_secret(GOOD).await;
        case.is_logged_in("the old credential is used again").await;
    }
    case.provoke().await;
    case.ends_well(GOOD).await;
}

async fn expired(mut case: Case) {
    case.set_secret(GOOD).await;
    case.run();
    case.is_logged_in("the first login").await;
    case.vcenters[0].control().expire_password(USER, true).await.unwrap();
    case.expire_sessions().await;
    case.is_refused().await;
    case.provoke().await;
    case.vcenters[0].control().set_password(USER, NEXT).await.unwrap();
    case.ends_well(NEXT).await;
}

async fn locked(mut case: Case) {
    case.set_secret(GOOD).await;
    case.run();
    case.is_logged_in("the first login").await;
    case.vcenters[0].control().lock_user(USER, true).await.unwrap();
    case.expire_sessions().await;
    case.is_refused().await;
    case.provoke().await;
    case.vcenters[0].control().lock_user(USER, false).await.unwrap();
    case.vcenters[0].control().set_password(USER, NEXT).await.unwrap();
    case.ends_well(NEXT).await;
}

#[tokio::test]
async fn no_user_fails_more_than_three_logins_in_five_minutes_and_corrections_are_used() {
    let local = LocalSet::new();
    let broken = local.run_until(all_scenarios()).await;
    assert!(broken.is_empty(), "{} of 8 scenarios failed:\n{}", broken.len(), broken.join("\n\n"));
}

/// Runs them beside each other and returns what went wrong.
async fn all_scenarios() -> Vec<String> {
    let plane = Arc::new(ControlPlane::start().await.unwrap());
    let zones = "labels: {zone: k8s-zone, region: k8s-region}\n";
    let mut running = JoinSet::new();
    running.spawn_local(wrong(Case::start(&plane, "wrong", 1).await));
    running.spawn_local(mistyped_rotation(Case::start(&plane, "mistyped-rotation", 1).await));
    running.spawn_local(rotation_back(Case::start(&plane, "rotation-back", 1).await));
    running.spawn_local(expired(Case::start(&plane, "expired", 1).await));
    running.spawn_local(locked(Case::start(&plane, "locked", 1).await));
    running.spawn_local(wrong(Case::start(&plane, "two-vcenters", 2).await));
    let zoned = Case::start(&plane, "zones", 1).await;
    running.spawn_local(mistyped_rotation(Case { more: zones.to_owned(), ..zoned }));
    let reloaded = Case::start(&plane, "reload", 1).await;
    running.spawn_local(wrong(Case { reloads: true, ..reloaded }));
    let mut broken = Vec::new();
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            let text = error.into_panic();
            broken.push(text.downcast_ref::<String>().cloned().unwrap_or_default());
        }
    }
    broken
}
