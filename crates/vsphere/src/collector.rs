//! A property collector with several filters and one long poll.
//!
//! [`Watch`](crate::watch::Watch) is the simple way to follow objects: one filter over the whole inventory, and it
//! reattaches by itself. A [`Collector`] is for those who choose what each filter selects, change that while it
//! runs, and start again themselves after an error. Everything it created in vCenter ends when it is dropped.

use std::{sync::Arc, time::Duration};

use crate::{
    connection::Connection,
    error::Error,
    held::Held,
    login::Established,
    property::{Object, Wanted, read_missing, read_property, through_views},
    reference::{IsA, Ref},
    soap::Service,
    types::{
        CreateContainerView, CreateFilter, CreateListView, CreatePropertyCollector,
        DestroyPropertyCollector, DestroyView, ListView, ManagedEntity, ManagedObject,
        ModifyListView, PropertyCollector, PropertyFilter, PropertyFilterSpec, ViewManager,
        WaitForUpdatesEx, WaitOptions,
    },
    watch::{Change, Delta},
    xml::{Element, Field, FromXml, Malformed, Reader},
};

/// How long vCenter may keep a poll open: below the idle limits of common proxies, and short enough that one
/// whose answer got lost is not waited for long.
pub(crate) const LONGEST_POLL: Duration = Duration::from_secs(20);
/// Changes of one answer.
const PAGE: i32 = 250;

/// Reads one object of an update into what the collector returns.
type Read<C> =
    Box<dyn Fn(&mut Reader<'_>, &Element<'_>) -> Result<Option<C>, Malformed> + Send + Sync>;

/// A property collector of its own in the connection's session; `C` is what its changes are read into.
pub struct Collector<C> {
    connection: Connection,
    session: Arc<Established>,
    collector: Held<DestroyPropertyCollector>,
    version: String,
    /// Whether the last answer held everything, so that the next one may be waited for.
    caught_up: bool,
    filters: Vec<Filter<C>>,
}

struct Filter<C> {
    reference: Ref<PropertyFilter>,
    read: Read<C>,
    /// They end with the filter.
    _views: Vec<View>,
}

/// A view in the session of a [`Collector`]: the objects below an entity, or a list.
#[derive(Clone)]
pub struct View(Arc<Held<DestroyView>>);

/// A view whose members the caller chooses, also while the collector is polled.
pub struct List {
    connection: Connection,
    session: Arc<Established>,
    list: Ref<ListView>,
    view: View,
}

/// One answer of vCenter.
#[derive(Debug)]
pub struct Page<C> {
    /// In the order of their filters.
    pub changes: Vec<C>,
    /// Whether there is nothing more to report now.
    pub complete: bool,
}

impl<C> std::fmt::Debug for Collector<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("version", &self.version).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("List").field(&self.list).finish()
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("View").field(self.0.on()).finish()
    }
}

impl Connection {
    /// A collector without filters.
    pub async fn collector<C>(&self) -> Result<Collector<C>, Error> {
        let session = self.established().await?;
        let collector = self.forgetting(&session, own_collector(self, &session)).await?;
        let (connection, version) = (self.clone(), String::new());
        Ok(Collector { connection, session, collector, version, caught_up: false, filters: vec![] })
    }

    /// What `call` returns in a session; a session that vCenter has lost is forgotten.
    async fn forgetting<T>(
        &self,
        session: &Arc<Established>,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let result = call.await;
        if let Err(error) = &result
            && error.is_logged_out()
        {
            self.forget(session).await;
        }
        result
    }
}

impl<C> Collector<C> {
    /// Everything of these kinds below an entity. The view follows the inventory.
    pub async fn below<K: IsA<ManagedEntity>>(
        &self,
        root: &Ref<K>,
        kinds: &[&str],
    ) -> Result<View, Error> {
        let root = root.upcast();
        let create = container_view(&self.connection, &self.session, &root, kinds);
        let view = self.connection.forgetting(&self.session, create).await?;
        Ok(View(Arc::new(view)))
    }

    /// A list without members.
    pub async fn list(&self) -> Result<List, Error> {
        let create = list_view(&self.connection, &self.session);
        let held = self.connection.forgetting(&self.session, create).await?;
        let list = Ref::new(held.on().value());
        let (connection, session) = (self.connection.clone(), Arc::clone(&self.session));
        Ok(List { connection, session, list, view: View(Arc::new(held)) })
    }

