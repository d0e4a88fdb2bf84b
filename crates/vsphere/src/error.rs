//! What went wrong, by what can be done about it.
//!
//! A caller matches on the variant: it is the remedy. Text and source chain tell a human the rest: which
//! vCenter, which call, why, and what to change.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    fault::Fault,
    reference::Ref,
    shared::NoTicket,
    tls::{InvalidTrust, Untrusted},
    types::{CnsPlacementResult, ManagedObject, Task},
    version::Since,
    xml::Malformed,
};

/// A call that did not succeed, by remedy.
#[derive(Debug, Clone)]
pub enum Error {
    /// vCenter is in trouble that passes: call again, later.
    Retry(Box<Failure>),
    /// vCenter does not let us in: the credentials must change.
    Login(Box<Failure>),
    /// What the call is about does not exist.
    NotFound(Box<Failure>),
    /// Somebody else uses what the call is about.
    InUse(Box<Failure>),
    /// The user lacks a privilege.
    NoPermission {
        /// On which object, if vCenter said.
        object: Option<Ref<ManagedObject>>,
        /// Which one, if vCenter said.
        privilege: Option<String>,
        /// What was refused.
        failure: Box<Failure>,
    },
    /// There is no room.
    NoSpace(Box<Failure>),
    /// An argument is wrong: the same call never succeeds.
    Invalid {
        /// Which one, if vCenter said.
        field: Option<String>,
        /// What was refused.
        failure: Box<Failure>,
    },
    /// The object is busy with something else: call again when that is done.
    Busy(Box<Failure>),
    /// Nobody answers, or nobody whom we trust. Whether the call was carried out is unknown.
    Unreachable(Box<Failure>),
    /// vCenter said no, for a reason that no program can act on.
    Refused(Box<Failure>),
    /// A task that was started has not told its outcome: look at the world before trying again.
    Unfinished {
        /// The task, for whoever wants to wait on.
        task: Ref<Task>,
        /// Why nobody waits any more.
        failure: Box<Failure>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.failure())?;
        match self {
            Self::Retry(_) => f.write_str("; try again later"),
            Self::Busy(_) => f.write_str("; try again when that is done"),
            Self::NoPermission { object, privilege, .. } => {
                write!(f, "; {}", advice(object.as_ref(), privilege.as_deref()))
            }
            Self::Invalid { field: Some(field), .. } => write!(f, " (argument {field})"),
            Self::Unfinished { task, .. } => write!(f, "; task {task} may still change things"),
            _ => Ok(()),
        }
    }
}

/// The chain begins below what the text says already: with what a fault wraps.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.fault().and_then(std::error::Error::source)
    }
}

fn advice(object: Option<&Ref<ManagedObject>>, privilege: Option<&str>) -> String {
    let privilege = privilege.unwrap_or("that the call needs");
    match object {
        Some(object) => format!(
            "grant the user a role with the privilege {privilege} on {} {object}",
            object.kind()
        ),
        None => format!("grant the user a role with the privilege {privilege}"),
    }
}

