//! What is planned next, and what is planned when its time has come.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

/// Names, each once, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    order: VecDeque<Arc<str>>,
    queued: HashSet<Arc<str>>,
}

impl Queue {
    pub(crate) fn push(&mut self, name: Arc<str>) {
        if self.queued.insert(Arc::clone(&name)) {
            self.order.push_back(name);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Arc<str>> {
        let name = self.order.pop_front()?;
        self.queued.remove(&name);
        Some(name)
    }
}

/// Names with a time, one each.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Instant, Arc<str>)>,
    by_name: HashMap<Arc<str>, Instant>,
}

impl Timers {
    /// Sets the time of a name, or removes it.
    pub(crate) fn set(&mut self, name: &Arc<str>, at: Option<Instant>) {
        if let Some(before) = self.by_name.remove(name) {
            self.by_time.remove(&(before, Arc::clone(name)));
        }
        if let Some(at) = at {
            self.by_name.insert(Arc::clone(name), at);
            self.by_time.insert((at, Arc::clone(name)));
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<Arc<str>> {
        let (_, name) = self.by_time.first().filter(|(at, _)| *at <= now)?.clone();
        self.set(&name, None);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Arc, Instant, Queue, Timers};

    #[test]
    fn a_name_is_queued_once_and_again_when_it_was_taken() {
        let mut queue = Queue::default();
        for name in ["a", "b", "a"] {
            queue.push(name.into());
        }
        assert_eq!(queue.pop().as_deref(), Some("a"));
        queue.push("a".into());
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, ["b".into(), Arc::<str>::from("a")]);
    }

    #[test]
    fn a_name_has_the_time_that_was_set_last() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let (name, second) = (Arc::<str>::from("a"), Duration::from_secs(1));
        timers.set(&name, Some(now));
        timers.set(&name, Some(now + second));
        assert_eq!((timers.pop(now), timers.next()), (None, Some(now + second)));
        assert_eq!(timers.pop(now + second), Some(name));
        assert_eq!(timers.next(), None);
    }
}
