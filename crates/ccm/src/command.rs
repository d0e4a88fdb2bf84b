//! The program `vsphere-cloud-controller-manager`, from its command line to its end.
//!
//! ```text
//!   flags ─► configuration file ─► client ─► lease, admin server ─► leading? ─► run, under one configuration
//!                  └── changes: a good one is run instead, a bad one is refused and told
//! ```
//!
//! A configuration that changes ends what ran under the old one, sessions included, and starts anew in the
//! same process: the lease stays, and no Node notices.

mod settings;
mod told;

use std::{
    error::Error,
    ffi::OsString,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use cloud_config::Config;
use daemon::{
    admin::{Access, Admin, Check, Checks, Contents, Weight},
    args,
    events::recorder,
    lease::{self, Elector, Leadership},
    reload::{self, Followed, Unusable},
    supervise::{self, Chain, Ended, Shutdown, Supervisor},
    telemetry,
};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{sync::mpsc, time::sleep};
use tracing::{debug, info, warn};
use vsphere::tls::{Roots, Trust};

use self::{
    settings::{Environment, options, parser},
    told::Teller,
};
use crate::{
    Apply,
    args::{Flags, IGNORED, PROGRAM, REMOVED},
    metrics::Metrics,
    run::{Options, RunError, run},
};

/// How soon files of authorities that cannot be read are looked at again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long sessions and the lease may take to end; kubelets wait half a minute.
const GRACE: Duration = Duration::from_secs(20);

type Failure = Box<dyn Error + Send + Sync>;

/// Runs the program until a signal, and says how it ended. The first argument is the program's name.
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
        .and_then(|runtime| runtime.block_on(Box::pin(work(line, Environment::of(environment)))));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("error: {}\n", Chain(&*error))),
    }
}

fn failed(text: &str) -> ExitCode {
    // Where nobody reads stderr, the code still tells.
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    ExitCode::FAILURE
}

async fn work(line: args::Line<Flags>, environment: Environment) -> Result<(), Failure> {
    let args::Line { flags, unused } = line;
    let verbosity = telemetry::install(flags.logs.log_format, flags.logs.verbosity)?;
    info!(version = env!("CARGO_PKG_VERSION"), "starting");
    debug!(?flags, "by these flags");
    if !unused.is_empty() {
        warn!(flags = unused.join(" "), "flags that have no effect here");
    }
    let parse = parser(flags.cloud.strict_config, environment.variables.clone());
    let (files, config) = reload::files(vec![flags.cloud.cloud_config.clone()], parse)?;
    let client = flags.kubernetes.client(PROGRAM).await?;

    let mut registry = Registry::default();
    let metrics = Metrics::registered(&mut registry);
    let checks = Checks::default();
    let mut tasks = Supervisor::new();
    let (events, writer) = recorder(client.clone(), "cloud-controller-manager", &host()?);
    tasks.spawn_foundation("events", |shutdown| writer.run(shutdown));
    let teller = Teller::new(events.clone(), &environment, &flags.leader, metrics.clone());

    let leadership = if flags.leader.leader_elect && !flags.cloud.dry_run {
        let leader = &flags.leader;
        let namespace = &leader.leader_elect_resource_namespace;
        let name = &leader.leader_elect_resource_name;
        let (me, timing) = (lease::identity()?, leader.timing()?);
        let elector = Elector::new(client.clone(), namespace, name, me, timing).with_events(events);
        elector.register(&mut registry);
        let leadership = elector.leadership();
        let (reported, check) =
            (leadership.clone(), checks.register("leaderElection", Weight::Life));
        tasks.spawn_foundation("lease", |shutdown| elector.run(shutdown));
        tasks.spawn("lease-check", |shutdown| lease::report(reported, check, shutdown));
        leadership
    } else {
        Leadership::undisputed()
    };
    let access = Access::new(&client, &flags.authentication, &flags.authorization).await?;
    let contents = Contents { checks: checks.clone(), metrics: registry, verbosity, access };
    if let Some(server) = Admin::bind(&flags.serving, contents).await? {
        tasks.spawn_foundation("admin", |shutdown| server.run(shutdown));
    }
    let options = Options { metrics, checks, host: host()?, ..options(&flags, &environment) };
    let (told, refusals) = (config.clone(), teller.clone());
    tasks.spawn("configuration", |shutdown| files.follow(shutdown));
    tasks.spawn("configuration-check", |shutdown| refusals.refusals(told, shutdown));
    let printed = flags.cloud.dry_run.then(|| print(&mut tasks));
    let options = Options { apply: printed.unwrap_or_default(), ..options };
    let sessions = options.sessions.clone();
    tasks.spawn("nodes", |shutdown| lead(client, config, options, leadership, teller, shutdown));
    let ended = tasks.run(GRACE).await;
    // Whoever sends a second signal does not want to wait.
    if !matches!(ended, Err(Ended::Impatient)) {
        sessions.close().await;
    }
    Ok(ended?)
}

