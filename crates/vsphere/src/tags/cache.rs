//! Which tag of a category an object has, for zones and regions.
//!
//! Read from the tags' side: one request returns all objects of all tags, so that a refresh costs the same for
//! ten objects as for ten thousand, and has the objects that were unknown before. Objects
//! that the user may not read are not in the answer; they have no tags here.
//!
//! Names cost a request each and hardly ever change, so they are read once an hour; which tags there are and
//! where they are attached is read every time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use super::Tag;
use crate::{
    connection::Connection,
    error::Error,
    reference::{IsA, Ref},
    types::ManagedEntity,
};

/// How long names are believed.
const NAMES_FOR: Duration = Duration::from_secs(3600);

/// Reads the tags of a few categories on all objects, again and again.
#[derive(Debug)]
pub struct TagCache {
    connection: Connection,
    categories: Vec<String>,
    names: Names,
}

/// What categories and tags are called.
#[derive(Debug, Default)]
struct Names {
    read_at: Option<Instant>,
    /// The ids of the wanted categories, by name.
    categories: HashMap<String, String>,
    /// The names of their tags, by id.
    tags: HashMap<String, String>,
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
            names: Names::default(),
        }
    }

    /// Reads what there is now: a few requests, however many objects there are.
    pub async fn refresh(&mut self) -> Result<Arc<TagMap>, Error> {
        // A category that was deleted is an error at first, and missing when its name is read again.
        let mut names = std::mem::take(&mut self.names);
        let map = self.read(&mut names).await?;
        self.names = names;
        Ok(Arc::new(map))
    }

    async fn read(&self, names: &mut Names) -> Result<TagMap, Error> {
        let tags = self.connection.tags();
        let mut map = TagMap::default();
        self.name_categories(names).await?;
        // Tag id to the names of category and tag.
        let mut wanted_tags = HashMap::new();
        for wanted in &self.categories {
            let Some(category) = names.categories.get(wanted) else {
                map.missing.push(wanted.clone());
                continue;
            };
            let ids = tags.ids_of_category(category).await?;
            let unnamed = ids.iter().filter(|id| !names.tags.contains_key(*id)).cloned().collect();
            let new: Vec<Tag> = tags.each("tag.get", unnamed).await?;
            names.tags.extend(new.into_iter().map(|tag| (tag.id, tag.name)));
            // One without a name was deleted meanwhile.
            let named = ids.into_iter().filter_map(|id| names.tags.get_key_value(&id));
            wanted_tags
                .extend(named.map(|(id, name)| (id.clone(), (wanted.clone(), name.clone()))));
        }
        let ids: Vec<&str> = wanted_tags.keys().map(String::as_str).collect();
        for (id, objects) in tags.objects(&ids).await? {
            let Some((category, name)) = wanted_tags.get(&id) else { continue };
            for object in objects {
                let of_object = map.objects.entry(object).or_default();
                of_object.entry(category.clone()).or_default().push(name.clone());
            }
        }
        for names in map.objects.values_mut().flat_map(BTreeMap::values_mut) {
            names.sort();
        }
        Ok(map)
    }

    /// Reads which ids the wanted categories have, when that was long ago or one is missing.
    async fn name_categories(&self, names: &mut Names) -> Result<(), Error> {
        let fresh = names.read_at.is_some_and(|at| at.elapsed() < NAMES_FOR);
        if fresh && self.categories.iter().all(|wanted| names.categories.contains_key(wanted)) {
            return Ok(());
        }
        let found = self.connection.tags().categories().await?;
        let wanted = found.into_iter().filter(|one| self.categories.contains(&one.name));
        names.categories = wanted.map(|category| (category.name, category.id)).collect();
        if !fresh {
            names.tags.clear();
            names.read_at = Some(Instant::now());
        }
        Ok(())
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