    /// Adds a filter over all members of some views. Objects enter with `wanted`, or with all that `T` wants,
    /// and each change is returned as what `into` makes of it.
    pub async fn filter<T: Object>(
        &mut self,
        views: &[View],
        wanted: Option<Vec<Wanted>>,
        into: impl Fn(Change<T>) -> C + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let views = views.to_vec();
        let references: Vec<_> = views.iter().map(|view| view.0.on().clone()).collect();
        let spec = through_views(&references, wanted.unwrap_or_else(T::wanted));
        let create = create_filter(&self.connection, &self.session, &self.collector, spec);
        let reference = self.connection.forgetting(&self.session, create).await?;
        let read = move |reader: &mut Reader<'_>, element: &Element<'_>| {
            Ok(read_update::<T>(reader, element)?.map(&into))
        };
        self.filters.push(Filter { reference, read: Box::new(read), _views: views });
        self.caught_up = false;
        Ok(())
    }

    /// The next answer: waits for a change once everything has been reported. An answer without changes after
    /// a while means that nothing changed. After an error the collector is of no use any more.
    pub async fn next(&mut self) -> Result<Page<C>, Error> {
        let patience = if self.caught_up { LONGEST_POLL } else { Duration::ZERO };
        let (session, filters) = (&self.session, &self.filters);
        let mut changes = Vec::new();
        let take = |filter: &Ref<PropertyFilter>, reader: &mut Reader<'_>, update: &Element<'_>| {
            let known = filters.iter().find(|known| known.reference == *filter);
            if let Some(known) = known {
                changes.extend((known.read)(reader, update)?);
            }
            Ok(())
        };
        let waited =
            wait(&self.connection, session, self.collector.on(), &self.version, patience, take);
        let answer = match self.connection.forgetting(session, waited).await {
            Ok(answer) => answer,
            Err(error) => {
                self.connection.wire().metrics().watch_restarted();
                return Err(error);
            }
        };
        self.connection.wire().metrics().watch_answered();
        self.version = answer.version;
        self.caught_up = !answer.truncated;
        Ok(Page { changes, complete: !answer.truncated })
    }
}

impl List {
    /// The members, for a filter.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Adds and removes members; those that vCenter does not know are left out.
    pub async fn modify<K: IsA<ManagedObject>>(
        &self,
        add: impl IntoIterator<Item = &Ref<K>>,
        remove: impl IntoIterator<Item = &Ref<K>>,
    ) -> Result<(), Error> {
        let refs = |all: &mut dyn Iterator<Item = &Ref<K>>| all.map(Ref::upcast).collect();
        let (add, remove): (Vec<_>, Vec<_>) =
            (refs(&mut add.into_iter()), refs(&mut remove.into_iter()));
        if add.is_empty() && remove.is_empty() {
            return Ok(());
        }
        let modify = modify_list(&self.connection, &self.session, &self.list, add, remove);
        self.connection.forgetting(&self.session, modify).await.map(drop)
    }
}

/// Waits on one collector exclude each other, so each watch has its own.
pub(crate) async fn own_collector(
    connection: &Connection,
    session: &Arc<Established>,
) -> Result<Held<DestroyPropertyCollector>, Error> {
    let shared = &session.content.property_collector;
    let (create, destroy) = (CreatePropertyCollector {}, DestroyPropertyCollector {});
    connection.hold::<_, _, PropertyCollector>(session, shared, create, destroy).await
}

/// A filter ends with its collector.
pub(crate) async fn create_filter(
    connection: &Connection,
    session: &Established,
    collector: &Held<DestroyPropertyCollector>,
    spec: PropertyFilterSpec,
) -> Result<Ref<PropertyFilter>, Error> {
    let create = CreateFilter { spec, partial_updates: false };
    let mut filter = Ref::default();
    let (wire, read) = (connection.wire(), &mut filter);
    wire.call(session.as_in(), Service::Vim, collector.on(), &create, |reader, value| {
        *read = Ref::from_xml(reader, value)?;
        Ok(())
    })
    .await?;
    Ok(filter)
}

/// A view of the objects of some kinds below a root; it follows the inventory.
pub(crate) async fn container_view(
    connection: &Connection,
    session: &Arc<Established>,
    root: &Ref<ManagedEntity>,
    kinds: &[&str],
) -> Result<Held<DestroyView>, Error> {
    let create = CreateContainerView {
        container: root.clone(),
        type_: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        recursive: true,
    };
    connection.hold(session, &view_manager(session), create, DestroyView {}).await
}

