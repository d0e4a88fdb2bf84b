//! CSI over gRPC: parse a request, call, answer.
//!
//! Requests become types that cannot be wrong (`parse.rs`), refusals become codes in one place.

mod identity;
mod node;
mod parse;

use tonic::{Code, Status};

pub use self::{identity::Identity, node::NodeService};
use crate::refusal::{Kind, Refusal};

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(code(refusal.kind), refusal.to_string())
    }
}

fn code(kind: Kind) -> Code {
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
