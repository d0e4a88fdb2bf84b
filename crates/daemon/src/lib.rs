//! What every long-running program of the suite needs: flags, logs, health, leader election, supervision.
//!
//! ```text
//!   args          flags as Kubernetes' components have them; each program composes groups
//!   client        the Kubernetes API: timeouts, limits, the base of every watch
//!   telemetry     logs, with a level that changes while running
//!   supervise     named groups of tasks: the first task that ends early ends the program; signals
//!     ├─ lease    leader election
//!     ├─ admin    HTTPS: health, readiness, metrics, the log level; authentication and authorization
//!     ├─ reload   files and Secrets that change while running
//!     └─ events   Kubernetes Events
//!   permissions   the RBAC rules that all of these need
//!   label         texts that Kubernetes accepts as labels
//! ```
//!
//! Invariants:
//! - **Fail-stop.** A task that ends takes the program with it; Kubernetes starts it again. Losing the lease
//!   is such an end, and nothing of what ran under it gets time to finish.
//! - **No state of its own.** No statics, no detached tasks; what a task needs is passed to it.
//! - **Nothing here exits the process** or reads the environment; `main` decides.
//!
//! # A program
//!
//! ```no_run
//! use daemon::{args, lease, supervise::Supervisor, telemetry};
//!
//! #[derive(clap::Parser)]
//! struct Flags {
//!     #[command(flatten)]
//!     leader: args::LeaderElection,
//!     #[command(flatten)]
//!     kubernetes: args::Kubernetes,
//!     #[command(flatten)]
//!     logs: args::Logs,
//! }
//!
//! async fn run(flags: Flags) -> Result<(), Box<dyn std::error::Error>> {
//!     telemetry::install(flags.logs.log_format, flags.logs.verbosity)?;
//!     let client = flags.kubernetes.client("program").await?;
//!     let (me, timing) = (lease::identity()?, flags.leader.timing()?);
//!     let elector = lease::Elector::new(client, "kube-system", "program", me, timing);
//!     let leadership = elector.leadership();
//!     let mut tasks = Supervisor::new()?;
//!     tasks.foundation.spawn("lease", |shutdown| elector.run(shutdown));
//!     tasks.work.spawn("nodes", |shutdown| async move {
//!         if shutdown.unless(leadership.acquired()).await.is_some() {
//!             // This process leads: the work goes here, and ends on request.
//!             shutdown.requested().await;
//!         }
//!         Ok::<_, std::io::Error>(())
//!     });
//!     Ok(tasks.run(std::time::Duration::from_secs(20)).await?)
//! }
//! ```
//!
//! Deliberately absent: knowledge of vSphere, profiling, client certificates (callers of the admin server prove
//! themselves by a token).

pub mod admin;
pub mod args;
pub mod client;
pub mod events;
mod expiring;
pub mod label;
pub mod lease;
pub mod permissions;
pub mod reload;
pub mod supervise;
pub mod telemetry;
