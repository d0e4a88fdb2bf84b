//! Errors, by what can be done about them.
//!
//! A caller matches on [`Error::remedy`]. Text and source chain are for people: which vCenter, which call, why,
//! and what to change.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    fault::Fault,
    reference::Ref,
    shared::NoTicket,
    tls::Untrusted,
    types::{CnsPlacementResult, ManagedObject, Task},
    version::Since,
    xml::Malformed,
};

/// The folder above all datacenters. Clients show it as the vCenter, and every vCenter has it under this value.
const ROOT_FOLDER: &str = "group-d1";

/// A call that did not succeed.
#[derive(Debug, Clone)]
pub struct Error {
    /// What the caller can do.
    pub remedy: Remedy,
    failure: Box<Failure>,
}

/// What can be done about an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// vCenter is in a state that passes: call again later.
    Retry,
    /// vCenter refuses the credentials: they must change.
    Login,
    /// vCenter has forgotten the session, and a new one did not help: call again later.
    LoggedOut,
    /// What the call is about does not exist.
    NotFound {
        /// What that is, as far as vCenter named it.
        what: Missing,
    },
    /// Somebody else uses what the call is about.
    InUse,
    /// The user lacks a privilege.
    NoPermission {
        /// On which object, if vCenter named it.
        object: Option<Ref<ManagedObject>>,
        /// Which one, if vCenter named it.
        privilege: Option<String>,
    },
    /// A datastore, a VM's slots or a limit is full.
    NoSpace,
    /// An argument is not valid: the same call never succeeds.
    Invalid {
        /// Which one, if vCenter named it.
        field: Option<String>,
    },
    /// The object is busy with another operation: call again when that has ended.
    Busy,
    /// There is no answer, or none from a server that is trusted. Whether the call was carried out is unknown.
    Unreachable,
    /// vCenter refused for a reason that no program can act on.
    Refused,
    /// The outcome of a task that was started is unknown: read the state before trying again.
    Unfinished {
        /// The task, to continue waiting.
        task: Ref<Task>,
    },
}

/// What does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// A managed object: a VM, a host, a datastore.
    Object(Ref<ManagedObject>),
    /// A volume or a first class disk, by id.
    Volume(String),
    /// A snapshot of a volume, by id.
    Snapshot(String),
    /// A file on a datastore.
    File(String),
    /// A storage policy, by name.
    Policy(String),
    /// vCenter did not name it.
    Unnamed,
}

impl Remedy {
    /// The value of the metrics' label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Login => "login",
            Self::LoggedOut => "logged-out",
            Self::NotFound { .. } => "not-found",
            Self::InUse => "in-use",
            Self::NoPermission { .. } => "no-permission",
            Self::NoSpace => "no-space",
            Self::Invalid { .. } => "invalid",
            Self::Busy => "busy",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Unfinished { .. } => "unfinished",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.failure)?;
        match &self.remedy {
            Remedy::Retry | Remedy::LoggedOut => f.write_str("; try again later"),
            Remedy::Busy => f.write_str("; try again when that is done"),
            Remedy::NoPermission { object, privilege } => {
                let privilege = privilege.as_deref().unwrap_or("that the call needs");
                write!(f, "; grant the user a role with the privilege {privilege}")?;
                object.iter().try_for_each(|object| write!(f, " on {} {object}", object.kind()))?;
                let is_root = object.as_ref().is_some_and(|object| object.value() == ROOT_FOLDER);
                f.write_str(if is_root { " (the vCenter itself)" } else { "" })
            }
            Remedy::Invalid { field: Some(field) } => write!(f, " (argument {field})"),
            Remedy::Unfinished { task } => write!(f, "; task {task} may still change things"),
            _ => Ok(()),
        }
    }
}

/// The chain begins with what the fault of the text wraps.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.fault().and_then(std::error::Error::source)
    }
}

