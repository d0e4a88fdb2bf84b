//! What vCenter refuses, as a refusal of ours.

use vsphere::error::{Cause, Error, Missing, Remedy};

use crate::refusal::{Kind, Refusal};

/// The refusal of an operation that vCenter did not carry out.
pub(super) fn refused(what: impl Into<String>, error: Error) -> Refusal {
    let kind = kind(&error);
    let what = what.into();
    if error.remedy == Remedy::Refused {
        let failure = error.failure();
        tracing::warn!(
            what,
            method = failure.method,
            op_id = failure.operation,
            "vCenter refused a call"
        );
    }
    let refusal = Refusal::new(kind, what);
    match remedy(&error) {
        Some(remedy) => refusal.because(error).remedy(remedy),
        None => refusal.because(error),
    }
}

fn kind(error: &Error) -> Kind {
    match &error.remedy {
        Remedy::Retry | Remedy::LoggedOut | Remedy::Unreachable | Remedy::Busy => Kind::Unavailable,
        Remedy::Login => Kind::Unauthenticated,
        Remedy::NotFound { what: Missing::Policy(_) } | Remedy::Invalid { .. } => Kind::Invalid,
        Remedy::NotFound { .. } => Kind::NotFound,
        Remedy::InUse => Kind::Precondition,
        Remedy::NoPermission { .. } => Kind::Denied,
        Remedy::NoSpace => Kind::Exhausted,
        Remedy::Unfinished { .. } => Kind::Unfinished,
        // The connection ends when the configuration changes; the next call has a new one.
        Remedy::Refused if matches!(error.failure().cause, Cause::Closed) => Kind::Unavailable,
        Remedy::Refused => Kind::Internal,
    }
}

fn remedy(error: &Error) -> Option<String> {
    match &error.remedy {
        Remedy::NotFound { what: Missing::Policy(_) } => {
            Some("correct storagepolicyname in the StorageClass".to_owned())
        }
        // Without the id of the request, which differs each time: texts are compared, and events counted by them.
        Remedy::Refused => Some(
            "vCenter's logs of vsan-health and vpxd have the reason, under the opId that the driver logged"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Whether the call was refused before it changed anything.
pub(super) fn is_certain(error: &Error) -> bool {
    // A fault is an answer; without one the call may have been carried out.
    error.fault().is_some()
        || matches!(error.remedy, Remedy::Login)
        || matches!(
            error.failure().cause,
            Cause::TooOld(_) | Cause::UnknownHost { .. } | Cause::NoConnection { .. }
        )
}

/// Whether the task failed as a whole for a reason that does not say whether its work is done: CNS fails all tasks when
/// it restarts, and the work may go on.
pub(super) fn is_ambiguous(error: &Error) -> bool {
    matches!(error.failure().cause, Cause::TaskFailed(_))
        && matches!(
            error.remedy,
            Remedy::Refused | Remedy::Retry | Remedy::Busy | Remedy::LoggedOut
        )
}

/// Whether the fault of a task, or of its volume, proves that nothing was made and nothing will be: it was refused before
/// the disk layer began, or for a reason that does not pass while it works. A time-out, a host that was lost or a fault
/// without a reason may come before the work ends.
pub(super) fn proves_absence(error: &Error) -> bool {
    let has = |names: &[&str]| {
        let has = |name: &&str| error.fault().is_some_and(|fault| fault.find(name).is_some());
        names.iter().any(has)
    };
    match error.remedy {
        Remedy::NoSpace
        | Remedy::NoPermission { .. }
        | Remedy::NotFound { .. }
        | Remedy::Invalid { .. }
        | Remedy::InUse
        | Remedy::Login
        | Remedy::LoggedOut => true,
        Remedy::Busy => has(&["TaskInProgress"]),
        // CNS took no datastore, or the host or its release cannot do it.
        Remedy::Refused | Remedy::Retry => {
            matches!(error.failure().cause, Cause::Unplaced { .. })
                || has(&["NotSupported", "InvalidHostState"])
        }
        Remedy::Unreachable | Remedy::Unfinished { .. } => false,
    }
}

/// Whether vCenter may still carry out a call, or the work of its task, that was not seen to end.
pub(super) fn may_follow(error: &Error) -> bool {
    !is_certain(error) || is_ambiguous(error)
}
