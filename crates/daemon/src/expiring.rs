//! A map of bounded size whose entries expire.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Expiring<K, V> {
    entries: HashMap<K, (V, Instant)>,
    capacity: usize,
}

impl<K: Eq + Hash, V> Expiring<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), capacity }
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (value, until) = self.entries.get_mut(key)?;
        (Instant::now() < *until).then_some(value)
    }

    /// When the map is full of entries that have not expired, all are forgotten: what they saved is done again.
    pub(crate) fn insert(&mut self, key: K, value: V, ttl: Duration) {
        let now = Instant::now();
        if self.entries.len() >= self.capacity {
            self.entries.retain(|_, (_, until)| now < *until);
        }
        if self.entries.len() >= self.capacity {
            self.entries.clear();
        }
        self.entries.insert(key, (value, now + ttl));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_expires_and_the_map_stays_bounded() {
        const CAPACITY: usize = 100;
        let mut map = Expiring::new(CAPACITY);
        map.insert(0, "short", Duration::ZERO);
        assert_eq!(map.get_mut(&0), None);
        for key in 0..3 * CAPACITY {
            map.insert(key, "long", Duration::from_secs(3600));
        }
        assert!(map.entries.len() <= CAPACITY);
        assert_eq!(map.get_mut(&(3 * CAPACITY - 1)), Some(&mut "long"));
    }
}