/// A call that failed: where, what, and the reason.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{vcenter}: {method}: {cause}")]
pub struct Failure {
    /// The vCenter as the settings name it.
    pub vcenter: Arc<str>,
    /// The method on the wire.
    pub method: &'static str,
    /// The operation id, which is in vCenter's logs too.
    pub operation: String,
    /// The reason.
    pub cause: Cause,
}

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "variants and fields are explained by the texts that they are shown in"
)]
pub enum Cause {
    #[error("{0}")]
    Fault(Box<Fault>),
    /// The whole task failed, not one of its volumes: when CNS restarts, the work may go on.
    #[error("{0}")]
    TaskFailed(Box<Fault>),
    #[error(
        "the host {host} cannot be found ({problem}); check its spelling and the DNS of this machine"
    )]
    UnknownHost { host: String, problem: String },
    #[error(
        "no server answers at {address} ({problem}); check host and port (vCenter's is 443) and firewalls"
    )]
    NoConnection { address: String, problem: String },
    #[error("{address} does not speak TLS ({problem}); check the port (vCenter's is 443)")]
    NoTls { address: String, problem: String },
    #[error("{address} is not trusted: {reason}")]
    Untrusted { address: String, reason: Untrusted },
    #[error("the connection to {address} broke ({problem})")]
    Broken { address: String, problem: String },
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    #[error(
        "HTTP status {0} instead of an answer: vCenter is starting or overloaded, or a proxy answered"
    )]
    Status(u16),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Now or within the last minutes. `held` is how long the same credentials are not tried again; it is not in the
    /// texts, here and below, because those must not change by themselves.
    #[error(
        "vCenter refused the login of {user}: the user name or the password is wrong, or the account is \
         locked or expired; so that it is not locked, these credentials are not tried again for five minutes"
    )]
    Credentials { user: String, held: Duration },
    #[error(
        "three logins of {user} failed within five minutes; so that vCenter does not lock the account, no \
         credentials of this user are tried before five minutes have passed"
    )]
    LoginsSpent { user: String, held: Duration },
    #[error("{fault}; these credentials are not tried again for five minutes")]
    NoRole { fault: Box<Fault>, held: Duration },
    #[error("{0}")]
    NoTicket(NoTicket),
    #[error("this vCenter does not have the call, which came with {0}; upgrade vCenter")]
    TooOld(Since),
    #[error("more than 200,000 tasks were recorded in the time to search; older ones are not read")]
    TooManyTasks,
    /// A fault of CNS, with a reason per datastore.
    #[error("{fault}{}", refusals(.placements))]
    Unplaced { fault: Box<Fault>, placements: Vec<CnsPlacementResult> },
    /// `why` is what the fault does not have.
    #[error("{fault}; {why}")]
    NotDetached { fault: Box<Fault>, why: &'static str },
    #[error("there is no storage policy {name:?}; {}", near_names(.near))]
    UnknownPolicy { name: String, near: Vec<String> },
    #[error("the task is not done after {} s", .0.as_secs_f32())]
    StillRunning(Duration),
    #[error("vCenter lost the task, which happens when it restarts")]
    TaskLost,
    /// vCenter does not show the task to the user.
    #[error("the state of the task cannot be read ({0}); grant the user Read on the root folder")]
    TaskHidden(Box<Fault>),
    #[error("the connection was closed")]
    Closed,
}

/// The first reasons, because a datacenter may have hundreds of datastores.
fn refusals(placements: &[CnsPlacementResult]) -> String {
    const SHOWN: usize = 5;
    let mut text = String::new();
    for placement in placements.iter().take(SHOWN) {
        for fault in &placement.placement_faults {
            text += &format!("; not on {}: {fault}", placement.datastore);
        }
    }
    if placements.len() > SHOWN {
        text += &format!("; and {} more", placements.len() - SHOWN);
    }
    text
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() {
        "vCenter has none that this user may see".to_owned()
    } else {
        format!("the most similar names are {near:?}")
    }
}

impl Error {
    /// The error of a failed call, with the remedy that its cause has.
    pub(crate) fn from(failure: Failure) -> Self {
        Self::with(failure.cause.remedy(), failure)
    }

    pub(crate) fn with(remedy: Remedy, failure: Failure) -> Self {
        Self { remedy, failure: Box::new(failure) }
    }

    /// The failed call.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// The same error with another method: a failed task is reported for the call that started it.
    pub(crate) fn of(mut self, method: &'static str) -> Self {
        self.failure.method = method;
        self
    }

    /// The server's fault, if it answered with one.
    pub fn fault(&self) -> Option<&Fault> {
        self.failure.cause.fault()
    }

    /// Whether vCenter refuses the credentials.
    pub fn is_login(&self) -> bool {
        self.remedy == Remedy::Login
    }

    /// Whether a login was refused, now or within the last minutes: for the credentials, or for want of a role.
    pub(crate) fn is_refused_login(&self) -> bool {
        self.is_login() || matches!(self.failure.cause, Cause::NoRole { .. })
    }

    /// Whether vCenter has forgotten the session.
    pub(crate) fn is_logged_out(&self) -> bool {
        self.remedy == Remedy::LoggedOut
    }
}

impl Cause {
    fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Fault(fault)
            | Self::TaskFailed(fault)
            | Self::NoRole { fault, .. }
            | Self::Unplaced { fault, .. }
            | Self::NotDetached { fault, .. } => Some(fault),
            _ => None,
        }
    }

    fn remedy(&self) -> Remedy {
        match self {
            Self::Fault(fault) | Self::TaskFailed(fault) | Self::NoRole { fault, .. } => {
                remedy_of(fault)
            }
            // The fault itself may say no more than that something failed.
            Self::Unplaced { fault, placements } => match remedy_of(fault) {
                Remedy::Refused if are_full(placements) => Remedy::NoSpace,
                remedy => remedy,
            },
            Self::Credentials { .. } | Self::LoginsSpent { .. } => Remedy::Login,
            Self::Status(_) | Self::Malformed(_) | Self::NotDetached { .. } => Remedy::Retry,
            Self::UnknownPolicy { name, .. } => {
                Remedy::NotFound { what: Missing::Policy(name.clone()) }
            }
            Self::TooOld(_) | Self::TooManyTasks | Self::Closed => Remedy::Refused,
            Self::UnknownHost { .. }
            | Self::NoConnection { .. }
            | Self::NoTls { .. }
            | Self::Untrusted { .. }
            | Self::Broken { .. }
            | Self::Timeout(_)
            | Self::NoTicket(_)
            | Self::StillRunning(_)
            | Self::TaskLost
            | Self::TaskHidden(_) => Remedy::Unreachable,
        }
    }
}

