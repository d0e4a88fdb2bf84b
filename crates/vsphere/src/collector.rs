//! Following properties: vCenter reports what changed, nothing is polled for.
//!
//! A [`Collector`] begins with every object that its filters select ([`Change::Entered`]) and goes on with what
//! changes. What the filters select may change while it runs. It belongs to a session: when that is lost, vCenter
//! restarts or the network breaks, [`Collector::next`] fails, and the caller starts again with a new collector,
//! where all objects enter again with their current state. So nothing is missed; only intermediate states may be
//! skipped.
//!
//! A collector keeps no objects. Everything it created in vCenter ends when it is dropped.

use std::{sync::Arc, time::Duration};

use crate::{
    connection::Connection,
    error::Error,
    held::Held,
    login::Established,
    property::{Object, Reported, Wanted, read_object, through_views},
    reference::{IsA, Ref},
    soap::Service,
    types::{
        CreateContainerView, CreateFilter, CreateListView, CreatePropertyCollector,
        DestroyPropertyCollector, DestroyView, ListView, ManagedEntity, ManagedObject,
        ModifyListView, PropertyCollector, PropertyFilter, ViewManager, WaitForUpdatesEx,
        WaitOptions,
    },
    xml::{Element, Field, FromXml, Malformed, Method, Reader},
};

/// How long vCenter may keep a poll open: below the idle limits of common proxies, and short enough that one
/// whose answer got lost is not waited for long.
const LONGEST_POLL: Duration = Duration::from_secs(20);
/// How much more time than any other call the first answer to a filter has: vCenter reads all that the filter selects
/// before it sends the first page, and in a very large inventory that takes longer than a call may.
const FIRST_ANSWER: Duration = Duration::from_secs(300);
/// Changes of one answer.
const PAGE: i32 = 250;

/// What a collector reports.
#[derive(Debug, Clone, PartialEq)]
pub enum Change<T> {
    /// An object with all wanted properties: a new one, or one that replaces what was known of it.
    Entered(T),
    /// Some properties of a known object have other values.
    Changed(Delta<T>),
    /// The object is gone, moved out of sight, or the user may not see it any more.
    Left(Ref<ManagedObject>),
}

/// New values of some properties of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta<T> {
    pub(crate) values: T,
    paths: Vec<String>,
}

impl<T: Object> Delta<T> {
    /// Which object changed.
    pub fn reference(&self) -> Ref<ManagedObject> {
        self.values.reference()
    }

    /// Moves the new values into the object.
    pub fn apply(mut self, to: &mut T) {
        for path in &self.paths {
            to.take(path, &mut self.values);
        }
        let missing = std::mem::take(self.values.unreadable());
        let known = to.unreadable();
        known.retain(|old| {
            !self.paths.contains(&old.path) && missing.iter().all(|new| new.path != old.path)
        });
        known.extend(missing);
    }
}

/// Whether only what we held on the server is gone.
pub fn is_lost(error: &Error) -> bool {
    let lost = ["NotAuthenticated", "ManagedObjectNotFound", "InvalidCollectorVersion"];
    error.fault().is_some_and(|fault| lost.iter().any(|name| fault.is_a(name)))
}

/// Reads one object of an update into what the collector returns.
type Read<C> =
    Box<dyn Fn(&mut Reader<'_>, &Element<'_>) -> Result<Option<C>, Malformed> + Send + Sync>;

/// A property collector of its own in the connection's session; `C` is what its changes are read into.
pub struct Collector<C> {
    connection: Connection,
    session: Arc<Established>,
    /// Waits on one collector exclude each other, so each watch has its own.
    collector: Held<DestroyPropertyCollector>,
    version: String,
    /// The service in whose namespace it is polled.
    service: Service,
    due: Due,
    /// They end with the collector.
    filters: Vec<Filter<C>>,
}

