//! Why a VolumeAttachment is not as it should be, as its status shows it.

use crate::{
    attach::observe::trimmed::Shown,
    refusal::{Kind, Refusal},
    rpc,
};

/// The API refuses longer messages.
const LONGEST_MESSAGE: usize = 1024;

/// A cause with its remedy, short enough for a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.len() > LONGEST_MESSAGE {
            let cut = "…";
            text.truncate(text.floor_char_boundary(LONGEST_MESSAGE - cut.len()));
            text.push_str(cut);
        }
        Self { kind, text }
    }

    /// The number that gRPC has for it. The kubelet reads the limit of volumes again at 8, `ResourceExhausted`.
    pub(crate) fn code(&self) -> i32 {
        i32::from(rpc::code(self.kind))
    }

    /// Whether a status says this already. API servers that do not know codes drop them.
    pub(crate) fn is_shown(&self, shown: Option<&Shown>) -> bool {
        let same_code = |shown: &Shown| shown.error_code.is_none_or(|code| code == self.code());
        shown.is_some_and(|shown| shown.message == self.text && same_code(shown))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.kind, refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, LONGEST_MESSAGE, Problem, Shown};

    #[test]
    fn a_text_is_cut_to_what_the_api_takes() {
        let problem = Problem::new(Kind::Exhausted, "ü".repeat(LONGEST_MESSAGE));
        assert!(problem.text.len() <= LONGEST_MESSAGE && problem.text.ends_with("ü…"));
        assert_eq!((problem.code(), Problem::new(Kind::Precondition, "").code()), (8, 9));
    }

    #[test]
    fn a_status_without_a_code_shows_the_same_problem() {
        let problem = Problem::new(Kind::Exhausted, "full");
        let shown = |error_code, text: &str| Shown { error_code, message: text.to_owned() };
        let cases = [
            (None, false),
            (Some(shown(None, "full")), true),
            (Some(shown(Some(8), "full")), true),
            (Some(shown(Some(13), "full")), false),
            (Some(shown(Some(8), "not full")), false),
        ];
        for (shown, expected) in cases {
            assert_eq!(problem.is_shown(shown.as_ref()), expected, "{shown:?}");
        }
    }
}
