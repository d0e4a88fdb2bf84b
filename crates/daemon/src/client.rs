//! The client of the Kubernetes API: where it connects, how soon it notices a dead connection, and how many
//! requests it sends.
//!
//! A connection whose peer vanished silently looks like one without events. Two timeouts distinguish them
//! within a minute: the API server ends every watch after 40 s, so a connection that stays silent for 50 s is
//! dead. Every watch therefore starts from [`watch`].

use std::{
    path::PathBuf,
    task::{Context, Poll},
    time::Duration,
};

use backon::ExponentialBuilder;
use futures::future::BoxFuture;
use hyper::http::{Request, Uri};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::watcher,
};
use tokio::time::{Instant, sleep_until};
use tower::{Service, layer::layer_fn};

use crate::supervise::Chain;

const WATCH_SECONDS: u32 = 40;
const READ_TIMEOUT: Duration = Duration::from_secs(50);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The base of every watch: it ends, and is resumed, often enough that a dead connection is noticed within a
/// minute.
pub fn watch() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS)
}

/// The pauses of a watch that fails again and again: short, because they are how late the end of an outage is
/// noticed.
pub fn backoff() -> watcher::ExponentialBackoff {
    let pauses = ExponentialBuilder::new().with_min_delay(Duration::from_millis(500));
    pauses.with_max_delay(Duration::from_secs(3)).with_jitter().without_max_times().into()
}

/// The API cannot be reached with these settings.
#[derive(Debug, thiserror::Error)]
pub enum InvalidKubernetes {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {} cannot be used: {problem}", path.display())]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The value of `--master` has no scheme or no host.
    #[error("--master={0} is not a valid address such as https://10.0.0.1:6443")]
    Master(String),
    /// There is no service account.
    #[error(
        "neither --kubeconfig nor --master is given, and this is not a pod with a service account: {0}"
    )]
    NoPod(String),
    /// The client cannot be built, for example because a certificate cannot be read.
    #[error("cannot build a client of the API: {0}")]
    Client(String),
}

/// A client whose requests start by a schedule, if there is one.
pub(crate) fn connect(
    mut config: Config,
    schedule: Option<Schedule>,
) -> Result<Client, InvalidKubernetes> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| InvalidKubernetes::Client(Chain(&error).to_string()))?;
    let limited = layer_fn(move |inner| Limited { inner, schedule: schedule.clone() });
    Ok(builder.with_layer(&limited).build())
}

pub(crate) async fn read_kubeconfig(path: &PathBuf) -> Result<Config, InvalidKubernetes> {
    let read = async {
        let kubeconfig = Kubeconfig::read_from(path)?;
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
    };
    read.await.map_err(|error| {
        let problem = Chain(&error).to_string();
        InvalidKubernetes::Kubeconfig { path: path.clone(), problem }
    })
}

pub(crate) fn address(master: &str) -> Result<Uri, InvalidKubernetes> {
    let uri: Option<Uri> = master.parse().ok();
    uri.filter(|uri| uri.scheme().is_some() && uri.host().is_some())
        .ok_or_else(|| InvalidKubernetes::Master(master.to_owned()))
}

/// A service whose requests start by a schedule.
struct Limited<S> {
    inner: S,
    schedule: Option<Schedule>,
}

impl<S, B> Service<Request<B>> for Limited<S>
where
    S: Service<Request<B>>,
    S::Response: 'static,
    S::Error: 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // A leader that waits behind its own writes would lose the lease.
        let exempt = request.uri().path().starts_with("/apis/coordination.k8s.io/");
        let schedule = self.schedule.as_mut().filter(|_| !exempt);
        let start = schedule.map(|schedule| schedule.reserve(Instant::now()));
        // Nothing is sent before this is polled.
        let response = self.inner.call(request);
        Box::pin(async move {
            if let Some(start) = start {
                sleep_until(start).await;
            }
            response.await
        })
    }
}

/// When requests may start: a bucket of `burst` tokens that is refilled evenly.
#[derive(Clone)]
pub(crate) struct Schedule {
    interval: Duration,
    /// How far ahead of the even pace a burst may run.
    ahead: Duration,
    /// The start of the next request at an even pace.
    next: Instant,
}

impl Schedule {
    pub(crate) fn new(qps: f32, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / f64::from(qps));
        let interval = interval.unwrap_or(Duration::MAX).min(Duration::from_secs(3600));
        Self { interval, ahead: interval * burst.saturating_sub(1), next: Instant::now() }
    }

    /// Takes the next free place and returns when it is.
    fn reserve(&mut self, now: Instant) -> Instant {
        let even = self.next.max(now);
        self.next = even + self.interval;
        even.checked_sub(self.ahead).unwrap_or(now).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_starts_at_once_and_the_rest_at_an_even_pace() {
        let mut schedule = Schedule::new(10.0, 3);
        let now = schedule.next;
        let millis = Duration::from_millis;
        let starts: Vec<_> = (0..6).map(|_| schedule.reserve(now) - now).collect();
        assert_eq!(starts, [0, 0, 0, 100, 200, 300].map(millis));
        // After a pause a whole burst is free again, and no more than that.
        let later = now + Duration::from_secs(60);
        let starts: Vec<_> = (0..5).map(|_| schedule.reserve(later) - later).collect();
        assert_eq!(starts, [0, 0, 0, 100, 200].map(millis));
    }
}
