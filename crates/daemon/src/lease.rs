//! Leader election on a Lease, by the rules of client-go, so that our and upstream's programs can share one.
//!
//! ```text
//!   Elector::run  ─ get, decide, replace at the version that was read ─►  Lease
//!        └─ Leadership: whether this process leads, for tasks that work only while it does
//! ```
//!
//! Losing the lease is an error and ends the program ([`Supervisor::foundation`]). A graceful end
//! releases the lease, so that the next leader need not wait for it to expire. Why two processes never lead at
//! once is in `candidate.rs`.
//!
//! [`Supervisor::foundation`]: crate::supervise::Supervisor::foundation

use std::{
    fs,
    hash::BuildHasher,
    io,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use tracing::{debug, info, warn};

use self::candidate::{Act, Candidate, Record};
pub use self::candidate::{InvalidTiming, Timing};
use crate::{
    admin::Check,
    events::{Kind, Recorder},
    permissions::{Permission, Scope},
    supervise::{Chain, Shutdown},
};

mod candidate;

/// How long releasing the lease may take; after that it expires by itself.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// Whether this process leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It stands by; with the leader's identity, if one was seen.
    StandingBy(Option<String>),
    /// It leads until then, and longer if it renews in time. The wall clock goes on while the machine is suspended.
    Leading(Instant, SystemTime),
}

impl Standing {
    fn leading(until: Instant) -> Self {
        Self::Leading(until, SystemTime::now() + until.saturating_duration_since(Instant::now()))
    }
}

/// A view of whether this process leads.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Standing>);

impl Leadership {
    /// Leadership without a lease, for `--leader-elect=false`.
    pub fn undisputed() -> Self {
        // Longer than any process lives, and short enough for the clock.
        let until = Instant::now() + Duration::from_secs(30 * 365 * 24 * 3600);
        Self(watch::channel(Standing::leading(until)).1)
    }

    /// Returns when this process leads.
    pub async fn acquired(&self) {
        let leads = |standing: &Standing| matches!(standing, Standing::Leading(..));
        if self.0.clone().wait_for(leads).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether it leads at this moment; two clock reads, so cheap enough to call before every write.
    ///
    /// False also when the process was stopped or the machine suspended past the last renewal. True means that
    /// no other process can lead before the renew deadline ends and the rest of the lease duration has passed:
    /// a request that is sent at once has that long to arrive.
    #[must_use]
    pub fn holds(&self) -> bool {
        match *self.0.borrow() {
            Standing::StandingBy(_) => false,
            Standing::Leading(until, wall) => Instant::now() < until && SystemTime::now() < wall,
        }
    }

    /// The current standing.
    pub fn standing(&self) -> Standing {
        self.0.borrow().clone()
    }

    /// Returns when the standing has changed; a renewal is a change.
    async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// How long after its leadership ended a process that did not end counts as hung; upstream's number.
const UNNOTICED: Duration = Duration::from_secs(20);

/// Reports the check `leaderElection`: it fails when a leader neither renews nor ends.
pub async fn report(
    mut leadership: Leadership,
    check: Check,
    shutdown: Shutdown,
) -> Result<(), std::convert::Infallible> {
    loop {
        let (detail, dead) = match leadership.standing() {
            Standing::Leading(until, _) => ("leading".to_owned(), Some(until + UNNOTICED)),
            Standing::StandingBy(None) => ("standing for election".to_owned(), None),
            Standing::StandingBy(Some(leader)) => (format!("standing by, {leader} leads"), None),
        };
        check.pass(detail);
        let changed = async {
            if let Some(dead) = dead {
                if timeout_at(dead, leadership.changed()).await.is_ok() {
                    return;
                }
                check.fail("the lease was neither renewed nor released");
            }
            leadership.changed().await;
        };
        if shutdown.unless(changed).await.is_none() {
            return Ok(());
        }
    }
}

/// Why leadership was lost.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The lease was not renewed in time.
    #[error("leadership lost: the lease {lease} was not renewed within {} s: {problem}", within.as_secs_f64())]
    Expired {
        /// Namespace and name.
        lease: String,
        /// The renew deadline.
        within: Duration,
        /// The error of the last try.
        problem: String,
    },
    /// Another process holds the lease.
    #[error("leadership lost: the lease {lease} is held by {holder}")]
    Taken {
        /// Namespace and name.
        lease: String,
        /// The identity in the lease.
        holder: String,
    },
}

/// A unique identity: `<hostname>_<uuid>`, as upstream's.
pub fn identity() -> io::Result<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    Ok(format!("{}_{}", read("hostname")?.trim(), read("random/uuid")?.trim()))
}

