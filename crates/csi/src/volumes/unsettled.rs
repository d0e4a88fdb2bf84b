//! Attachments and detachments whose outcome is not known, and which vCenter may still carry out.
//!
//! When there is no answer, when the task is lost, or when CNS restarts and fails a task whose work goes on, a volume
//! may be attached or detached later than anybody expects. The devices of the VM show what is, not what will be: a
//! volume that is found detached may be attached a moment later, and nobody would detach it then. So for a while after
//! such an attempt the opposite is not confirmed. What other VMs have is not concerned.
//!
//! Kept in memory: a process that starts waits for nothing.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use vsphere::{reference::Ref, types::VirtualMachine};

use super::queue::Change;
use crate::refusal::{Kind, Refusal};

type Attempt = (Ref<VirtualMachine>, String, Change);

/// Attempts whose outcome is not known, with the time after which vCenter does not carry them out any more.
#[derive(Debug)]
pub(super) struct Unsettled {
    settle: Duration,
    attempts: Mutex<HashMap<Attempt, Instant>>,
}

impl Unsettled {
    pub(super) fn new(settle: Duration) -> Self {
        Self { settle, attempts: Mutex::default() }
    }

    /// Notes an attempt that may still be carried out.
    pub(super) fn note(&self, vm: &Ref<VirtualMachine>, volume: &str, change: Change) {
        self.note_at(vm, volume, change, Instant::now());
    }

    fn note_at(&self, vm: &Ref<VirtualMachine>, volume: &str, change: Change, now: Instant) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.retain(|_, until| *until > now);
        attempts.insert((vm.clone(), volume.to_owned(), change), now + self.settle);
    }

    /// Refuses to confirm a change while the opposite may still be carried out.
    pub(super) fn check(
        &self,
        vm: &Ref<VirtualMachine>,
        volume: &str,
        change: Change,
    ) -> Result<(), Refusal> {
        self.check_at(vm, volume, change, Instant::now())
    }

    fn check_at(
        &self,
        vm: &Ref<VirtualMachine>,
        volume: &str,
        change: Change,
        now: Instant,
    ) -> Result<(), Refusal> {
        let (opposite, doing) = match change {
            Change::Attach => (Change::Detach, "detach"),
            Change::Detach => (Change::Attach, "attach"),
        };
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let until = attempts.get(&(vm.clone(), volume.to_owned(), opposite));
        if until.is_none_or(|until| *until <= now) {
            return Ok(());
        }
        let what = format!(
            "volume {volume}: vCenter may still carry out an earlier call to {doing} it, whose outcome is not known"
        );
        Err(Refusal::new(Kind::Busy, what).remedy("it is tried again until that is settled"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Duration, Instant, Ref, Unsettled, VirtualMachine};

    #[test]
    fn only_the_opposite_on_the_same_vm_is_not_confirmed_for_a_while() {
        let unsettled = Unsettled::new(Duration::from_secs(180));
        let [vm, other] = ["vm-1", "vm-2"].map(Ref::<VirtualMachine>::new);
        let (attach, detach, start) = (Change::Attach, Change::Detach, Instant::now());
        let is_free = |vm, volume, change, seconds| {
            unsettled.check_at(vm, volume, change, start + Duration::from_secs(seconds)).is_ok()
        };
        unsettled.note_at(&vm, "a", attach, start);
        assert!(!is_free(&vm, "a", detach, 0));
        assert!(is_free(&vm, "a", attach, 0) && is_free(&vm, "b", detach, 0));
        assert!(is_free(&other, "a", detach, 0));
        unsettled.note_at(&vm, "a", detach, start + Duration::from_secs(100));
        assert!(!is_free(&vm, "a", attach, 100));
        assert!(is_free(&vm, "a", detach, 181) && !is_free(&vm, "a", attach, 181));
        assert!(is_free(&vm, "a", attach, 281));
    }
}