/// A call that failed: where, what, and the reason.
#[derive(Debug, Clone)]
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.vcenter, self.method, self.cause)
    }
}

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Cause {
    /// The server answered with a fault.
    #[error("{0}")]
    Fault(Box<Fault>),
    /// The host's name leads nowhere.
    #[error(
        "the host {host} cannot be found ({problem}); check its spelling and the DNS of this machine"
    )]
    UnknownHost {
        /// The name.
        host: String,
        /// What the resolver said.
        problem: String,
    },
    /// Nobody listens.
    #[error(
        "nobody answers at {address} ({problem}); check host and port (vCenter's is 443) and firewalls"
    )]
    NoConnection {
        /// Host and port.
        address: String,
        /// What the system said.
        problem: String,
    },
    /// Whoever listens does not speak TLS.
    #[error("{address} does not speak TLS ({problem}); check the port (vCenter's is 443)")]
    NoTls {
        /// Host and port.
        address: String,
        /// What the library said.
        problem: String,
    },
    /// The certificate was refused.
    #[error("{address} is not trusted: {reason}; {}", trust_advice(.reason))]
    Untrusted {
        /// Host and port.
        address: String,
        /// Why.
        reason: Untrusted,
    },
    /// The settings of TLS became unusable.
    #[error("{0}")]
    Trust(InvalidTrust),
    /// The connection broke in the middle.
    #[error("the connection to {address} broke ({problem})")]
    Broken {
        /// Host and port.
        address: String,
        /// What the library said.
        problem: String,
    },
    /// There was no answer in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// An HTTP status that is no answer to a call: a proxy, or a vCenter that starts.
    #[error(
        "HTTP status {0} instead of an answer: vCenter is starting or overloaded, or a proxy answered"
    )]
    Status(u16),
    /// The answer is not what we agreed on.
    #[error("{0}")]
    Malformed(Malformed),
    /// vCenter refused the credentials.
    #[error("vCenter refused the login of {user}: the user name or the password is wrong, or the account is locked or expired{}", pause(.held.as_ref()))]
    Credentials {
        /// The user.
        user: String,
        /// How long no other attempt is made with the same credentials, if this was none.
        held: Option<Duration>,
    },
    /// A session cannot be cloned.
    #[error("{0}")]
    NoTicket(NoTicket),
    /// The server is too old for the call.
    #[error("this vCenter does not have the call, which came with {0}; upgrade vCenter")]
    TooOld(Since),
    /// CNS made no volume, and says what is wrong with each datastore.
    #[error("{fault}{}", refusals(.placements))]
    Unplaced {
        /// The reason in short.
        fault: Box<Fault>,
        /// The reasons for each datastore.
        placements: Vec<CnsPlacementResult>,
    },
    /// No storage policy has this name.
    #[error("there is no storage policy {name:?}; {}", near_names(.near))]
    UnknownPolicy {
        /// The name.
        name: String,
        /// The names most like it.
        near: Vec<String>,
    },
    /// A task was not done in time.
    #[error("the task is not done after {} s", .0.as_secs_f32())]
    StillRunning(Duration),
    /// vCenter does not know the task any more.
    #[error("vCenter lost the task, which happens when it restarts")]
    TaskLost,
    /// The connection was closed by its owner.
    #[error("the connection was closed")]
    Closed,
}