/// What an [`Elector`] of this lease calls, without its event.
pub fn permissions(namespace: &str, name: &str) -> Vec<Permission> {
    let here = || Scope::Namespace(namespace.to_owned());
    let leases = ("coordination.k8s.io", "leases");
    vec![
        Permission::new(here(), leases, &["get", "update"]).named(name),
        Permission::new(here(), leases, &["create"]),
    ]
}

/// A candidate for a lease.
#[derive(Debug)]
pub struct Elector {
    leases: Api<Lease>,
    namespace: String,
    name: String,
    candidate: Candidate,
    /// The lease as we wrote it last: the base of the next renewal.
    written: Option<Lease>,
    standing: watch::Sender<Standing>,
    events: Option<Recorder>,
    leading: Gauge,
}

/// What came of one try.
enum Try {
    Leading,
    Following(Duration),
    /// Another process wrote at the same time.
    Contended,
}

impl Elector {
    /// A candidate with the identity `me`; nothing is sent before [`Elector::run`].
    pub fn new(client: Client, namespace: &str, name: &str, me: String, timing: Timing) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            candidate: Candidate::new(me, timing),
            written: None,
            standing: watch::Sender::new(Standing::StandingBy(None)),
            events: None,
            leading: Gauge::default(),
        }
    }

    /// Also records an event on the lease when it is acquired.
    #[must_use]
    pub fn with_events(mut self, events: Recorder) -> Self {
        self.events = Some(events);
        self
    }

    /// Registers the metric of client-go.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Whether this process leads: 1 if it does, 0 if it stands by";
        let name = ("name".into(), self.name.clone().into());
        let registry = registry.sub_registry_with_label(name);
        registry.register("leader_election_master_status", help, self.leading.clone());
    }

    /// A view for tasks that work only while this process leads.
    pub fn leadership(&self) -> Leadership {
        Leadership(self.standing.subscribe())
    }

    /// Stands for election, then leads, until `shutdown`; then releases the lease. When leadership is lost, what
    /// ran under it must end.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), Lost> {
        let lost = shutdown.unless(self.lead()).await;
        self.stand_by();
        if let Some(lost) = lost {
            return Err(lost);
        }
        match timeout(RELEASE_WITHIN, self.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(error = %Chain(&error), lease = self.lease(), "lease not released");
            }
            Err(_) => warn!(lease = self.lease(), "lease not released in time"),
        }
        Ok(())
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn stand_by(&self) {
        self.leading.set(0);
        let leader = self.candidate.holder().filter(|holder| *holder != self.candidate.me);
        let next = Standing::StandingBy(leader.map(str::to_owned));
        self.standing.send_if_modified(|standing| {
            let changed = *standing != next;
            if changed {
                info!(lease = self.lease(), leader, "standing by");
                *standing = next;
            }
            changed
        });
    }

    async fn lead(&mut self) -> Lost {
        self.acquire().await;
        self.keep().await
    }

    async fn acquire(&mut self) {
        info!(lease = self.lease(), identity = self.candidate.me, "standing for election");
        loop {
            let retry = self.candidate.timing.retry;
            let left = match self.bounded_try().await {
                Ok(Try::Leading) => break,
                Ok(Try::Following(left)) => left,
                Ok(Try::Contended) => retry,
                Err(problem) => {
                    warn!(problem, lease = self.lease(), "lease not acquired; retrying");
                    retry
                }
            };
            self.stand_by();
            // The lease may be released before it expires.
            tokio::time::sleep(jittered(retry).min(left.max(retry))).await;
        }
        info!(lease = self.lease(), identity = self.candidate.me, "became leader");
        if let Some(events) = &self.events {
            let note = format!("{} became leader", self.candidate.me);
            events.record(&self.reference(), Kind::Normal, "LeaderElection", &note);
        }
    }

    /// Renews until that fails for too long.
    async fn keep(&mut self) -> Lost {
        let mut problem = "no try was made: the process was suspended".to_owned();
        loop {
            let retry = self.candidate.timing.retry;
            let Some(until) = self.candidate.leads_until() else {
                let holder = self.candidate.holder().unwrap_or("nobody").to_owned();
                return Lost::Taken { lease: self.lease(), holder };
            };
            tokio::time::sleep_until(until.min(Instant::now() + retry)).await;
            if until <= Instant::now() {
                let within = self.candidate.timing.renew;
                return Lost::Expired { lease: self.lease(), within, problem };
            }
            match timeout_at(until, self.bounded_try()).await {
                Ok(Ok(Try::Leading)) => debug!(lease = self.lease(), "lease renewed"),
                Ok(Ok(Try::Following(_))) => {}
                Ok(Ok(Try::Contended)) => {
                    "another process wrote at the same time".clone_into(&mut problem);
                }
                Ok(Err(error)) => {
                    warn!(problem = error, lease = self.lease(), "lease not renewed; retrying");
                    problem = error;
                }
                Err(_) => "the API did not answer".clone_into(&mut problem),
            }
        }
    }

    /// One try that ends in time for another one before the deadline.
    async fn bounded_try(&mut self) -> Result<Try, String> {
        let bound = self.candidate.timing.renew / 2;
        match timeout(bound, self.attempt()).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(error)) => Err(Chain(&error).to_string()),
            Err(_) => Err(format!("the API did not answer within {} s", bound.as_secs_f64())),
        }
    }

    async fn attempt(&mut self) -> Result<Try, kube::Error> {
        // The result of our last write is current unless another process wrote; then it must be read first.
        if let Some(base) = self.written.take()
            && self.candidate.leads_until().is_some()
            && let Try::Leading = self.write(Some(base)).await?
        {
            return Ok(Try::Leading);
        }
        let base = self.leases.get_opt(&self.name).await?;
        if let Some(lease) = &base {
            self.candidate.observe(record(lease), Instant::now());
            if let Act::Wait(left) = self.candidate.decide(Instant::now()) {
                return Ok(Try::Following(left));
            }
        }
        self.write(base).await
    }

    /// Writes our identity, if the lease is still as in `base`.
    async fn write(&mut self, base: Option<Lease>) -> Result<Try, kube::Error> {
        let next = self.renewed(base);
        let sent = Instant::now();
        let answer = match next.metadata.resource_version {
            None => self.leases.create(&PostParams::default(), &next).await,
            Some(_) => self.leases.replace(&self.name, &PostParams::default(), &next).await,
        };
        let written = match answer {
            // 404: it was removed after we read it.
            Err(kube::Error::Api(status))
                if [404, 409].contains(&status.code) && !no_namespace(&status) =>
            {
                return Ok(Try::Contended);
            }
            answer => answer?,
        };
        self.candidate.wrote(record(&written), sent, Instant::now());
        self.written = Some(written);
        if let Some(until) = self.candidate.leads_until() {
            self.leading.set(1);
            self.standing.send_replace(Standing::leading(until));
        }
        Ok(Try::Leading)
    }

    /// The lease with our identity; other fields stay as they are.
    fn renewed(&self, base: Option<Lease>) -> Lease {
        let now = Some(MicroTime(Timestamp::now()));
        let mut lease = base.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        let existed = lease.metadata.resource_version.is_some();
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_deref() != Some(&*self.candidate.me) {
            spec.acquire_time.clone_from(&now);
            let before = spec.lease_transitions.unwrap_or(0);
            spec.lease_transitions = Some(if existed { before + 1 } else { 0 });
            spec.holder_identity = Some(self.candidate.me.clone());
        }
        spec.renew_time = now;
        spec.lease_duration_seconds = Some(self.candidate.timing.recorded_seconds());
        lease
    }

    /// Releases the lease if it is ours, also when the answer to our write was lost.
    async fn release(&mut self) -> Result<(), kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else { return Ok(()) };
        if record(&lease).holder != self.candidate.me {
            return Ok(());
        }
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        let now = Some(MicroTime(Timestamp::now()));
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.acquire_time.clone_from(&now);
        spec.renew_time = now;
        self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        info!(lease = self.lease(), "lease released");
        Ok(())
    }

    fn reference(&self) -> ObjectReference {
        let metadata = self.written.as_ref().map(|lease| &lease.metadata);
        ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: metadata.and_then(|metadata| metadata.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

/// A namespace that does not exist is a mistake to report, not a lost race.
fn no_namespace(status: &kube::core::Status) -> bool {
    status.code == 404 && status.message.contains("namespaces ")
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    Record {
        holder: spec.holder_identity.unwrap_or_default(),
        lease_seconds: spec.lease_duration_seconds,
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// Between once and 2.2 times as long, so that candidates do not run in step.
fn jittered(retry: Duration) -> Duration {
    let random = std::hash::RandomState::new().hash_one(0);
    let fraction = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    retry.mul_f64(1.0 + candidate::JITTER * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admin::{Checks, Weight},
        supervise::shutdown,
    };

    /// The text of `/healthz?verbose` in this standing.
    async fn reported(standing: Standing) -> String {
        let (sender, receiver) = watch::channel(standing);
        let checks = Checks::default();
        let check = checks.register("leaderElection", Weight::Life);
        let (_stop, shutdown) = shutdown();
        let text = async {
            loop {
                let (_, text) = checks.answer("healthz", None, true, true).unwrap_or_default();
                if !text.contains("not started") {
                    return text;
                }
                tokio::task::yield_now().await;
            }
        };
        let text = tokio::select! {
            biased;
            _ = report(Leadership(receiver), check, shutdown) => "it ended".to_owned(),
            text = text => text,
        };
        drop(sender);
        text
    }

    #[tokio::test]
    async fn the_check_says_who_leads_and_fails_when_nobody_notices_the_end() {
        let cases = [
            (Standing::StandingBy(None), "[+]leaderElection ok: standing for election"),
            (
                Standing::StandingBy(Some("other".to_owned())),
                "[+]leaderElection ok: standing by, other leads",
            ),
            (Standing::leading(Instant::now()), "[+]leaderElection ok: leading"),
        ];
        for (standing, expected) in cases {
            let text = reported(standing).await;
            assert!(text.contains(expected), "{text}");
        }
        if let Some(long_ago) = Instant::now().checked_sub(UNNOTICED * 2) {
            let text = reported(Standing::leading(long_ago)).await;
            assert!(text.contains("[-]leaderElection failed: the lease was neither"), "{text}");
        }
    }

    #[test]
    fn leadership_ends_by_either_clock() {
        let (soon, minute) = (Instant::now() + UNNOTICED, Duration::from_secs(60));
        let holds = |standing| Leadership(watch::channel(standing).1).holds();
        assert!(holds(Standing::leading(soon)));
        assert!(!holds(Standing::leading(Instant::now())));
        assert!(!holds(Standing::StandingBy(None)));
        let suspended = SystemTime::now() - minute;
        assert!(!holds(Standing::Leading(soon, suspended)));
    }

    #[tokio::test]
    async fn a_process_without_rivals_leads_from_the_start() {
        let leadership = Leadership::undisputed();
        leadership.acquired().await;
        assert!(leadership.holds());
    }

    #[test]
    fn candidates_do_not_come_in_step() {
        let retry = Duration::from_secs(2);
        let waits: Vec<Duration> = (0..100).map(|_| jittered(retry)).collect();
        assert!(waits.iter().all(|wait| *wait >= retry && *wait <= retry.mul_f64(2.2)));
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }
}
