//! How long a watch of the API that failed waits before it goes on.

use std::time::Duration;

use kube::runtime::{utils::Backoff, watcher::DefaultBackoff};

/// The end of an outage is noticed this late.
const LONGEST: Duration = Duration::from_secs(5);

/// The library's growing pauses, as far as they are not too long.
#[derive(Default)]
pub struct Pauses(DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(LONGEST))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, LONGEST, Pauses};

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew_for_ever() {
        let mut pauses = Pauses::default();
        let first = pauses.next().unwrap();
        assert!(first < LONGEST);
        assert!(pauses.by_ref().take(100).all(|pause| pause <= LONGEST));
        assert_eq!(pauses.next(), Some(LONGEST));
        pauses.reset();
        assert!(pauses.next().is_some());
    }
}
