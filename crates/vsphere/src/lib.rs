//! A small, typed, async client of vCenter, for programs that run unattended.
//!
//! It speaks SOAP to the inventory (vim25), to volumes (CNS), storage policies (PBM), first class disks
//! (VSLM), the token service and the administration of SSO users, and REST for tags. Types and methods are
//! generated and have vCenter's own names ([`types`]). It knows nothing of Kubernetes.
//!
//! ```text
//!   inventory   history   cns   vslm   policy   tags   authorization   sso   what the drivers use
//!        └─────────┴───────┴──────┴────┼───┴────────┴───────────┴───────┘
//!          property   collector   task                                      many objects, changes, results
//!                      Connection                                           one session, one login at a time
//!            session   sts   wire   tls   metrics                           identity, trust, limits, counts
//!                     soap   xml   types                                    bytes
//! ```
//!
//! # What a connection promises
//!
//! - **Nothing happens before it is needed.** [`Connection::new`](connection::Connection::new) sends
//!   nothing; the first call logs in. A vCenter that does not answer delays only the calls to it.
//! - **One session.** All clones of a connection share it, and one login at a time makes it. When vCenter has
//!   forgotten it, the call that notices logs in and is repeated once; callers see neither. A login whose caller
//!   gave up is completed and kept. [`close`](connection::Connection::close) logs out; a
//!   connection that is dropped without it leaves its session to vCenter's idle limit. There is no keep-alive
//!   timer: a session that expired costs one login.
//! - **Accounts are not locked out.** Credentials that vCenter refused are not tried again for five minutes
//!   unless they change, and all connections that share a [`LoginBudget`](session::LoginBudget) fail to log a user
//!   in no more than three times in five minutes. [`replace_credentials`](connection::Connection::replace_credentials) tries new ones
//!   first; refused ones change nothing.
//! - **Every call ends.** There is a timeout on everything, and a bound on the calls that are on the way.
//! - **Nothing is repeated that may have been done.** Except for a lost session a call is made once; a broken
//!   wire is [`Remedy::Unreachable`](crate::error::Remedy::Unreachable), and the caller decides.
//! - **Errors contain the remedy.** Callers match on [`Error::remedy`](error::Error); its text names vCenter,
//!   call, reason and the setting or privilege to change; faults keep their type and fields from end to end.
//! - **Old servers are spared.** Fields that a server is too old for are not sent, calls that it does not have
//!   are refused before they are sent. Fields, values and subtypes of newer servers never break reading.
//! - **Passwords stay inside.** No `Debug`, log line or error has one.
//! - **Operations can be found.** Each call has an operation id, in our log and in vCenter's.
//!
//! # A first program
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let vcenter = lab::VCenter::start(&lab::VCenterSpec::default()).await?;
//! # let (url, authority) = (vcenter.url(), vcenter.authority());
//! use vsphere::{
//!     connection::{Connection, Settings},
//!     object,
//!     session::Credentials,
//!     tls::{Roots, Trust},
//!     types::VirtualMachine,
//! };
//!
//! object! {
//!     /// The properties we want, declared once.
//!     pub struct Vm: VirtualMachine {
//!         /// What the user sees.
//!         pub name: String = "name",
//!         /// Whether it runs.
//!         pub power: String = "runtime.powerState",
//!     }
//! }
//!
//! let credentials = Credentials::password("cpi@vsphere.local", "Lab-cpi-1!");
//! let mut settings = Settings::new(url.parse()?, credentials);
//! settings.trust = Trust::Verify { roots: Roots::File(authority.to_owned()), thumbprint: None };
//! let connection = Connection::new(&settings)?;
//!
//! let vms: Vec<Vm> = connection.list().await?;
//! assert!(vms.iter().any(|vm| vm.name == "node-1" && vm.power == "poweredOn"));
//! connection.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! The same struct can be watched instead of polled: vCenter reports what changed ([`collector`]). The example
//! `inventory` of this crate does so with `--watch`.

pub mod authorization;
mod budget;
pub mod cns;
pub mod collector;
pub mod connection;
pub mod endpoint;
pub mod error;
pub mod fault;
mod held;
pub mod history;
mod http;
pub mod inventory;
mod login;
pub mod metrics;
pub mod policy;
pub mod property;
pub mod proxy;
pub mod recorded;
pub mod reference;
pub mod session;
pub mod shared;
pub mod soap;
pub mod sso;
pub mod sts;
pub mod tags;
pub mod task;
pub mod tls;
pub mod types;
pub mod version;
pub mod vslm;
mod wire;
pub mod xml;
