//! CSI over gRPC: parse a request, call, answer.
//!
//! Requests become types that cannot be wrong (`parse.rs`), refusals become codes in one place.

mod controller;
mod identity;
mod node;
mod parse;

use tonic::{Code, Status};

pub(crate) use self::controller::DISK_UUID;
pub use self::{controller::ControllerService, identity::Identity, node::NodeService};
use crate::refusal::{Kind, Refusal};

/// A status is sent in the headers of a response, whose size peers limit.
const LONGEST_MESSAGE: usize = 4096;

/// In the contexts of volumes and attachments: what kind of volume it is, in the Go driver's words.
pub(crate) const BLOCK_VOLUME: &str = "vSphere CNS Block Volume";

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut message = refusal.to_string();
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        Self::new(code(refusal.kind), message)
    }
}

/// The code of a refusal.
pub(crate) fn code(kind: Kind) -> Code {
    match kind {
        Kind::Invalid => Code::InvalidArgument,
        Kind::NotFound => Code::NotFound,
        Kind::Differs => Code::AlreadyExists,
        Kind::Precondition => Code::FailedPrecondition,
        Kind::Exhausted => Code::ResourceExhausted,
        Kind::OutOfRange => Code::OutOfRange,
        Kind::Busy => Code::Aborted,
        Kind::Denied => Code::PermissionDenied,
        Kind::Unauthenticated => Code::Unauthenticated,
        Kind::Unavailable => Code::Unavailable,
        Kind::Unfinished => Code::DeadlineExceeded,
        Kind::Internal => Code::Internal,
    }
}