fn trust_advice(reason: &Untrusted) -> String {
    match reason {
        Untrusted::OtherCertificate { actual, .. } => format!(
            "if vCenter's certificate was renewed, compare with its own pages and set the thumbprint to {actual}"
        ),
        Untrusted::Unknown { actual, .. } => format!(
            "give the CA that signed it, or compare with vCenter's own pages and set the thumbprint to {actual}"
        ),
    }
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

fn pause(held: Option<&Duration>) -> String {
    held.map(|rest| {
        format!(
            "; not tried again for {} s, to keep the account from being locked, unless the credentials change",
            rest.as_secs()
        )
    })
    .unwrap_or_default()
}

impl Error {
    /// The failed call.
    pub fn failure(&self) -> &Failure {
        match self {
            Self::Retry(failure)
            | Self::Login(failure)
            | Self::NotFound(failure)
            | Self::InUse(failure)
            | Self::NoSpace(failure)
            | Self::Busy(failure)
            | Self::Unreachable(failure)
            | Self::Refused(failure)
            | Self::NoPermission { failure, .. }
            | Self::Invalid { failure, .. }
            | Self::Unfinished { failure, .. } => failure,
        }
    }

    /// The same error, of another method: what a task says is about the call that started it.
    pub(crate) fn of(mut self, method: &'static str) -> Self {
        match &mut self {
            Self::Retry(failure)
            | Self::Login(failure)
            | Self::NotFound(failure)
            | Self::InUse(failure)
            | Self::NoSpace(failure)
            | Self::Busy(failure)
            | Self::Unreachable(failure)
            | Self::Refused(failure)
            | Self::NoPermission { failure, .. }
            | Self::Invalid { failure, .. }
            | Self::Unfinished { failure, .. } => failure.method = method,
        }
        self
    }

    /// The server's fault, if it answered with one.
    pub fn fault(&self) -> Option<&Fault> {
        match &self.failure().cause {
            Cause::Fault(fault) | Cause::Unplaced { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// The remedy as a word: a label of metrics and a field of logs.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Retry(_) => "retry",
            Self::Login(_) => "login",
            Self::NotFound(_) => "not-found",
            Self::InUse(_) => "in-use",
            Self::NoPermission { .. } => "no-permission",
            Self::NoSpace(_) => "no-space",
            Self::Invalid { .. } => "invalid",
            Self::Busy(_) => "busy",
            Self::Unreachable(_) => "unreachable",
            Self::Refused(_) => "refused",
            Self::Unfinished { .. } => "unfinished",
        }
    }

    /// The error of a failed call.
    pub(crate) fn from(failure: Failure) -> Self {
        let failure = Box::new(failure);
        match &failure.cause {
            Cause::Fault(fault) | Cause::Unplaced { fault, .. } => {
                Self::by_fault(&fault.clone(), failure)
            }
            Cause::Credentials { .. } => Self::Login(failure),
            Cause::Status(_) | Cause::Malformed(_) => Self::Retry(failure),
            Cause::UnknownPolicy { .. } => Self::NotFound(failure),
            Cause::TooOld(_) | Cause::Closed => Self::Refused(failure),
            Cause::UnknownHost { .. }
            | Cause::NoConnection { .. }
            | Cause::NoTls { .. }
            | Cause::Untrusted { .. }
            | Cause::Trust(_)
            | Cause::Broken { .. }
            | Cause::Timeout(_)
            | Cause::NoTicket(_)
            | Cause::StillRunning(_)
            | Cause::TaskLost => Self::Unreachable(failure),
        }
    }

    /// The first family that the fault, or what it wraps, belongs to decides.
    fn by_fault(fault: &Fault, failure: Box<Failure>) -> Self {
        let has = |names: &[&str]| names.iter().any(|name| fault.find(name).is_some());
        // NotAuthenticated is a NoPermission by inheritance, and something else by remedy.
        if has(&["InvalidLogin", "NotAuthenticated", "InvalidCredential", "FailedAuthentication"]) {
            return Self::Login(failure);
        }
        if let Some(fault) = fault.find("NoPermission") {
            return Self::NoPermission {
                object: object_of(fault),
                privilege: privilege_of(fault),
                failure,
            };
        }
        if has(NOT_FOUND) {
            return Self::NotFound(failure);
        }
        if has(&["TaskInProgress", "ConcurrentAccess", "VimFaultBusy", "CnsVolumeBusyFault"]) {
            return Self::Busy(failure);
        }
        if has(&["ResourceInUse", "FileLocked", "CannotAccessVmDevice"]) {
            return Self::InUse(failure);
        }
        if has(NO_SPACE) {
            return Self::NoSpace(failure);
        }
        if let Some(fault) = INVALID.iter().find_map(|name| fault.find(name)) {
            let field = fault.field("invalidProperty").or_else(|| fault.field("name"));
            return Self::Invalid { field: field.map(str::to_owned), failure };
        }
        if has(TRANSIENT) { Self::Retry(failure) } else { Self::Refused(failure) }
    }
}

const NOT_FOUND: &[&str] = &[
    "ManagedObjectNotFound",
    "NotFound",
    "FileNotFound",
    "CnsNotRegisteredFault",
    "CnsVolumeNotFoundFault",
    "CnsSnapshotNotFoundFault",
];
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
    "SystemError",
    "VslmSyncFault",
    "NotSupportedHost",
];

fn object_of(fault: &Fault) -> Option<Ref<ManagedObject>> {
    let read = |value: &str, kind: &str| {
        Some(Ref::with_kind(fault.field(kind).unwrap_or_default(), fault.field(value)?))
    };
    read("object", "object@type")
        .or_else(|| read("missingPrivileges.entity", "missingPrivileges.entity@type"))
}

fn privilege_of(fault: &Fault) -> Option<String> {
    fault
        .field("privilegeId")
        .or_else(|| fault.field("missingPrivileges.privilegeIds"))
        .map(str::to_owned)
}
