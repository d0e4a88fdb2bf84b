//! Why a request about a volume is not done: what happened to which object, why, and what to do about it.
//!
//! Every caller turns a [`Refusal`] into its own form: gRPC into a code and a message, the attach controller into the
//! status of a VolumeAttachment. Nothing here knows either of them.

use std::{error::Error, fmt};

/// What a caller can do about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request itself is wrong, and will be so every time.
    Invalid,
    /// The volume, node or path does not exist.
    NotFound,
    /// It exists, and is different from what is asked for.
    Differs,
    /// Something else must change first, and the message names it.
    Precondition,
    /// There is no room, no slot, or a limit is reached.
    Exhausted,
    /// A size is out of the range that is possible.
    OutOfRange,
    /// Another operation holds the volume.
    Busy,
    /// The account lacks a privilege.
    Denied,
    /// The account's credentials are not accepted.
    Unauthenticated,
    /// Something does not answer; the same request may succeed later.
    Unavailable,
    /// The work goes on, and did not end in time.
    Unfinished,
    /// Nothing of the above.
    Internal,
}

/// A request that is not done.
#[derive(Debug)]
pub struct Refusal {
    /// What a caller can do about it.
    pub kind: Kind,
    what: String,
    remedy: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Refusal {
    /// What happened, on which object.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), remedy: None, source: None }
    }

    /// The command or setting that helps.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Where it happened, unless the text says so.
    #[must_use]
    pub fn in_vcenter(mut self, server: &str) -> Self {
        if !self.to_string().contains(server) {
            self.what = format!("{} (vCenter {server})", self.what);
        }
        self
    }

    /// Why it happened.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for Refusal {
    /// Everything in one line, causes included: callers have one text to show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let mut cause = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl Error for Refusal {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Kind, Refusal};

    #[test]
    fn a_refusal_reads_as_what_why_and_what_to_do() {
        let refusal = Refusal::new(Kind::Unavailable, "volume v-1 is not staged")
            .because(io::Error::other("the disk does not answer"))
            .remedy("look at the host's events");
        let text = "volume v-1 is not staged: the disk does not answer; look at the host's events";
        assert_eq!(refusal.to_string(), text);
        let placed = refusal.in_vcenter("one.example").in_vcenter("one.example").to_string();
        assert!(
            placed.starts_with("volume v-1 is not staged (vCenter one.example): the"),
            "{placed}"
        );
    }
}