pub(crate) async fn list_view(
    connection: &Connection,
    session: &Arc<Established>,
) -> Result<Held<DestroyView>, Error> {
    let create = CreateListView { obj: Vec::new() };
    connection.hold::<_, _, ListView>(session, &view_manager(session), create, DestroyView {}).await
}

fn view_manager(session: &Established) -> Ref<ViewManager> {
    session.content.view_manager.clone().unwrap_or_else(|| Ref::new("ViewManager"))
}

/// Changes the members of a list view. Returns the objects that vCenter does not know.
pub(crate) async fn modify_list(
    connection: &Connection,
    session: &Established,
    list: &Ref<ListView>,
    add: Vec<Ref<ManagedObject>>,
    remove: Vec<Ref<ManagedObject>>,
) -> Result<Vec<Ref<ManagedObject>>, Error> {
    let (modify, mut unknown) = (ModifyListView { add, remove }, Vec::new());
    let wire = connection.wire();
    wire.call(session.as_in(), Service::Vim, list, &modify, |reader, value| {
        unknown.absorb(reader, value)
    })
    .await?;
    Ok(unknown)
}

/// The frame of an answer; the changes in it are read by the caller.
pub(crate) struct Frame {
    pub(crate) version: String,
    pub(crate) truncated: bool,
}

/// Waits until something changed after `version`, at most `patience`. Each changed object is read by `take`.
pub(crate) async fn wait(
    connection: &Connection,
    session: &Established,
    collector: &Ref<PropertyCollector>,
    version: &str,
    patience: Duration,
    mut take: impl FnMut(&Ref<PropertyFilter>, &mut Reader<'_>, &Element<'_>) -> Result<(), Malformed>,
) -> Result<Frame, Error> {
    let seconds = i32::try_from(patience.as_secs()).unwrap_or(i32::MAX);
    let request = WaitForUpdatesEx {
        version: Some(version.to_owned()),
        options: Some(WaitOptions {
            max_wait_seconds: Some(seconds),
            max_object_updates: Some(PAGE),
        }),
    };
    // No answer at all means that nothing changed.
    let mut answer = Frame { version: version.to_owned(), truncated: false };
    connection
        .wire()
        .long_poll(session.as_in(), collector, &request, patience, |reader, set| {
            read_updates(reader, set, &mut answer, &mut take)
        })
        .await?;
    Ok(answer)
}

pub(crate) fn read_updates(
    reader: &mut Reader<'_>,
    set: &Element<'_>,
    answer: &mut Frame,
    take: &mut impl FnMut(&Ref<PropertyFilter>, &mut Reader<'_>, &Element<'_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while let Some(child) = reader.child(set)? {
        match child.name() {
            "version" => answer.version = String::from_xml(reader, &child)?,
            "truncated" => answer.truncated = bool::from_xml(reader, &child)?,
            "filterSet" => {
                let mut filter = Ref::default();
                while let Some(update) = reader.child(&child)? {
                    match update.name() {
                        "filter" => filter = Ref::from_xml(reader, &update)?,
                        "objectSet" => take(&filter, reader, &update)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn read_update<T: Object>(
    reader: &mut Reader<'_>,
    element: &Element<'_>,
) -> Result<Option<Change<T>>, Malformed> {
    let (mut kind, mut reference) = (String::new(), Ref::default());
    let (mut object, mut paths): (Option<T>, Vec<String>) = (None, Vec::new());
    while let Some(child) = reader.child(element)? {
        match (child.name(), &mut object) {
            ("kind", _) => kind = String::from_xml(reader, &child)?,
            ("obj", _) => {
                reference = Ref::from_xml(reader, &child)?;
                object = T::begin(&reference);
            }
            // A property that was unset has no value here, and the default is what it becomes.
            ("changeSet", Some(object)) => {
                let path = read_property(reader, &child, |path, reader, value| {
                    object.assign(path, reader, value)
                })?;
                paths.push(path);
            }
            ("missingSet", Some(object)) => {
                object.unreadable().push(read_missing(reader, &child)?);
            }
            _ => {}
        }
    }
    Ok(match (kind.as_str(), object) {
        ("enter", Some(object)) => Some(Change::Entered(object)),
        ("modify", Some(values)) => Some(Change::Changed(Delta { values, paths })),
        ("leave", _) => Some(Change::Left(reference)),
        _ => None,
    })
}
