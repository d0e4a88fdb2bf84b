//! An object of the API of which only some fields are read. Everything else is skipped while it is deserialised.

use std::{borrow::Cow, collections::BTreeMap, fmt::Debug, sync::Arc};

use kube::{Resource, api::ObjectMeta, core::ClusterResourceScope};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny},
};

use crate::attach::FINALIZER;

/// What is kept of a kind of object.
pub(crate) trait Kept: Clone + Debug + PartialEq + Send + Sync + 'static {
    type Object: Resource<DynamicType = (), Scope = ClusterResourceScope>;
    type Spec: DeserializeOwned + Default;
    type Status: DeserializeOwned + Default;

    /// `None` if the object is not of this driver.
    fn read(metadata: Metadata, spec: Self::Spec, status: Self::Status) -> Option<Self>;

    /// What the object is found by, besides its name.
    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }
}

/// What a VolumeAttachment refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Node(Arc<str>),
    Volume(Arc<str>),
}

/// An object as the API returns it.
#[derive(Debug, Clone)]
pub(crate) struct Trimmed<T> {
    /// Name, uid and resource version.
    metadata: ObjectMeta,
    pub(crate) kept: Option<T>,
}

impl<T> Trimmed<T> {
    pub(crate) fn name(&self) -> Arc<str> {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
impl<T> Trimmed<T> {
    pub(crate) fn of(name: &str, uid: &str, version: u64, kept: T) -> Self {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        Self { metadata, kept: Some(kept) }
    }
}

impl<'de, T: Kept> Deserialize<'de> for Trimmed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Parts<S, U> {
            metadata: Metadata,
            #[serde(default)]
            spec: S,
            #[serde(default)]
            status: U,
        }
        let parts = Parts::<T::Spec, T::Status>::deserialize(deserializer)?;
        let metadata = ObjectMeta {
            name: Some(parts.metadata.name.clone()),
            uid: Some(parts.metadata.uid.clone()),
            resource_version: Some(parts.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, kept: T::read(parts.metadata, parts.spec, parts.status) })
    }
}

impl<T: Kept> Resource for Trimmed<T> {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(of: &()) -> Cow<'_, str> {
        T::Object::kind(of)
    }

    fn group(of: &()) -> Cow<'_, str> {
        T::Object::group(of)
    }

    fn version(of: &()) -> Cow<'_, str> {
        T::Object::version(of)
    }

    fn plural(of: &()) -> Cow<'_, str> {
        T::Object::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<IgnoredAny>,
    pub(super) finalizers: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// Whether the stock attacher's finalizer is there.
    pub(super) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == FINALIZER)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}