/// What the next answer holds.
enum Due {
    /// The first part of what the filters select.
    Selection,
    /// The rest of what was too much for one answer.
    Rest,
    /// What will have changed.
    Change,
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
    pub(crate) session: Arc<Established>,
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

impl Connection {
    /// A collector without filters.
    pub async fn collector<C>(&self) -> Result<Collector<C>, Error> {
        let session = self.established().await?;
        let shared = &session.content.property_collector;
        let (create, destroy) = (CreatePropertyCollector {}, DestroyPropertyCollector {});
        let own = self.hold::<_, _, PropertyCollector>(&session, shared, create, destroy).await;
        Ok(Collector {
            collector: self.noted(&session, own).await?,
            connection: self.clone(),
            session,
            version: String::new(),
            service: Service::Vim,
            due: Due::Selection,
            filters: Vec::new(),
        })
    }

    /// A view of the objects of some kinds below a root; it follows the inventory.
    pub(crate) async fn container_view(
        &self,
        session: &Arc<Established>,
        root: &Ref<ManagedEntity>,
        kinds: &[&str],
    ) -> Result<Held<DestroyView>, Error> {
        let create = CreateContainerView {
            container: root.clone(),
            type_: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            recursive: true,
        };
        self.hold(session, &view_manager(session), create, DestroyView {}).await
    }

    /// Calls a method in one session.
    async fn call_within<M: Method>(
        &self,
        session: &Arc<Established>,
        on: &Ref<M::On>,
        method: &M,
    ) -> Result<M::Answer, Error> {
        let mut answer = M::Answer::default();
        let read = |reader: &mut Reader<'_>, value: &Element<'_>| answer.absorb(reader, value);
        let called = self.wire().call(session.as_in(), M::SERVICE, on, method, read).await;
        self.noted(session, called).await.map(|()| answer)
    }

    /// The result of a call in a session, which is forgotten if vCenter has lost it.
    async fn noted<T>(
        &self,
        session: &Arc<Established>,
        result: Result<T, Error>,
    ) -> Result<T, Error> {
        if result.as_ref().is_err_and(Error::is_logged_out) {
            self.forget(session).await;
        }
        result
    }
}

fn view_manager(session: &Established) -> Ref<ViewManager> {
    session.content.view_manager.clone().unwrap_or_else(|| Ref::new("ViewManager"))
}

impl<C> Collector<C> {
    /// The same, whose values come in the namespace of another service of the inventory, which has more types.
    pub(crate) fn polled_at(self, service: Service) -> Self {
        Self { service, ..self }
    }

    /// Everything of these kinds below an entity. The view follows the inventory.
    pub async fn below<K: IsA<ManagedEntity>>(
        &self,
        root: &Ref<K>,
        kinds: &[&str],
    ) -> Result<View, Error> {
        let view = self.connection.container_view(&self.session, &root.upcast(), kinds).await;
        Ok(View(Arc::new(self.connection.noted(&self.session, view).await?)))
    }

    /// A list without members.
    pub async fn list(&self) -> Result<List, Error> {
        let (connection, session) = (self.connection.clone(), Arc::clone(&self.session));
        let (manager, create) = (view_manager(&session), CreateListView { obj: Vec::new() });
        let list = connection.hold::<_, _, ListView>(&session, &manager, create, DestroyView {});
        let list = list.await;
        let view = View(Arc::new(connection.noted(&session, list).await?));
        Ok(List { connection, session, view })
    }

    /// Adds a filter over all members of some views. Objects enter with `wanted`, or with all that `T` wants,
    /// and each change is returned as what `into` makes of it.
    pub async fn filter<T: Object>(
        &mut self,
        views: &[View],
        wanted: Option<Vec<Wanted>>,
        into: impl Fn(Change<T>) -> C + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let references: Vec<_> = views.iter().map(|view| view.0.on().clone()).collect();
        let spec = through_views(&references, wanted.unwrap_or_else(T::wanted));
        let create = CreateFilter { spec, partial_updates: false };
        let (connection, on) = (&self.connection, self.collector.on());
        let reference = connection.call_within(&self.session, on, &create).await?;
        let read = move |reader: &mut Reader<'_>, element: &Element<'_>| {
            Ok(read_update::<T>(reader, element)?.map(&into))
        };
        self.filters.push(Filter { reference, read: Box::new(read), _views: views.to_vec() });
        self.due = Due::Selection;
        Ok(())
    }

