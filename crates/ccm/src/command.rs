//! The program `vsphere-cloud-controller-manager`, from its command line to its end.
//!
//! ```text
//!   flags ─► configuration file ─► client ─► lease, admin server ─► leading? ─► run, under one configuration
//!                  └── changes: a valid one is run instead, an invalid one is refused and reported
//! ```
//!
//! A configuration that changes ends the run under the old one, sessions included, and starts the next one in the
//! same process: the lease is kept, and so is what lifecycle remembers.

mod config;
mod reloads;

use std::{
    error::Error,
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use cloud_config::Config;
use daemon::{
    admin::{Access, Admin, Check, Checks, Contents, Weight},
    args,
    events::{Recorder, recorder},
    lease::{self, Elector, Leadership},
    reload::{self, Followed},
    supervise::{self, Chain, Ended, Shutdown, Supervisor},
    telemetry,
};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};
use vcenter::Sessions;
use vsphere::proxy::Proxy;

use self::{
    config::{Environment, InvalidConfig, parser},
    reloads::ReloadReporter,
};
use crate::{
    Context, Mode, Settings,
    args::{Flags, IGNORED, PROGRAM, REMOVED},
    metrics::Metrics,
    run,
};

/// How long sessions and the lease may take to end; kubelets wait half a minute.
const GRACE: Duration = Duration::from_secs(20);

type Failure = Box<dyn Error + Send + Sync>;

/// Runs the program until a signal. The first argument is the program's name.
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> ExitCode {
    let line = match args::read::<Flags>(arguments, REMOVED, IGNORED) {
        Ok(line) => line,
        Err(answer) if answer.wanted => {
            return match io::stdout().write_all(answer.text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        Err(answer) => return failed(&answer.text),
    };
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::from)
        .and_then(|runtime| {
            runtime.block_on(Box::pin(work(line, Environment(environment.into_iter().collect()))))
        });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("error: {}\n", Chain(&*error))),
    }
}

fn failed(text: &str) -> ExitCode {
    // Without stderr there is still the exit code.
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    ExitCode::FAILURE
}

async fn work(line: args::Line<Flags>, environment: Environment) -> Result<(), Failure> {
    let args::Line { flags, unused } = line;
    let verbosity = telemetry::install(flags.logs.log_format, flags.logs.verbosity)?;
    info!(version = env!("CARGO_PKG_VERSION"), "cloud controller manager starting");
    debug!(?flags, "flags read");
    if !unused.is_empty() {
        warn!(flags = unused.join(" "), "flags without effect in this program");
    }
    let cloud = &flags.cloud;
    let ignore = cloud.ignore_load_balancer_config || !cloud.controllers.unserved;
    let parse = parser(cloud.strict_config, ignore, environment.0.clone());
    let (files, config) = reload::files(vec![flags.cloud.cloud_config.clone()], parse);
    config.usable()?;
    let client = flags.kubernetes.client(PROGRAM).await?;

    let mut registry = Registry::default();
    let metrics = Metrics::registered(&mut registry);
    let checks = Checks::default();
    let mut tasks = Supervisor::new()?;
    let host = host_name()?;
    let (events, writer) = recorder(client.clone(), "cloud-controller-manager", &host);
    tasks.foundation.spawn("events", |shutdown| writer.run(shutdown));
    let reloads = ReloadReporter::new(events.clone(), &environment, &flags.leader, metrics.clone());
    let leadership = elect(&flags, &client, events, &checks, &mut registry, &mut tasks)?;
    let access = Access::new(&client, &flags.authentication, &flags.authorization).await?;
    let contents = Contents { checks: checks.clone(), metrics: registry, verbosity, access };
    if let Some(server) = Admin::bind(&flags.serving, contents).await? {
        tasks.foundation.spawn("admin", |shutdown| server.run(shutdown));
    }
    let (refused, reporter) = (config.clone(), reloads.clone());
    tasks.work.spawn("configuration", |shutdown| files.follow(shutdown));
    tasks.work.spawn("configuration-check", |shutdown| reporter.refusals(refused, shutdown));
    let mode = if flags.cloud.dry_run { print(&mut tasks) } else { Mode::Write };
    let sessions =
        Sessions::through(Proxy::from_variables(|name| environment.0.get(name).cloned()));
    let context = Context {
        mode,
        leadership,
        host,
        metrics,
        checks,
        sessions: sessions.clone(),
        ..Context::new(client)
    };
    let settings = Settings::new(&flags, environment.skip_deletion());
    tasks.work.spawn("nodes", |shutdown| lead(context, config, settings, reloads, shutdown));
    let ended = tasks.run(GRACE).await;
    // A second signal asks not to wait.
    if !matches!(ended, Err(Ended::Impatient)) {
        sessions.close().await;
    }
    Ok(ended?)
}

