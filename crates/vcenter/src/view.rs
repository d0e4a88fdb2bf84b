//! What callers hold of a followed vCenter: its current snapshot, and what changed since they last looked.

use std::{collections::BTreeSet, future::pending, sync::Arc};

use cloud_config::{Inline, Login};
use tokio::sync::watch;
use vsphere::{reference::Ref, types::VirtualMachine};

use crate::{Snapshot, credentials};

/// What changed between two looks at a [`View`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Health, folders, hosts, tags, or so much that it is not listed.
    Everything,
    /// These VMs entered, left, or their properties or guests changed; nothing else did.
    Vms(BTreeSet<Ref<VirtualMachine>>),
}

/// The state that followers write and views read.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) snapshot: Arc<Snapshot>,
    /// What the view has not taken yet.
    pending: Option<Change>,
    /// How many changes were reported.
    revision: u64,
}

/// One vCenter as its follower publishes it.
#[derive(Debug)]
pub struct View {
    state: Arc<watch::Sender<Published>>,
    changes: watch::Receiver<Published>,
    guests: watch::Sender<BTreeSet<Ref<VirtualMachine>>>,
    /// Where credentials go that stand in the configuration.
    inline: Option<credentials::Sender>,
}

/// The follower's side of a [`View`].
#[derive(Debug, Clone)]
pub(crate) struct Publisher {
    state: Arc<watch::Sender<Published>>,
    pub(crate) selected: watch::Receiver<BTreeSet<Ref<VirtualMachine>>>,
}

impl Publisher {
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state.borrow().snapshot)
    }

    /// Changes the snapshot; what others hold of it stays as it was. `edit` returns what the view is to report.
    pub(crate) fn update(&self, edit: impl FnOnce(&mut Snapshot) -> Option<Change>) {
        self.state.send_modify(|published| {
            let change = edit(Arc::make_mut(&mut published.snapshot));
            published.revision += u64::from(change.is_some());
            published.pending = match (published.pending.take(), change) {
                (Some(Change::Vms(known)), Some(Change::Vms(more))) => {
                    Some(Change::Vms(known.into_iter().chain(more).collect()))
                }
                (Some(_), Some(_)) => Some(Change::Everything),
                (known, change) => known.or(change),
            };
        });
    }
}

pub(crate) fn view(first: Snapshot, inline: Option<credentials::Sender>) -> (Publisher, View) {
    let (state, changes) =
        watch::channel(Published { snapshot: Arc::new(first), pending: None, revision: 0 });
    let (guests, selected) = watch::channel(BTreeSet::new());
    let state = Arc::new(state);
    let view = View { state: Arc::clone(&state), changes, guests, inline };
    (Publisher { state, selected }, view)
}

/// When a vCenter changed, for those who look at everything then. What a [`View`] reports is not taken from it.
#[derive(Debug)]
pub struct Changes {
    states: watch::Receiver<Published>,
    seen: u64,
}

impl Changes {
    /// Returns when health, folders, hosts, tags or VMs changed since the last call. Cancel safe; pending forever when
    /// the follower has ended.
    pub async fn changed(&mut self) {
        let seen = self.seen;
        let changed = self.states.wait_for(|state| state.revision != seen).await;
        match changed.map(|state| state.revision) {
            Ok(revision) => self.seen = revision,
            Err(_) => pending().await,
        }
    }
}

impl View {
    /// The current state; never waits.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.changes.borrow().snapshot)
    }

    /// Everything that changed since the last call of this or of [`take_changes`](Self::take_changes), as soon
    /// as there is something. Cancel safe; pending forever when the follower has ended.
    pub async fn changed(&mut self) -> Change {
        loop {
            self.changes.mark_unchanged();
            if let Some(change) = self.take_changes() {
                return change;
            }
            if self.changes.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Everything that changed since the last call; `None` when nothing did.
    pub fn take_changes(&mut self) -> Option<Change> {
        let mut taken = None;
        self.state.send_if_modified(|state| {
            taken = state.pending.take();
            false
        });
        taken
    }

    /// Sets whose guests are followed: `guest.net`, network cards and cloud-init metadata.
    pub fn select_guests(&self, vms: BTreeSet<Ref<VirtualMachine>>) {
        send_if_different(&self.guests, vms);
    }

    /// Replaces credentials that stand in the configuration. A session that works stays in use until the new ones do.
    /// Without effect for credentials that come from elsewhere.
    pub fn replace_inline(&self, login: &Inline) {
        if let Some(sender) = &self.inline {
            send_if_different(sender, Ok(Login::Password(login.clone())));
        }
    }

    /// When it changes from now on.
    pub fn changes(&self) -> Changes {
        let (states, seen) = (self.changes.clone(), self.changes.borrow().revision);
        Changes { states, seen }
    }

    /// The snapshots as a channel, for those who need no list of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Published> {
        self.changes.clone()
    }
}

pub(crate) fn send_if_different<T: PartialEq>(channel: &watch::Sender<T>, value: T) {
    channel.send_if_modified(|known| {
        let differs = *known != value;
        *known = value;
        differs
    });
}
