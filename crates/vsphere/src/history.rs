//! What vCenter recorded of VMs that do not exist any more: destroyed, or only taken out of the inventory.
//!
//! Nothing else tells the two apart. The event of a removed VM is the same for both, and an object that is gone
//! cannot be asked; but vCenter keeps the task of each, by the reference of its VM, which is never used again.
//! Only a task that succeeded, on the VM itself, proves something. VMs that went with a host or a folder, or to
//! another vCenter, leave no such task of their own: nothing is told of them, and nothing may be concluded.
//!
//! Tasks are asked for by time, because a filter by entity needs one that exists. A session has few collectors,
//! so each is destroyed after use, whatever happened.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use jiff::SignedDuration;

use crate::{
    connection::Connection,
    error::Error,
    reference::Ref,
    types::{
        CreateCollectorForTasks, DestroyCollector, ReadNextTasks, TaskFilterSpec,
        TaskFilterSpecByTime, TaskFilterSpecTimeOption, TaskHistoryCollector, TaskInfo,
        TaskInfoState, TaskManager, VirtualMachine,
    },
};

/// Tasks of one page; vCenter refuses more than a thousand.
const PAGE: i32 = 500;
/// Pages that are read before the rest of a busy time is left unread.
const MOST_PAGES: usize = 20;

/// How a VM was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// With its disks.
    Destroyed,
    /// From the inventory only: it may come back.
    Unregistered,
}

/// The records of one vCenter.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    connection: &'a Connection,
}

impl Connection {
    /// What vCenter recorded.
    pub fn history(&self) -> History<'_> {
        History { connection: self }
    }
}

impl History<'_> {
    /// How these VMs were removed, as far as that was within this time until now and the user sees it. VMs
    /// that nothing is told of are not in the answer.
    ///
    /// Await it to its end: a collector that is left to its session is one less for everybody who shares it.
    pub async fn removals(
        self,
        vms: &[Ref<VirtualMachine>],
        within: SignedDuration,
    ) -> Result<HashMap<Ref<VirtualMachine>, Removal>, Error> {
        if vms.is_empty() {
            return Ok(HashMap::new());
        }
        // By vCenter's clock, which need not be ours.
        let now = self.connection.time().await?;
        let time = TaskFilterSpecByTime {
            time_type: TaskFilterSpecTimeOption::CompletedTime,
            begin_time: now.checked_sub(within).ok(),
            end_time: None,
        };
        let filter = TaskFilterSpec { time: Some(time), state: vec![TaskInfoState::Success] };
        let manager = self.connection.content().await?.task_manager;
        let manager = manager.unwrap_or_else(|| Ref::<TaskManager>::new("TaskManager"));
        let collector = self.connection.call(&manager, &CreateCollectorForTasks { filter }).await?;
        let told = self.read(&collector, vms).await;
        // It ends with the session in any case; a failure to end it earlier is no failure to read.
        if let Err(error) = self.connection.call(&collector, &DestroyCollector {}).await {
            tracing::debug!(%error, "collector of tasks not destroyed");
        }
        told
    }

    /// Reads until all is told, from the oldest task on.
    async fn read(
        self,
        collector: &Ref<TaskHistoryCollector>,
        vms: &[Ref<VirtualMachine>],
    ) -> Result<HashMap<Ref<VirtualMachine>, Removal>, Error> {
        let wanted: HashSet<&Ref<VirtualMachine>> = vms.iter().collect();
        let mut told = HashMap::new();
        for _ in 0..MOST_PAGES {
            let page = self.connection.call(collector, &ReadNextTasks { max_count: PAGE }).await?;
            if page.is_empty() {
                break;
            }
            let removals = page.iter().filter_map(removal);
            told.extend(removals.filter(|(vm, _)| wanted.contains(vm)));
            if told.len() == wanted.len() {
                break;
            }
        }
        Ok(told)
    }
}

/// The VM that a task removed, and how.
fn removal(task: &TaskInfo) -> Option<(Ref<VirtualMachine>, Removal)> {
    // The filter says so already; deleting what exists because a server ignored it would be too bad.
    if task.state != TaskInfoState::Success {
        return None;
    }
    let removal = match task.description_id.as_str() {
        "VirtualMachine.destroy" => Removal::Destroyed,
        "VirtualMachine.unregister" => Removal::Unregistered,
        _ => return None,
    };
    Some((task.entity.as_ref()?.cast()?, removal))
}