/// Takes part in the election of a leader, unless the flags say that there is none.
fn elect(
    flags: &Flags,
    client: &Client,
    events: Recorder,
    checks: &Checks,
    registry: &mut Registry,
    tasks: &mut Supervisor,
) -> Result<Leadership, Failure> {
    let leader = &flags.leader;
    if !leader.leader_elect || flags.cloud.dry_run {
        return Ok(Leadership::undisputed());
    }
    let namespace = &leader.leader_elect_resource_namespace;
    let name = &leader.leader_elect_resource_name;
    let (me, timing) = (lease::identity()?, leader.timing()?);
    let elector = Elector::new(client.clone(), namespace, name, me, timing).with_events(events);
    elector.register(registry);
    let leadership = elector.leadership();
    let (reported, check) = (leadership.clone(), checks.register("leaderElection", Weight::Life));
    tasks.foundation.spawn("lease", |shutdown| elector.run(shutdown));
    tasks.work.spawn("lease-check", |shutdown| lease::report(reported, check, shutdown));
    Ok(leadership)
}

/// Prints plans to stdout, a line each.
fn print(tasks: &mut Supervisor) -> Mode {
    let (sender, mut lines) = mpsc::unbounded_channel::<String>();
    tasks.work.spawn("dry-run", |shutdown| async move {
        while let Some(Some(line)) = shutdown.unless(lines.recv()).await {
            writeln!(io::stdout(), "{line}")?;
        }
        shutdown.requested().await;
        Ok::<_, io::Error>(())
    });
    Mode::Print(sender)
}

/// Waits for leadership, then runs under one configuration after the other.
async fn lead(
    context: Context,
    mut config: Followed<Config, InvalidConfig>,
    settings: Settings,
    reloads: ReloadReporter,
    shutdown: Shutdown,
) -> Result<(), Failure> {
    if shutdown.unless(context.leadership.acquired()).await.is_none() {
        return Ok(());
    }
    let alive = settings.controllers.names().into_iter().map(|name| {
        context.metrics.runs(name);
        let check = context.checks.register(name, Weight::Life);
        check.pass("");
        check
    });
    let _alive: Vec<Check> = alive.collect();
    while !shutdown.is_requested() {
        let now = config.usable()?;
        vcenter::describe(&now.vcenters);
        let (stop, asked) = supervise::shutdown();
        let mut running = Box::pin(run(context.clone(), &now, settings.clone(), asked));
        let authorities = vcenter::authorities(&now.vcenters);
        let is_in_use = |next: &Config| *next == *now;
        tokio::select! {
            ended = &mut running => return Ok(ended?),
            () = shutdown.requested() => {}
            why = reload::replaced(&mut config, is_in_use, authorities) => {
                info!(why, "configuration reloaded");
                reloads.accepted(why);
            }
        }
        drop(stop);
        running.await?;
    }
    Ok(())
}

fn host_name() -> Result<String, Failure> {
    let path = "/proc/sys/kernel/hostname";
    let read =
        std::fs::read_to_string(path).map_err(|error| format!("{path} cannot be used: {error}"))?;
    Ok(read.trim().to_owned())
}
