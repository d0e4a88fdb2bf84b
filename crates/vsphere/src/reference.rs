//! References to managed objects, typed by the kind of object they point to.

use std::{fmt, hash::Hash, marker::PhantomData, sync::Arc};

use crate::xml::{Element, FromXml, Malformed, Reader, ToXml, Writer};

/// A kind of managed object, such as [`VirtualMachine`](crate::types::VirtualMachine).
pub trait Kind: Copy + Ord + Hash + 'static {
    /// Its name on the wire.
    const NAME: &'static str;
}

/// A kind is itself and each of its ancestors: a reference to a VM serves where any entity is wanted.
pub trait IsA<Ancestor: Kind>: Kind {}

impl<K: Kind> IsA<K> for K {}

/// A reference to a managed object of kind `K`: `vm-42`.
///
/// The server may know the object as something more special than `K`; [`kind`](Self::kind) is what it is, and
/// [`cast`](Self::cast) turns the reference into one of that kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref<K> {
    /// Only when it is not `K` itself: equal references have equal fields, and nearly all need no second text.
    special: Option<Arc<str>>,
    value: Arc<str>,
    of: PhantomData<fn() -> K>,
}

impl<K: Kind> Ref<K> {
    /// The reference with this value, as vCenter's logs and URLs show it.
    pub fn new(value: &str) -> Self {
        Self { special: None, value: value.into(), of: PhantomData }
    }

    /// A reference to an object of the kind that the server named.
    pub fn with_kind(kind: &str, value: &str) -> Self {
        let special = (kind != K::NAME && !kind.is_empty()).then(|| kind.into());
        Self { special, value: value.into(), of: PhantomData }
    }

    /// The kind of the object as the server knows it.
    pub fn kind(&self) -> &str {
        self.special.as_deref().unwrap_or(K::NAME)
    }

    /// The value: `vm-42`.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The same reference as one to an ancestor kind.
    pub fn upcast<Ancestor: Kind>(&self) -> Ref<Ancestor>
    where
        K: IsA<Ancestor>,
    {
        self.assume()
    }

    /// The same reference as one to kind `Other`, if that is what the object is.
    pub fn cast<Other: Kind>(&self) -> Option<Ref<Other>> {
        (self.kind() == Other::NAME).then(|| self.assume())
    }

    fn assume<Other: Kind>(&self) -> Ref<Other> {
        let special = match &self.special {
            Some(kind) if **kind == *Other::NAME => None,
            Some(kind) => Some(Arc::clone(kind)),
            None if K::NAME == Other::NAME => None,
            None => Some(K::NAME.into()),
        };
        Ref { special, value: Arc::clone(&self.value), of: PhantomData }
    }
}

/// The reference that points nowhere; generated types need it before they are read.
impl<K: Kind> Default for Ref<K> {
    fn default() -> Self {
        Self::new("")
    }
}

impl<K: Kind> fmt::Debug for Ref<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.value)
    }
}

impl<K: Kind> fmt::Display for Ref<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.value)
    }
}

impl<K: Kind> FromXml for Ref<K> {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let value = reader.text(element)?;
        Ok(Self::with_kind(&element.kind().unwrap_or_default(), &value))
    }
}

impl<K: Kind> ToXml for Ref<K> {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        writer.open_with(name, &[("type", self.kind())]);
        writer.escaped(&self.value);
        writer.close(name);
    }
}