/// Decisions go to stdout, a line each.
fn print(tasks: &mut Supervisor) -> Apply {
    let (sender, mut lines) = mpsc::unbounded_channel::<String>();
    tasks.spawn("dry-run", |shutdown| async move {
        while let Some(Some(line)) = shutdown.unless(lines.recv()).await {
            writeln!(io::stdout(), "{line}")?;
        }
        shutdown.requested().await;
        Ok::<_, io::Error>(())
    });
    Apply::Print(sender)
}

/// Waits for leadership, then works under one configuration after the other.
async fn lead(
    client: Client,
    mut config: Followed<Arc<Config>>,
    options: Options,
    leadership: Leadership,
    teller: Teller,
    shutdown: Shutdown,
) -> Result<(), Failure> {
    if shutdown.unless(leadership.acquired()).await.is_none() {
        return Ok(());
    }
    let _alive: Vec<Check> = options
        .controllers
        .names()
        .into_iter()
        .map(|name| {
            options.metrics.runs(name);
            let check = options.checks.register(name, Weight::Life);
            check.pass("");
            check
        })
        .collect();
    while !shutdown.is_requested() {
        let now = Arc::clone(&config.value.borrow_and_update());
        describe(&now);
        let (stop, asked) = supervise::shutdown();
        let mut running = Box::pin(run(client.clone(), &now, options.clone(), asked));
        let other = different(&mut config, &now);
        tokio::select! {
            ended = &mut running => {
                ended?;
                return Err(RunError::Task(None).into());
            }
            () = shutdown.requested() => {}
            why = other => {
                info!(why, "working under the new configuration");
                teller.reloaded(why);
            }
        }
        stop.request();
        running.await?;
    }
    Ok(())
}

/// Returns when the configuration says something else, or an authority's file does.
async fn different(config: &mut Followed<Arc<Config>>, now: &Config) -> &'static str {
    let authorities = authorities(now);
    let (stop, asked) = supervise::shutdown();
    let rotated = async {
        let mut missing = false;
        let (files, mut followed) = loop {
            match reload::files(authorities.clone(), |read| Ok(read.clone())) {
                // Whoever needed it could not connect, and does not try again by itself.
                Ok(_) if missing => return,
                Ok(found) => break found,
                Err(_) => missing = true,
            }
            sleep(AGAIN_AFTER).await;
        };
        let changed = async { followed.value.changed().await.is_ok() };
        tokio::select! {
            _ = files.follow(asked) => {}
            true = changed => return,
        }
        std::future::pending::<()>().await;
    };
    let edited = async {
        while config.value.changed().await.is_ok() {
            if **config.value.borrow_and_update() != *now {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    let why = tokio::select! {
        () = rotated => "a file of certificate authorities changed",
        () = edited => "the configuration changed",
    };
    drop(stop);
    why
}

/// The files with authorities that a configuration names.
fn authorities(config: &Config) -> Vec<PathBuf> {
    let file = |trust: &Trust| match trust {
        Trust::Verify { roots: Roots::File(path), .. } => Some(path.clone()),
        _ => None,
    };
    let mut files: Vec<_> = config.vcenters.iter().filter_map(|one| file(&one.trust)).collect();
    files.sort();
    files.dedup();
    files
}

/// Tells what is about to be worked on, without secrets.
fn describe(config: &Config) {
    for vcenter in &config.vcenters {
        info!(
            vcenter = vcenter.name,
            server = vcenter.server,
            datacenters = ?vcenter.datacenters,
            "following"
        );
        if vcenter.trust == Trust::Insecure {
            warn!(
                vcenter = vcenter.name,
                "its certificate is not checked: whoever answers gets the password; set caFile or thumbprint"
            );
        }
    }
}

fn host() -> Result<String, Unusable> {
    let path = "/proc/sys/kernel/hostname";
    let read = std::fs::read_to_string(path)
        .map_err(|error| Unusable { source_name: path.to_owned(), problem: error.to_string() })?;
    Ok(read.trim().to_owned())
}
