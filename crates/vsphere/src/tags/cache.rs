//! Which tag of a category an object has, for zones and regions.
//!
//! Read from the tags' side: one request tells all objects of all tags, so that a refresh costs the same for
//! ten objects as for ten thousand, and answers for objects that nobody knew of when it was made. Objects
//! that the user may not read are not in the answer; they have no tags here.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    connection::Connection,
    error::Error,
    reference::{IsA, Ref},
    types::ManagedEntity,
};

/// The tags of a few categories on all objects, remembered until somebody asks to read them again.
#[derive(Debug)]
pub struct TagCache {
    connection: Connection,
    categories: Vec<String>,
    known: Mutex<Option<Arc<TagMap>>>,
    /// Held while reading, so that those who need a first map wait for one read.
    reading: tokio::sync::Mutex<()>,
}

/// The tags on all objects at one moment.
#[derive(Debug, Default, PartialEq)]
pub struct TagMap {
    /// By object, then by category; names of tags in order.
    objects: HashMap<Ref<ManagedEntity>, BTreeMap<String, Vec<String>>>,
    missing: Vec<String>,
}

impl TagCache {
    /// A cache for the categories of these names. Nothing is read yet.
    pub fn new<Name: Into<String>>(
        connection: &Connection,
        categories: impl IntoIterator<Item = Name>,
    ) -> Self {
        Self {
            connection: connection.clone(),
            categories: categories.into_iter().map(Into::into).collect(),
            known: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// What was read last; reads if nothing was. Does not wait for a refresh.
    pub async fn get(&self) -> Result<Arc<TagMap>, Error> {
        if let Some(map) = self.known() {
            return Ok(map);
        }
        let _reading = self.reading.lock().await;
        match self.known() {
            Some(map) => Ok(map),
            None => self.read_and_keep().await,
        }
    }

    /// Reads again: a few requests, however many objects there are. If it fails, what was known stays.
    pub async fn refresh(&self) -> Result<Arc<TagMap>, Error> {
        let _reading = self.reading.lock().await;
        self.read_and_keep().await
    }

    fn known(&self) -> Option<Arc<TagMap>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn read_and_keep(&self) -> Result<Arc<TagMap>, Error> {
        let map = Arc::new(self.read().await?);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&map));
        Ok(map)
    }

    async fn read(&self) -> Result<TagMap, Error> {
        let tags = self.connection.tags();
        let mut map = TagMap::default();
        let categories = tags.categories().await?;
        // Tag id to the names of category and tag.
        let mut names = HashMap::new();
        for wanted in &self.categories {
            let Some(category) = categories.iter().find(|found| found.name == *wanted) else {
                map.missing.push(wanted.clone());
                continue;
            };
            for tag in tags.of_category(&category.id).await? {
                names.insert(tag.id, (wanted, tag.name));
            }
        }
        let ids: Vec<&str> = names.keys().map(String::as_str).collect();
        for (id, objects) in tags.objects(&ids).await? {
            let Some((category, name)) = names.get(&id) else { continue };
            for object in objects {
                let of_object = map.objects.entry(object).or_default();
                of_object.entry((*category).clone()).or_default().push(name.clone());
            }
        }
        for names in map.objects.values_mut().flat_map(BTreeMap::values_mut) {
            names.sort();
        }
        Ok(map)
    }
}

impl TagMap {
    /// The tags of a category on an object, in order of their names.
    pub fn on<K: IsA<ManagedEntity>>(&self, object: &Ref<K>, category: &str) -> &[String] {
        let of_object = self.objects.get(&object.upcast::<ManagedEntity>());
        of_object.and_then(|categories| categories.get(category)).map_or(&[], Vec::as_slice)
    }

    /// The tag of a category on the first of these objects that has one: with an object and its ancestors,
    /// nearest first, this is its zone or region. Of several tags on one object the first by name counts.
    pub fn nearest<'a, K: IsA<ManagedEntity>>(
        &self,
        objects: impl IntoIterator<Item = &'a Ref<K>>,
        category: &str,
    ) -> Option<&str> {
        let mut names = objects.into_iter().flat_map(|object| self.on(object, category));
        names.next().map(String::as_str)
    }

    /// Wanted categories that vCenter does not have, or does not show to this user.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }
}
