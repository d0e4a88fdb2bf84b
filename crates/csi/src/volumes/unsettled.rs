//! Attachments and detachments whose outcome is not known, and which vCenter may still carry out.
//!
//! When there is no answer, when the task is lost, or when CNS restarts and fails a task whose work goes on, a volume
//! may be attached or detached later than anybody expects. The devices of the VM show what is, not what will be: a
//! volume that is found detached may be attached a moment later, and nobody would detach it then. So for a while after
//! such an attempt the opposite is not confirmed. What other VMs have is not concerned.
//!
//! Kept in memory. The process that had a doubt may be gone, so the one that takes over the lease inherits a doubt about
//! every VolumeAttachment with an operation that another process may have begun ([`Unsettled::inherit`]).

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use vsphere::{reference::Ref, types::VirtualMachine};

use super::queue::Change;
use crate::refusal::{Kind, Refusal};

/// The server, the VM there, and what was attempted with which volume: vCenters give their VMs equal ids.
type Attempt = (String, Ref<VirtualMachine>, String, Change);

/// A VM of one vCenter.
#[derive(Debug, Clone, Copy)]
pub(super) struct VmAt<'a> {
    pub(super) server: &'a str,
    pub(super) vm: &'a Ref<VirtualMachine>,
    /// The id of its node, as the caller has it.
    pub(super) node: &'a str,
}

impl VmAt<'_> {
    fn attempt(self, volume: &str, change: Change) -> Attempt {
        (self.server.to_owned(), self.vm.clone(), volume.to_owned(), change)
    }
}

/// Attempts whose outcome is not known, with the time after which vCenter does not carry them out any more.
#[derive(Debug)]
pub(super) struct Unsettled {
    settle: Duration,
    attempts: Mutex<HashMap<Attempt, Instant>>,
    /// Those that other processes may have made, by node id and volume: the VM may not be known yet.
    inherited: Mutex<HashMap<(String, String, Change), Instant>>,
}

impl Unsettled {
    pub(super) fn new(settle: Duration) -> Self {
        Self { settle, attempts: Mutex::default(), inherited: Mutex::default() }
    }

    /// Notes an attempt that an earlier process may have made.
    pub(super) fn inherit(&self, node: &str, volume: &str, change: Change) {
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (node.to_owned(), volume.to_owned(), change);
        inherited.insert(key, Instant::now() + self.settle);
    }

    /// Notes an attempt that may still be carried out.
    pub(super) fn note(&self, vm: VmAt<'_>, volume: &str, change: Change) {
        self.note_at(vm, volume, change, Instant::now());
    }

    fn note_at(&self, vm: VmAt<'_>, volume: &str, change: Change, now: Instant) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.retain(|_, until| *until > now);
        attempts.insert(vm.attempt(volume, change), now + self.settle);
    }

    /// Refuses to confirm a change while the opposite may still be carried out.
    pub(super) fn check(&self, vm: VmAt<'_>, volume: &str, change: Change) -> Result<(), Refusal> {
        self.check_at(vm, volume, change, Instant::now())
    }

    fn check_at(
        &self,
        vm: VmAt<'_>,
        volume: &str,
        change: Change,
        now: Instant,
    ) -> Result<(), Refusal> {
        let (opposite, doing) = match change {
            Change::Attach => (Change::Detach, "detach"),
            Change::Detach => (Change::Attach, "attach"),
        };
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let own = attempts.get(&vm.attempt(volume, opposite)).copied();
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        inherited.retain(|_, until| *until > now);
        let others = inherited.get(&(vm.node.to_owned(), volume.to_owned(), opposite)).copied();
        if own.max(others).is_none_or(|until| until <= now) {
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
    use super::{Change, Duration, Instant, Ref, Unsettled, VirtualMachine, VmAt};

    #[test]
    fn only_the_opposite_on_the_same_vm_is_not_confirmed_for_a_while() {
        let unsettled = Unsettled::new(Duration::from_secs(180));
        let [vm, other] = ["vm-1", "vm-2"].map(Ref::<VirtualMachine>::new);
        let vm_of = |server| VmAt { server, vm: &vm, node: "node-1" };
        let (elsewhere, vm, other) =
            (vm_of("two"), vm_of("one"), VmAt { server: "one", vm: &other, node: "node-2" });
        let (attach, detach, start) = (Change::Attach, Change::Detach, Instant::now());
        let is_free = |vm, volume, change, seconds| {
            let now = start + Duration::from_secs(seconds);
            unsettled.check_at(vm, volume, change, now).is_ok()
        };
        unsettled.note_at(vm, "a", attach, start);
        assert!(!is_free(vm, "a", detach, 0));
        assert!(is_free(vm, "a", attach, 0) && is_free(vm, "b", detach, 0));
        assert!(is_free(other, "a", detach, 0) && is_free(elsewhere, "a", detach, 0));
        unsettled.note_at(vm, "a", detach, start + Duration::from_secs(100));
        assert!(!is_free(vm, "a", attach, 100));
        assert!(is_free(vm, "a", detach, 181) && !is_free(vm, "a", attach, 181));
        assert!(is_free(vm, "a", attach, 281));
    }

    #[test]
    fn what_another_process_may_have_begun_is_in_doubt_at_its_node_for_a_while() {
        let unsettled = Unsettled::new(Duration::from_secs(180));
        let vm = Ref::<VirtualMachine>::new("vm-1");
        unsettled.inherit("node-1", "a", Change::Detach);
        let start = Instant::now();
        let is_free = |node, volume, change, seconds| {
            let now = start + Duration::from_secs(seconds);
            unsettled.check_at(VmAt { server: "one", vm: &vm, node }, volume, change, now).is_ok()
        };
        assert!(!is_free("node-1", "a", Change::Attach, 0));
        assert!(is_free("node-2", "a", Change::Attach, 0), "it may move to another node");
        assert!(is_free("node-1", "b", Change::Attach, 0));
        assert!(is_free("node-1", "a", Change::Detach, 0));
        assert!(is_free("node-1", "a", Change::Attach, 181));
    }
}
