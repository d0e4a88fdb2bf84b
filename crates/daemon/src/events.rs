//! Kubernetes Events in the shape of client-go: core/v1, one object per message, counted when repeated.
//!
//! Core events, not those of `events.k8s.io`, because existing roles allow only the former. Recording never
//! waits and never fails: events that cannot be delivered are dropped, and the log says so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};
use tracing::{debug, warn};

use crate::{
    expiring::Expiring,
    permissions::{Permission, Scope},
    supervise::{Chain, Shutdown},
};

/// As in client-go: repeats within this time are counted instead of written as new events.
const SAME_WITHIN: Duration = Duration::from_secs(600);
/// Events that are cached for counting.
const CACHED: usize = 4096;
/// Events in the queue.
const QUEUED: usize = 1000;
/// How long the end of a program may wait for events that are still queued.
const REST_WITHIN: Duration = Duration::from_secs(5);
const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// The API refuses longer messages.
const LONGEST_MESSAGE: usize = 1024;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// For information.
    Normal,
    /// Something needs attention.
    Warning,
}

/// An event without its time; equal notes are counted.
#[derive(Clone, Debug)]
struct Note {
    regarding: ObjectReference,
    kind: Kind,
    reason: String,
    message: String,
}

/// Records events; clones share one queue.
#[derive(Clone, Debug)]
pub struct Recorder {
    notes: mpsc::Sender<Note>,
    dropped: Arc<AtomicU64>,
}

/// Writes the recorded events to the API.
pub struct Writer {
    client: Client,
    component: String,
    host: String,
    notes: mpsc::Receiver<Note>,
    /// Events that did not fit into the queue since the last log line about them.
    dropped: Arc<AtomicU64>,
    /// The name and the count of each.
    written: Expiring<String, (String, i32)>,
}

/// The namespace of events about objects without a namespace.
const CLUSTER_EVENTS: &str = "default";

/// What a [`Writer`] calls for events about objects in this namespace, or without one.
pub fn permissions(namespace: Option<&str>) -> Vec<Permission> {
    let scope = Scope::Namespace(namespace.unwrap_or(CLUSTER_EVENTS).to_owned());
    vec![Permission::new(scope, ("", "events"), &["create", "patch"])]
}

/// A recorder, and the task that writes for it; `component` and `host` become the source of its events.
pub fn recorder(client: Client, component: &str, host: &str) -> (Recorder, Writer) {
    let (sender, notes) = mpsc::channel(QUEUED);
    let (component, host) = (component.to_owned(), host.to_owned());
    let dropped = Arc::new(AtomicU64::new(0));
    let recorder = Recorder { notes: sender, dropped: Arc::clone(&dropped) };
    let written = Expiring::new(CACHED);
    (recorder, Writer { client, component, host, notes, dropped, written })
}

impl Recorder {
    /// Queues an event about the object.
    pub fn record(&self, regarding: &ObjectReference, kind: Kind, reason: &str, message: &str) {
        let note = Note {
            regarding: regarding.clone(),
            kind,
            reason: reason.to_owned(),
            message: shortened(message),
        };
        if self.notes.try_send(note).is_err() && self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            warn!(reason, message, "event dropped: the queue is full; more may follow");
        }
    }
}

impl Writer {
    /// Writes events until `shutdown`, and then those that are still queued, for a few seconds.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), std::convert::Infallible> {
        while let Some(Some(note)) = shutdown.unless(self.notes.recv()).await {
            self.write(note).await;
            if self.notes.is_empty() {
                self.log_dropped();
            }
        }
        shutdown.requested().await;
        self.notes.close();
        let rest = async {
            while let Some(note) = self.notes.recv().await {
                self.write(note).await;
            }
        };
        if timeout(REST_WITHIN, rest).await.is_err() {
            warn!("events dropped: too many were queued at the end");
        }
        Ok(())
    }

    fn log_dropped(&self) {
        let events = self.dropped.swap(0, Ordering::Relaxed);
        if events > 0 {
            warn!(events, "events dropped because the queue was full");
        }
    }

    async fn write(&mut self, note: Note) {
        let reason = note.reason.clone();
        match timeout(WRITE_WITHIN, self.send(note)).await {
            Ok(Ok(())) => debug!(reason, "event written"),
            Ok(Err(error)) => warn!(reason, error = %Chain(&error), "event dropped"),
            Err(_) => warn!(reason, "event dropped: the API did not answer"),
        }
    }

    async fn send(&mut self, note: Note) -> Result<(), kube::Error> {
        let namespace =
            note.regarding.namespace.clone().unwrap_or_else(|| CLUSTER_EVENTS.to_owned());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let key = note.key();
        let now = Time(Timestamp::now());
        if let Some((name, count)) = self.written.get_mut(&key) {
            *count += 1;
            let patch = Patch::Merge(json!({"count": count, "lastTimestamp": now}));
            match events.patch(name, &PatchParams::default(), &patch).await {
                // The API keeps events for an hour; one that is gone is created again.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => return patched.map(drop),
            }
        }
        let event = self.event(note, &namespace, &now);
        let name = event.metadata.name.clone().unwrap_or_default();
        events.create(&PostParams::default(), &event).await?;
        self.written.insert(key, (name, 1), SAME_WITHIN);
        Ok(())
    }

    fn event(&self, note: Note, namespace: &str, now: &Time) -> Event {
        // The object's name and the time in hexadecimal, as client-go names them.
        let object = note.regarding.name.as_deref().unwrap_or("unknown");
        let name = format!("{object}.{:x}", Timestamp::now().as_nanosecond());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: note.regarding,
            type_: Some(format!("{:?}", note.kind)),
            reason: Some(note.reason),
            message: Some(note.message),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now.clone()),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some(self.component.clone()),
            ..Event::default()
        }
    }
}

impl Note {
    fn key(&self) -> String {
        let object = &self.regarding;
        let about = (&object.kind, &object.namespace, &object.name, &object.uid);
        format!("{:?}", (about, self.kind, &self.reason, &self.message))
    }
}

fn shortened(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(LONGEST_MESSAGE - "…".len());
    format!("{}…", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_where_a_letter_ends() {
        let short = shortened(&"ä".repeat(2000));
        assert!(short.len() <= LONGEST_MESSAGE && short.ends_with("ä…"), "{}", short.len());
        assert_eq!(shortened("as it is"), "as it is");
    }
}
