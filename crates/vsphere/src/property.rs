//! Reading properties of many objects with few requests.
//!
//! A struct declared with [`object!`](crate::object) names the properties it wants; the same struct is read
//! once with [`Connection::list`] and [`Connection::read`] and followed with a [`Collector`](crate::collector).

use std::sync::Arc;

use crate::{
    connection::Connection,
    error::Error,
    fault::Fault,
    held::Held,
    login::Established,
    reference::{IsA, Kind, Ref},
    soap::Service,
    types::{
        AnySelectionSpec, CancelRetrievePropertiesEx, ContinueRetrievePropertiesEx, ManagedEntity,
        ManagedObject, ObjectSpec, PropertyCollector, PropertyFilterSpec, PropertySpec,
        RetrieveOptions, RetrievePropertiesEx, TraversalSpec, View,
    },
    xml::{Element, FromXml, Malformed, Method, Reader, data},
};

/// Objects of one page: what is buffered at once is bounded by it.
const PAGE: i32 = 250;
/// References of one request.
const MOST_REFERENCES: usize = 1000;

/// A kind of object and the properties that are wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The kind; objects of its subtypes are wanted too.
    pub kind: &'static str,
    /// Property paths such as `runtime.powerState`.
    pub paths: &'static [&'static str],
}

data! {
    /// A property that vCenter did not report, and why: usually `NoPermission`.
    Unreadable {
        path: String = "path",
        fault: Fault = "fault",
    }
}

/// A selection of properties of one or several kinds of objects. Declare it with [`object!`](crate::object)
/// or [`objects!`](crate::objects).
pub trait Object: Sized + Send + 'static {
    /// What is wanted.
    fn wanted() -> Vec<Wanted>;
    /// The object before any property was read; `None` for a kind that is not wanted.
    fn begin(reference: &Ref<ManagedObject>) -> Option<Self>;
    /// Which object it is.
    fn reference(&self) -> Ref<ManagedObject>;
    /// Reads the value of a property.
    fn assign(
        &mut self,
        path: &str,
        reader: &mut Reader<'_>,
        value: &Element<'_>,
    ) -> Result<(), Malformed>;
    /// Moves a property here from another state of the same object.
    fn take(&mut self, path: &str, from: &mut Self);
    /// What vCenter did not report.
    fn unreadable(&mut self) -> &mut Vec<Unreadable>;
}