    /// The next answer: waits for a change once everything has been reported. An answer without changes after
    /// a while means that nothing changed. After an error the collector is of no use any more.
    pub async fn next(&mut self) -> Result<Page<C>, Error> {
        let answer = self.poll(FIRST_ANSWER).await;
        let metrics = self.connection.wire().metrics();
        match &answer {
            Ok(_) => metrics.watch_answered(),
            Err(_) => metrics.watch_restarted(),
        }
        self.connection.noted(&self.session, answer).await
    }

    /// The same without a record of it in metrics or session; `first` is the additional time of a first answer.
    pub(crate) async fn poll(&mut self, first: Duration) -> Result<Page<C>, Error> {
        let (wait, patience) = match self.due {
            Due::Selection => (Duration::ZERO, first),
            Due::Rest => (Duration::ZERO, Duration::ZERO),
            Due::Change => (LONGEST_POLL, LONGEST_POLL),
        };
        let options = WaitOptions {
            max_wait_seconds: i32::try_from(wait.as_secs()).ok(),
            max_object_updates: Some(PAGE),
        };
        let version = self.version.clone();
        let request = WaitForUpdatesEx { version: Some(version.clone()), options: Some(options) };
        // No answer at all means that nothing changed.
        let mut frame = Frame { version, truncated: false };
        let mut changes = Vec::new();
        let mut take =
            |filter: &Ref<PropertyFilter>, reader: &mut Reader<'_>, update: &Element<'_>| {
                if let Some(known) = self.filters.iter().find(|known| known.reference == *filter) {
                    changes.extend((known.read)(reader, update)?);
                }
                Ok(())
            };
        let (session, on) = (self.session.as_in(), self.collector.on());
        let polled = self.connection.wire().long_poll(
            session,
            self.service,
            on,
            &request,
            patience,
            |reader, set| read_updates(reader, set, &mut frame, &mut take),
        );
        polled.await?;
        self.version = frame.version;
        self.due = if frame.truncated { Due::Rest } else { Due::Change };
        Ok(Page { changes, complete: !frame.truncated })
    }
}

impl List {
    /// The members, for a filter.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Adds and removes members. Returns those that vCenter does not know.
    pub async fn modify<K: IsA<ManagedObject>>(
        &self,
        add: impl IntoIterator<Item = &Ref<K>>,
        remove: impl IntoIterator<Item = &Ref<K>>,
    ) -> Result<Vec<Ref<ManagedObject>>, Error> {
        let modify = ModifyListView {
            add: add.into_iter().map(Ref::upcast).collect(),
            remove: remove.into_iter().map(Ref::upcast).collect(),
        };
        if modify.add.is_empty() && modify.remove.is_empty() {
            return Ok(Vec::new());
        }
        let list = Ref::<ListView>::new(self.view.0.on().value());
        self.connection.call_within(&self.session, &list, &modify).await
    }
}

/// The frame of an answer; the changes in it are read by the caller.
pub(crate) struct Frame {
    pub(crate) version: String,
    pub(crate) truncated: bool,
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
    let Reported { kind, reference, object, paths } = read_object(reader, element)?;
    Ok(match (kind.as_str(), object) {
        ("enter", Some(object)) => Some(Change::Entered(object)),
        ("modify", Some(values)) => Some(Change::Changed(Delta { values, paths })),
        ("leave", _) => Some(Change::Left(reference)),
        _ => None,
    })
}