/// Whether all datastores lack space, except for those that the policy excludes.
fn are_full(placements: &[CnsPlacementResult]) -> bool {
    let has = |placement: &CnsPlacementResult, names: &[&str]| {
        let mut faults = placement.placement_faults.iter();
        faults.any(|fault| names.iter().any(|name| fault.find(name).is_some()))
    };
    let mut candidates =
        placements.iter().filter(|one| !has(one, &["CnsInCompatibleFault"])).peekable();
    candidates.peek().is_some() && candidates.all(|one| has(one, NO_SPACE))
}

/// The remedy of the first family that the fault, or a fault it wraps, belongs to.
fn remedy_of(fault: &Fault) -> Remedy {
    let has = |names: &[&str]| names.iter().any(|name| fault.find(name).is_some());
    // NotAuthenticated is a NoPermission by inheritance, and something else by remedy.
    if fault.find("NotAuthenticated").is_some() {
        return Remedy::LoggedOut;
    }
    if LOGIN.iter().any(|name| fault.is_a(name)) {
        return Remedy::Login;
    }
    if let Some(fault) = fault.find("NoPermission") {
        let object =
            reference(fault, "object").or_else(|| reference(fault, "missingPrivileges.entity"));
        let privilege =
            fault.field("privilegeId").or_else(|| fault.field("missingPrivileges.privilegeIds"));
        return Remedy::NoPermission { object, privilege: privilege.map(str::to_owned) };
    }
    // Only the call's own fault: below another one it may be about a host or a datastore.
    if let Some(what) = missing(fault) {
        return Remedy::NotFound { what };
    }
    if has(&["TaskInProgress", "ConcurrentAccess", "VimFaultBusy", "CnsVolumeBusyFault"]) {
        return Remedy::Busy;
    }
    if has(&["ResourceInUse", "FileLocked"]) {
        return Remedy::InUse;
    }
    if has(NO_SPACE) {
        return Remedy::NoSpace;
    }
    if let Some(fault) = INVALID.iter().find_map(|name| fault.find(name)) {
        let field = fault.field("invalidProperty").or_else(|| fault.field("name"));
        return Remedy::Invalid { field: field.map(str::to_owned) };
    }
    if has(TRANSIENT) { Remedy::Retry } else { Remedy::Refused }
}

/// Only as the call's own fault: below another one they are about credentials of vCenter itself.
const LOGIN: &[&str] = &["InvalidLogin", "InvalidCredential", "FailedAuthentication"];
/// Room on a datastore, in a VM's slots, or below a limit.
const NO_SPACE: &[&str] = &[
    "NoDiskSpace",
    "InsufficientStorageSpace",
    "InsufficientResourcesFault",
    "LimitExceeded",
    "TooManyDevices",
    "OutOfBounds",
];
const INVALID: &[&str] = &[
    "InvalidArgument",
    "InvalidName",
    "InvalidRequest",
    "InvalidType",
    "DuplicateName",
    "AlreadyExists",
    "CnsAlreadyRegisteredFault",
    "CnsVolumeAlreadyExistsFault",
    "InvalidDatastore",
    "InvalidDeviceSpec",
];
const TRANSIENT: &[&str] = &[
    "HostCommunication",
    "HostNotConnected",
    "HostNotReachable",
    "HostConnectFault",
    "InvalidHostState",
    "InvalidHostConnectionState",
    "Timedout",
    "RequestCanceled",
    "CannotAccessVmComponent",
    "SystemError",
    "VslmSyncFault",
    "NotSupportedHost",
];

fn missing(fault: &Fault) -> Option<Missing> {
    let named = |path: &str, what: fn(String) -> Missing| {
        fault.field(path).map_or(Missing::Unnamed, |id| what(id.to_owned()))
    };
    let is = |name: &str| fault.is_a(name);
    Some(if is("ManagedObjectNotFound") {
        reference(fault, "obj").map_or(Missing::Unnamed, Missing::Object)
    } else if is("CnsVolumeNotFoundFault") || is("CnsNotRegisteredFault") {
        named("volumeId.id", Missing::Volume)
    } else if is("CnsSnapshotNotFoundFault") {
        named("snapshotId.id", Missing::Snapshot)
    } else if is("FileNotFound") {
        named("file", Missing::File)
    } else if is("NotFound") {
        Missing::Unnamed
    } else {
        return None;
    })
}

fn reference(fault: &Fault, path: &str) -> Option<Ref<ManagedObject>> {
    let kind = fault.field(&format!("{path}@type")).unwrap_or_default();
    Some(Ref::with_kind(kind, fault.field(path)?))
}

#[cfg(test)]
mod tests;
