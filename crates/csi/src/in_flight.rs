//! One operation on a volume at a time.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::refusal::{Kind, Refusal};

/// The volumes that an operation of this process holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashSet<String>>>);

/// A claim on a volume, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    volume: String,
    all: InFlight,
}

impl InFlight {
    /// Claims a volume.
    ///
    /// # Errors
    /// When another operation holds it.
    pub(crate) fn claim(&self, volume: &str) -> Result<Claim, Refusal> {
        if self.lock().insert(volume.to_owned()) {
            return Ok(Claim { volume: volume.to_owned(), all: self.clone() });
        }
        let what = format!("another operation on volume {volume} has not ended yet");
        Err(Refusal::new(Kind::Busy, what))
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        // Nothing can panic while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.all.lock().remove(&self.volume);
    }
}

#[cfg(test)]
mod tests {
    use super::InFlight;
    use crate::refusal::Kind;

    #[test]
    fn a_volume_is_held_by_one_operation_until_that_ends() {
        let all = InFlight::default();
        let first = all.claim("a").unwrap();
        assert_eq!(all.claim("a").unwrap_err().kind, Kind::Busy);
        let _other = all.claim("b").unwrap();
        drop(first);
        all.claim("a").unwrap();
    }
}