/// Declares a struct with properties of one kind of managed object.
///
/// ```
/// use vsphere::{object, types::VirtualMachine};
///
/// object! {
///     /// The name of a VM.
///     pub struct Named: VirtualMachine {
///         /// What the user sees.
///         pub name: String = "name",
///         /// As the guest reports it, when it does.
///         pub host_name: Option<String> = "guest.hostName",
///     }
/// }
/// ```
#[macro_export]
macro_rules! object {
    ($(#[$meta:meta])* $vis:vis struct $name:ident : $kind:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty = $path:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        $vis struct $name {
            /// The object itself.
            $vis reference: $crate::reference::Ref<$kind>,
            $($(#[$field_meta])* $field_vis $field: $type,)*
            /// Properties that vCenter did not report, with the reason.
            $vis unreadable: Vec<$crate::property::Unreadable>,
        }

        impl $crate::property::Object for $name {
            fn wanted() -> Vec<$crate::property::Wanted> {
                let kind = <$kind as $crate::reference::Kind>::NAME;
                vec![$crate::property::Wanted { kind, paths: &[$($path),*] }]
            }

            fn begin(
                reference: &$crate::reference::Ref<$crate::types::ManagedObject>,
            ) -> Option<Self> {
                let reference = $crate::reference::Ref::with_kind(reference.kind(), reference.value());
                Some(Self { reference, ..Self::default() })
            }

            fn reference(&self) -> $crate::reference::Ref<$crate::types::ManagedObject> {
                $crate::reference::Ref::with_kind(self.reference.kind(), self.reference.value())
            }

            fn assign(
                &mut self,
                path: &str,
                reader: &mut $crate::xml::Reader<'_>,
                value: &$crate::xml::Element<'_>,
            ) -> Result<(), $crate::xml::Malformed> {
                match path {
                    $($path => self.$field = $crate::xml::Field::property(reader, value)?,)*
                    _ => {}
                }
                Ok(())
            }

            fn take(&mut self, path: &str, from: &mut Self) {
                match path {
                    $($path => self.$field = std::mem::take(&mut from.$field),)*
                    _ => {}
                }
            }

            fn unreadable(&mut self) -> &mut Vec<$crate::property::Unreadable> {
                &mut self.unreadable
            }
        }
    };
}

/// Declares an enum over structs of [`object!`], to read or watch several kinds of objects at once. Each
/// variant names the kinds on the wire that it takes.
#[macro_export]
macro_rules! objects {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident($type:ty) = $($kind:literal)|+),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $vis enum $name {
            $($(#[$variant_meta])* $variant($type),)*
        }

        impl $crate::property::Object for $name {
            fn wanted() -> Vec<$crate::property::Wanted> {
                [$(<$type as $crate::property::Object>::wanted()),*].concat()
            }

            fn begin(
                reference: &$crate::reference::Ref<$crate::types::ManagedObject>,
            ) -> Option<Self> {
                match reference.kind() {
                    $($($kind)|+ => <$type as $crate::property::Object>::begin(reference).map(Self::$variant),)*
                    _ => None,
                }
            }

            fn reference(&self) -> $crate::reference::Ref<$crate::types::ManagedObject> {
                match self {
                    $(Self::$variant(object) => $crate::property::Object::reference(object),)*
                }
            }

            fn assign(
                &mut self,
                path: &str,
                reader: &mut $crate::xml::Reader<'_>,
                value: &$crate::xml::Element<'_>,
            ) -> Result<(), $crate::xml::Malformed> {
                match self {
                    $(Self::$variant(object) => object.assign(path, reader, value),)*
                }
            }

            fn take(&mut self, path: &str, from: &mut Self) {
                match (self, from) {
                    $((Self::$variant(object), Self::$variant(from)) => object.take(path, from),)*
                    // A reference never changes its kind.
                    _ => {}
                }
            }

            fn unreadable(&mut self) -> &mut Vec<$crate::property::Unreadable> {
                match self {
                    $(Self::$variant(object) => $crate::property::Object::unreadable(object),)*
                }
            }
        }
    };
}

impl Connection {
    /// Every object of these kinds in the whole inventory, page by page. Objects that the user may not see
    /// are not there.
    pub async fn list<T: Object>(&self) -> Result<Vec<T>, Error> {
        let root = self.content().await?.root_folder;
        self.list_in(&root).await
    }

    /// Every object of these kinds below an entity: a folder, a datacenter, a cluster.
    pub async fn list_in<T: Object, K: IsA<ManagedEntity>>(
        &self,
        root: &Ref<K>,
    ) -> Result<Vec<T>, Error> {
        let root = &root.upcast();
        // Views and pages are the session's: start again in the next one.
        self.in_session(|session| async move {
            let kinds: Vec<&str> = T::wanted().iter().map(|wanted| wanted.kind).collect();
            let view = self.container_view(&session, root, &kinds).await?;
            let spec = through_views(std::slice::from_ref(view.on()), T::wanted());
            self.pages(&session, Service::Vim, spec).await
        })
        .await
    }

    /// The properties of these objects. Objects that do not exist, or that the user may not see, are left
    /// out; the order is the server's.
    pub async fn read<T: Object, K: Kind>(&self, objects: &[Ref<K>]) -> Result<Vec<T>, Error> {
        self.read_as(Service::Vim, objects).await
    }

    /// The properties of one object, if it exists and may be seen.
    pub async fn read_one<T: Object, K: Kind>(&self, object: &Ref<K>) -> Result<Option<T>, Error> {
        Ok(self.read(std::slice::from_ref(object)).await?.pop())
    }

    pub(crate) async fn read_as<T: Object, K: Kind>(
        &self,
        service: Service,
        objects: &[Ref<K>],
    ) -> Result<Vec<T>, Error> {
        let object = |reference: &Ref<K>| ObjectSpec {
            obj: Ref::with_kind(reference.kind(), reference.value()),
            skip: Some(false),
            select_set: Vec::new(),
        };
        let mut found = Vec::with_capacity(objects.len());
        for batch in objects.chunks(MOST_REFERENCES) {
            found.extend(self.select(service, batch.iter().map(object).collect()).await?);
        }
        Ok(found)
    }

    /// The properties of objects that are selected in the caller's own way, as by following references.
    pub(crate) async fn select<T: Object>(
        &self,
        service: Service,
        object_set: Vec<ObjectSpec>,
    ) -> Result<Vec<T>, Error> {
        let spec = &PropertyFilterSpec {
            prop_set: property_specs(T::wanted()),
            object_set,
            // An object that vanished must not take the others with it.
            report_missing_objects_in_results: Some(true),
        };
        self.in_session(|session| async move { self.pages(&session, service, spec.clone()).await })
            .await
    }

    /// Reads page by page. Pages that are not read any more are given back.
    async fn pages<T: Object>(
        &self,
        session: &Arc<Established>,
        service: Service,
        spec: PropertyFilterSpec,
    ) -> Result<Vec<T>, Error> {
        let options = RetrieveOptions { max_objects: Some(PAGE) };
        let first = RetrievePropertiesEx { spec_set: vec![spec], options };
        let (mut found, mut rest) = self.page(session, service, first).await?;
        while let Some(CancelRetrievePropertiesEx { token }) = rest.and_then(Held::release) {
            let next = ContinueRetrievePropertiesEx { token };
            let (more, after) = self.page(session, service, next).await?;
            found.extend(more);
            rest = after;
        }
        Ok(found)
    }

    /// One page, carried through so that the token of the next one is never lost.
    async fn page<T, M>(
        &self,
        session: &Arc<Established>,
        service: Service,
        request: M,
    ) -> Result<(Vec<T>, Option<Held<CancelRetrievePropertiesEx>>), Error>
    where
        T: Object,
        M: Method<On = PropertyCollector> + Send + Sync + 'static,
    {
        let (owner, session) = (self.clone(), Arc::clone(session));
        self.session()
            .carry(async move {
                let collector = &session.content.property_collector;
                let (mut found, mut token) = (Vec::new(), None);
                let wire = owner.wire();
                wire.call(session.as_in(), service, collector, &request, |reader, page| {
                    read_page(reader, page, &mut found, &mut token)
                })
                .await?;
                let rest = token.map(|token| {
                    let cancel = CancelRetrievePropertiesEx { token };
                    Held::new(&owner, &session, collector.clone(), cancel)
                });
                Ok((found, rest))
            })
            .await
    }
}

/// The wanted properties of everything in some views.
pub(crate) fn through_views(views: &[Ref<View>], wanted: Vec<Wanted>) -> PropertyFilterSpec {
    let object = |view: &Ref<View>| ObjectSpec {
        obj: view.upcast(),
        skip: Some(true),
        select_set: vec![AnySelectionSpec::TraversalSpec(TraversalSpec {
            name: None,
            type_: view.kind().to_owned(),
            path: "view".to_owned(),
            skip: Some(false),
            select_set: Vec::new(),
        })],
    };
    PropertyFilterSpec {
        prop_set: property_specs(wanted),
        object_set: views.iter().map(object).collect(),
        report_missing_objects_in_results: None,
    }
}

fn property_specs(all: Vec<Wanted>) -> Vec<PropertySpec> {
    let spec = |wanted: Wanted| PropertySpec {
        type_: wanted.kind.to_owned(),
        all: Some(false),
        path_set: wanted.paths.iter().map(|path| (*path).to_owned()).collect(),
    };
    all.into_iter().map(spec).collect()
}

pub(crate) fn read_page<T: Object>(
    reader: &mut Reader<'_>,
    page: &Element<'_>,
    found: &mut Vec<T>,
    token: &mut Option<String>,
) -> Result<(), Malformed> {
    while let Some(child) = reader.child(page)? {
        match child.name() {
            "token" => *token = Some(String::from_xml(reader, &child)?),
            "objects" => found.extend(read_object(reader, &child)?.object),
            _ => {}
        }
    }
    Ok(())
}

/// What an answer has of one object.
pub(crate) struct Reported<T> {
    /// What happened to it; empty in an answer that is not about changes.
    pub(crate) kind: String,
    pub(crate) reference: Ref<ManagedObject>,
    /// None for a kind that is not wanted.
    pub(crate) object: Option<T>,
    /// The properties that are there.
    pub(crate) paths: Vec<String>,
}

pub(crate) fn read_object<T: Object>(
    reader: &mut Reader<'_>,
    element: &Element<'_>,
) -> Result<Reported<T>, Malformed> {
    let (mut kind, mut reference) = (String::new(), Ref::default());
    let (mut object, mut paths): (Option<T>, Vec<String>) = (None, Vec::new());
    while let Some(child) = reader.child(element)? {
        match (child.name(), &mut object) {
            ("kind", _) => kind = String::from_xml(reader, &child)?,
            ("obj", _) => {
                reference = Ref::from_xml(reader, &child)?;
                object = T::begin(&reference);
            }
            ("propSet" | "changeSet", Some(object)) => {
                paths.push(read_property(reader, &child, object)?);
            }
            ("missingSet", Some(object)) => {
                object.unreadable().push(Unreadable::from_xml(reader, &child)?);
            }
            _ => {}
        }
    }
    Ok(Reported { kind, reference, object, paths })
}

/// Reads a name and the value that follows it. A property that was unset has none, and becomes the default.
fn read_property(
    reader: &mut Reader<'_>,
    element: &Element<'_>,
    object: &mut impl Object,
) -> Result<String, Malformed> {
    let mut path = String::new();
    while let Some(child) = reader.child(element)? {
        match child.name() {
            "name" => path = String::from_xml(reader, &child)?,
            "val" => object.assign(&path, reader, &child)?,
            _ => {}
        }
    }
    Ok(path)
}
