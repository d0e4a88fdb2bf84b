//! The objects of one kind as the API server last reported them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use kube::{
    Resource,
    runtime::watcher::{self, Event},
};
use tracing::warn;

use super::object::{Kept, Key, Trimmed};

/// An event of a watch; `None` when it ended.
pub(crate) type WatchEvent<T> = Option<Result<Event<Trimmed<T>>, watcher::Error>>;

/// An object that exists.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known<T> {
    pub(crate) uid: String,
    /// The resource version.
    pub(crate) version: String,
    pub(crate) value: T,
}

pub(crate) struct Store<T> {
    known: HashMap<Arc<str>, Known<T>>,
    /// Objects of a list that is not complete yet.
    incoming: Vec<Trimmed<T>>,
    synced: bool,
    by_key: HashMap<Key, BTreeSet<Arc<str>>>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        let (known, by_key) = (HashMap::new(), HashMap::new());
        Self { known, incoming: Vec::new(), synced: false, by_key }
    }
}

impl<T: Kept> Store<T> {
    /// Takes in an event. Returns the objects that are new, different or gone because of it, each with what it was.
    pub(crate) fn take(&mut self, event: WatchEvent<T>) -> Vec<(Arc<str>, Option<T>)> {
        match event {
            Some(Ok(Event::Init)) => self.incoming.clear(),
            Some(Ok(Event::InitApply(object))) if object.kept.is_none() => {}
            Some(Ok(Event::InitApply(object))) => self.incoming.push(object),
            Some(Ok(Event::InitDone)) => return self.replace_all(),
            Some(Ok(Event::Apply(object))) => return self.insert(object).into_iter().collect(),
            Some(Ok(Event::Delete(object))) => {
                return self.remove(&object.name()).into_iter().collect();
            }
            Some(Err(error)) => {
                let kind = Trimmed::<T>::kind(&());
                warn!(%kind, %error, "watch failed; retrying");
            }
            None => {}
        }
        Vec::new()
    }

    fn replace_all(&mut self) -> Vec<(Arc<str>, Option<T>)> {
        let listed = std::mem::take(&mut self.incoming);
        let names: BTreeSet<Arc<str>> = listed.iter().map(Trimmed::name).collect();
        let gone = self.known.keys().filter(|name| !names.contains(*name)).cloned();
        let gone: Vec<Arc<str>> = gone.collect();
        let mut changed: Vec<_> = gone.iter().filter_map(|name| self.remove(name)).collect();
        changed.extend(listed.into_iter().filter_map(|object| self.insert(object)));
        self.synced = true;
        changed
    }

    /// Keeps the newer of two states: the result of our own write arrives before its watch event.
    fn insert(&mut self, object: Trimmed<T>) -> Option<(Arc<str>, Option<T>)> {
        let name = object.name();
        let (uid, version) = (object.uid().to_owned(), object.version().to_owned());
        let Some(value) = object.kept else { return self.remove(&name) };
        let known = self.known.get(&name).filter(|known| known.uid == uid);
        if known.is_some_and(|known| number(&known.version) > number(&version)) {
            return None;
        }
        let changed = known.is_none_or(|known| known.value != value);
        let keys = value.keys();
        let before = self.known.insert(Arc::clone(&name), Known { uid, version, value });
        if changed {
            for key in before.iter().flat_map(|known| known.value.keys()) {
                self.unindex(&key, &name);
            }
            for key in keys {
                self.by_key.entry(key).or_default().insert(Arc::clone(&name));
            }
        }
        changed.then(|| (name, before.map(|known| known.value)))
    }

    /// Takes in the result of our own write, or of a read. An object that was deleted meanwhile, or made anew, stays
    /// so.
    pub(crate) fn learn(&mut self, object: Trimmed<T>) {
        let known = self.known.get(&object.name());
        if known.is_some_and(|known| known.uid == object.uid()) {
            self.insert(object);
        }
    }

    fn remove(&mut self, name: &str) -> Option<(Arc<str>, Option<T>)> {
        let (name, known) = self.known.remove_entry(name)?;
        for key in known.value.keys() {
            self.unindex(&key, &name);
        }
        Some((name, Some(known.value)))
    }

    fn unindex(&mut self, key: &Key, name: &Arc<str>) {
        if let Some(names) = self.by_key.get_mut(key) {
            names.remove(name);
            if names.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Known<T>> {
        self.known.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Known<T>)> {
        self.known.iter()
    }

    /// The objects that refer to this.
    pub(crate) fn with_key(&self, key: &Key) -> impl Iterator<Item = &Arc<str>> + use<'_, T> {
        self.by_key.get(key).into_iter().flatten()
    }
}

/// The larger of two is the newer.
fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::{Key, Store, Trimmed};
    use crate::attach::observe::trimmed::Attachment;

    fn attachment(version: u64, attached: bool) -> Trimmed<Attachment> {
        let spec = json!({"attacher": "csi.vsphere.vmware.com", "nodeName": "node-1",
            "source": {"persistentVolumeName": "pv-1"}});
        let metadata =
            json!({"name": "csi-1", "uid": "u-1", "resourceVersion": version.to_string()});
        let object = json!({"metadata": metadata, "spec": spec, "status": {"attached": attached}});
        serde_json::from_value(object).unwrap()
    }

    fn listed() -> Store<Attachment> {
        let mut store = Store::default();
        assert!(store.take(Some(Ok(Event::Init))).is_empty());
        assert!(store.take(Some(Ok(Event::InitApply(attachment(1, false))))).is_empty());
        assert!(!store.is_synced());
        assert_eq!(store.take(Some(Ok(Event::InitDone))).len(), 1);
        assert!(store.is_synced());
        store
    }

    #[test]
    fn the_watch_event_of_our_own_write_is_not_a_change() {
        let mut store = listed();
        store.learn(attachment(3, true));
        for (version, attached) in [(2, false), (3, true), (4, true)] {
            let event = Some(Ok(Event::Apply(attachment(version, attached))));
            assert!(store.take(event).is_empty(), "{version}");
        }
        assert_eq!(store.get("csi-1").unwrap().version, "4");
        let changed = store.take(Some(Ok(Event::Apply(attachment(5, false)))));
        assert!(changed[0].1.as_ref().unwrap().attached, "what it was is returned");
    }

    #[test]
    fn a_write_that_returns_after_the_deletion_does_not_bring_the_object_back() {
        let mut store = listed();
        assert_eq!(store.take(Some(Ok(Event::Delete(attachment(2, false))))).len(), 1);
        store.learn(attachment(3, true));
        assert!(store.get("csi-1").is_none());
    }

    #[test]
    fn what_a_new_list_lacks_is_gone_with_its_keys() {
        let mut store = listed();
        let key = Key::Volume("pv-1".into());
        assert_eq!(store.with_key(&key).count(), 1);
        store.take(Some(Ok(Event::Init)));
        assert_eq!(store.take(Some(Ok(Event::InitDone))).len(), 1);
        assert_eq!((store.iter().count(), store.with_key(&key).count()), (0, 0));
    }
}
