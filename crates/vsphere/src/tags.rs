//! Tags on objects of the inventory, which name zones and regions.
//!
//! Hides that tags live behind another API than everything else, with a session of its own and in one of two
//! dialects. [`TagCache`] is for programs that only need the zones of objects.
//!
//! Deliberately absent: changing and deleting tags and categories, which is left to people.

mod cache;
mod rest;
mod session;

use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

pub use self::cache::{TagCache, TagMap};
use self::rest::{Request, TAGS_OF_CATEGORY};
pub(crate) use self::session::TagSession;
use crate::{
    connection::Connection,
    error::{Error, Remedy},
    reference::{IsA, Ref},
    types::ManagedEntity,
};

/// Objects or tags of one request.
const MOST: usize = 500;
/// Requests at once: names come one by one.
const AT_ONCE: usize = 8;

/// A category of tags.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Category {
    /// Its id: `urn:vmomi:InventoryServiceCategory:…`.
    pub id: String,
    /// Its name, which is unique.
    pub name: String,
    /// What people wrote about it.
    #[serde(default)]
    pub description: String,
    /// How many of its tags an object may have.
    pub cardinality: Cardinality,
    /// The kinds of objects that may have them; none means all.
    #[serde(default)]
    pub associable_types: Vec<String>,
}

/// How many tags of a category an object may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Cardinality {
    /// One at most.
    Single,
    /// Any number.
    Multiple,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tag {
    /// Its id: `urn:vmomi:InventoryServiceTag:…`.
    pub id: String,
    /// Its name, which is unique in its category.
    pub name: String,
    /// What people wrote about it.
    #[serde(default)]
    pub description: String,
    /// The id of its category.
    pub category_id: String,
}

/// The tags of a vCenter, as a connection sees them.
#[derive(Debug, Clone, Copy)]
pub struct Tags<'a> {
    connection: &'a Connection,
}

impl Connection {
    /// The tags.
    pub fn tags(&self) -> Tags<'_> {
        Tags { connection: self }
    }
}

/// An object as the REST API writes it.
#[derive(Debug, Serialize, Deserialize)]
struct ObjectId {
    id: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Tags<'_> {
    /// All categories that the user may see.
    pub async fn categories(self) -> Result<Vec<Category>, Error> {
        let ids = self.send(Request::get("category.list", None)).await?;
        self.each("category.get", ids).await
    }

    /// The tags of a category, by the category's id.
    pub async fn of_category(self, category: &str) -> Result<Vec<Tag>, Error> {
        let ids = self.ids_of_category(category).await?;
        self.each("tag.get", ids).await
    }

    /// The ids of the tags of a category, which is one request.
    async fn ids_of_category(self, category: &str) -> Result<Vec<String>, Error> {
        let body = json!({ "category_id": category });
        self.send(Request::action("tag.list", Some(category), TAGS_OF_CATEGORY, body)).await
    }

    /// The ids of the tags on each of these objects. One that is unknown, or that the user may not read, makes
    /// vCenter refuse the whole question.
    pub async fn on<K: IsA<ManagedEntity>>(
        self,
        objects: &[Ref<K>],
    ) -> Result<Vec<(Ref<ManagedEntity>, Vec<String>)>, Error> {
        #[derive(Deserialize)]
        struct Found {
            object_id: ObjectId,
            tag_ids: Vec<String>,
        }
        let mut all = Vec::with_capacity(objects.len());
        for chunk in objects.chunks(MOST) {
            let ids: Vec<_> = chunk.iter().map(ObjectId::new).collect();
            let body = json!({ "object_ids": ids });
            let list = "list-attached-tags-on-objects";
            let request = Request::action("tag-association.list", None, list, body);
            let found: Vec<Found> = self.send(request).await?;
            all.extend(found.into_iter().map(|found| (found.object_id.reference(), found.tag_ids)));
        }
        Ok(all)
    }

    /// The objects of each of these tags, by the tags' ids, as far as the user may read them.
    pub async fn objects(
        self,
        tags: &[&str],
    ) -> Result<Vec<(String, Vec<Ref<ManagedEntity>>)>, Error> {
        #[derive(Deserialize)]
        struct Found {
            tag_id: String,
            object_ids: Vec<ObjectId>,
        }
        let mut all = Vec::with_capacity(tags.len());
        for chunk in tags.chunks(MOST) {
            let body = json!({ "tag_ids": chunk });
            let list = "list-attached-objects-on-tags";
            let request = Request::action("tag-association.list", None, list, body);
            let found: Vec<Found> = self.send(request).await?;
            all.extend(found.into_iter().map(|found| {
                (found.tag_id, found.object_ids.iter().map(ObjectId::reference).collect())
            }));
        }
        Ok(all)
    }

    /// Creates a category for objects of these kinds (none means all) and returns its id.
    pub async fn create_category(
        self,
        name: &str,
        description: &str,
        cardinality: Cardinality,
        kinds: &[&str],
    ) -> Result<String, Error> {
        let spec = json!({
            "name": name,
            "description": description,
            "cardinality": cardinality,
            "associable_types": kinds,
        });
        self.send(Request::create("category.create", spec)).await
    }

    /// Creates a tag in a category, by the category's id, and returns the tag's id.
    pub async fn create_tag(
        self,
        category: &str,
        name: &str,
        description: &str,
    ) -> Result<String, Error> {
        let spec = json!({ "name": name, "description": description, "category_id": category });
        self.send(Request::create("tag.create", spec)).await
    }

    /// Reads many things of a kind, a few at a time, in order. What was deleted meanwhile is left out.
    async fn each<T: DeserializeOwned>(
        self,
        name: &'static str,
        ids: Vec<String>,
    ) -> Result<Vec<T>, Error> {
        let reads = ids.into_iter().map(|id| async move {
            match self.send(Request::get(name, Some(&id))).await {
                Ok(found) => Ok(Some(found)),
                Err(Error { remedy: Remedy::NotFound { .. }, .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        stream::iter(reads)
            .buffered(AT_ONCE)
            .try_filter_map(async |found| Ok(found))
            .try_collect()
            .await
    }

    async fn send<T: DeserializeOwned>(self, request: Request) -> Result<T, Error> {
        self.connection.tag_session().send(self.connection, &request).await
    }
}

impl ObjectId {
    fn new<K: IsA<ManagedEntity>>(object: &Ref<K>) -> Self {
        Self { id: object.value().to_owned(), kind: object.kind().to_owned() }
    }

    fn reference(&self) -> Ref<ManagedEntity> {
        Ref::with_kind(&self.kind, &self.id)
    }
}
