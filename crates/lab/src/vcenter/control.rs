//! The simulator's control endpoint: JSON over HTTP on loopback. `lab/vcenter/README.md` lists the calls.

mod assumptions;
mod disks;
mod tasks;

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
pub use assumptions::Assumption;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::world::World;

/// Which of a world's ports leads to the control endpoint.
pub(crate) const CONTROL_PORT: u16 = 2;

/// A way to command a running vCenter.
#[derive(Clone, Debug)]
pub struct Control {
    at: SocketAddr,
}

/// A fault that strikes calls of a method.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// The method as on the wire, such as `CnsCreateVolume`; `*` is every method.
    pub method: String,
    /// The name of a vSphere fault, such as `NoPermission`; none when a task shall never end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The fault's own fields.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub fields: Value,
    /// Only calls on this object, by name, path or reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Only calls of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it strikes.
    pub at: Moment,
    /// How many calls it strikes.
    pub count: u32,
    /// How many calls it lets pass first.
    pub skip: u32,
    /// The chance of each call to be struck.
    pub probability: f64,
    /// Makes the chances repeatable.
    pub seed: i64,
}

impl Fault {
    /// Fails the next call of `method` with `fault`.
    #[must_use]
    pub fn next(method: &str, fault: &str) -> Self {
        Self {
            method: method.to_owned(),
            fault: Some(fault.to_owned()),
            fields: Value::Null,
            object: None,
            user: None,
            at: Moment::Call,
            count: 1,
            skip: 0,
            probability: 1.0,
            seed: 0,
        }
    }
}

/// When in the life of a call a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Moment {
    /// The call itself is refused.
    #[serde(rename = "call")]
    Call,
    /// Its task ends in error, and nothing was done.
    #[serde(rename = "task")]
    Task,
    /// Its task ends in error although the work was done.
    #[serde(rename = "task-done")]
    TaskDone,
    /// Its task succeeds, with the fault inside the result of the volume.
    #[serde(rename = "result")]
    Result,
    /// The same, although the work was done.
    #[serde(rename = "result-done")]
    ResultDone,
    /// The same, and the work begins as with [`Moment::Hold`].
    #[serde(rename = "result-late")]
    ResultLate,
    /// Its task never ends.
    #[serde(rename = "task-never")]
    Never,
    /// Its task runs, and begins its work when [`Control::release_tasks`] lets it.
    #[serde(rename = "task-hold")]
    Hold,
    /// Its task ends in error, and begins its work as with [`Moment::Hold`].
    #[serde(rename = "task-late")]
    Late,
    /// Its task changes the disks and not the records of CNS, and ends in error.
    #[serde(rename = "task-half")]
    Half,
    /// Its task does its work, and cannot be found afterwards.
    #[serde(rename = "task-gone")]
    Gone,
}

/// A fault of the wire.
#[derive(Clone, Debug, Serialize)]
pub struct HttpFault {
    /// Requests whose path begins so.
    pub path: String,
    /// Only requests that call this SOAP method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What happens to them.
    #[serde(flatten)]
    pub kind: HttpFaultKind,
    /// To how many.
    pub count: u32,
}

/// What can happen to a request.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum HttpFaultKind {
    /// Another status, such as 503 with a page of HTML.
    Status {
        /// The status.
        status: u16,
    },
    /// The connection is reset.
    Reset,
    /// No answer comes.
    Hang,
    /// The answer ends in the middle.
    Truncate,
}

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    On,
    /// It does not.
    Off,
    /// It does not, and its memory is kept.
    Suspended,
}

/// A login that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FailedLogin {
    /// In lower case, such as `cpi@vsphere.local`.
    pub user: String,
    /// `soap`, `rest` or `sts`.
    pub way: String,
    /// Why, in the simulator's words.
    pub reason: String,
    /// RFC 3339.
    pub at: String,
}

/// What SOAP sessions made at the server and did not destroy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Objects {
    /// Views of a subtree.
    pub container_views: u32,
    /// Views of listed objects.
    pub list_views: u32,
    /// Without the one that every session has.
    pub property_collectors: u32,
    /// Of all property collectors.
    pub property_filters: u32,
    /// Of tasks and events.
    pub history_collectors: u32,
    /// Reads that were neither finished nor cancelled.
    pub open_pages: u32,
}

/// What a copy of a machine has in common with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneSpec {
    /// The BIOS UUID, which vCenter changes unless it is requested otherwise.
    pub keep_uuid: bool,
    /// The settings, `guestinfo` among them.
    pub extra_config: bool,
    /// Off otherwise.
    pub powered_on: bool,
}

/// What a vCenter knows; the rest of the answer is kept as JSON.
#[derive(Clone, Debug, Deserialize)]
pub struct State {
    /// Every object with its path and type.
    pub inventory: Vec<Value>,
    /// Open sessions.
    pub sessions: Vec<Value>,
    /// Volumes of CNS.
    pub volumes: Vec<Value>,
    /// Which volume is on which machine.
    pub attachments: Vec<Value>,
    /// Armed faults.
    pub rules: Value,
    /// Calls so far, by method and user.
    pub calls: Value,
}

impl Control {
    pub(crate) fn new(at: SocketAddr) -> Self {
        Self { at }
    }

    /// The control endpoint of the vCenter in `make lab`.
    #[must_use]
    pub fn of_lab() -> Self {
        Self::new(SocketAddr::from(([127, 0, 0, 1], World::lab_port(CONTROL_PORT))))
    }

    /// Everything it knows.
    ///
    /// # Errors
    /// When the vCenter does not answer. All calls below fail so, or with the field that is wrong.
    pub async fn state(&self) -> Result<State> {
        Ok(serde_json::from_value(self.state_as_json().await?)?)
    }

    /// Everything it knows, as it says it.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn state_as_json(&self) -> Result<Value> {
        self.call("GET", "/state", Value::Null).await
    }

    /// Calls so far by method and user, and requests by path: cheaper than all it knows.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn calls(&self) -> Result<Value> {
        self.call("GET", "/calls", Value::Null).await
    }

    /// Arms a fault and returns its number.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn fail(&self, fault: &Fault) -> Result<u64> {
        let answer = self.post("/faults", serde_json::to_value(fault)?).await?;
        answer["id"].as_u64().context("the armed fault has no number")
    }

    /// Delays every call of `method` by `milliseconds`, give or take `jitter`.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn delay(&self, method: &str, milliseconds: u32, jitter: u32) -> Result<()> {
        self.post(
            "/delays",
            json!({"method": method, "delay_ms": milliseconds, "jitter_ms": jitter}),
        )
        .await
        .map(drop)
    }

    /// Arms a fault of the wire and returns its number.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn break_http(&self, fault: &HttpFault) -> Result<u64> {
        let answer = self.post("/http", serde_json::to_value(fault)?).await?;
        answer["id"].as_u64().context("the armed fault has no number")
    }

    /// Disarms one fault or delay by its number.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn disarm_one(&self, number: u64) -> Result<()> {
        self.call("DELETE", &format!("/rules/{number}"), Value::Null).await.map(drop)
    }

    /// Disarms all faults and delays.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn disarm(&self) -> Result<()> {
        self.call("DELETE", "/rules", Value::Null).await.map(drop)
    }

    /// Ends all sessions, as an idle time-out does.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn expire_sessions(&self) -> Result<()> {
        self.call("DELETE", "/sessions", Value::Null).await.map(drop)
    }

    /// Ends one session by its key.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn expire_session(&self, key: &str) -> Result<()> {
        self.call("DELETE", &format!("/sessions/{key}"), Value::Null).await.map(drop)
    }

    /// Restarts it: down for a while, then without sessions, views, filters and running tasks.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn restart(&self, down_milliseconds: u32) -> Result<()> {
        self.post("/restart", json!({"down_ms": down_milliseconds})).await.map(drop)
    }

    /// Puts its clock ahead (or behind, when negative).
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn skew_clock(&self, milliseconds: i64) -> Result<()> {
        self.post("/clock", json!({"skew_ms": milliseconds})).await.map(drop)
    }

    /// The logins that were refused, oldest first.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn failed_logins(&self) -> Result<Vec<FailedLogin>> {
        Ok(serde_json::from_value(self.call("GET", "/logins", Value::Null).await?)?)
    }

    /// What each SOAP session of the users whose name contains `user` (in lower case) made and did not destroy.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn objects(&self, user: &str) -> Result<Vec<Objects>> {
        let sessions = self.call("GET", "/sessions", Value::Null).await?;
        let sessions = sessions.as_array().context("the sessions are not a list")?;
        let of_user = sessions.iter().filter(|session| {
            session["kind"] == "soap"
                && session["user"].as_str().unwrap_or_default().to_lowercase().contains(user)
        });
        of_user.map(|session| Ok(serde_json::from_value(session["objects"].clone())?)).collect()
    }

    /// Changes the password of a user. Open sessions go on.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn set_password(&self, user: &str, password: &str) -> Result<()> {
        self.post("/user", json!({"user": user, "password": password})).await.map(drop)
    }

    /// Locks a user out, or lets it in again.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn lock_user(&self, user: &str, locked: bool) -> Result<()> {
        self.post("/user", json!({"user": user, "locked": locked})).await.map(drop)
    }

    /// Lets the password of a user expire, or makes it valid again.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn expire_password(&self, user: &str, expired: bool) -> Result<()> {
        self.post("/user", json!({"user": user, "expired": expired})).await.map(drop)
    }

    /// How many failed logins within 180 seconds lock an account: 5 unless changed; none when `None`.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn lock_after(&self, failed: Option<u32>) -> Result<()> {
        let failed = failed.map_or(-1, i64::from);
        self.post("/lockout", json!({"max_failed": failed})).await.map(drop)
    }

    /// Adds records of tasks that ended well on an object, as a busy vCenter has them.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn add_tasks(&self, count: u32, object: &str) -> Result<()> {
        self.post("/tasks", json!({"count": count, "object": object})).await.map(drop)
    }

    /// Copies a machine. The copy has its own instance UUID and cards; its guest reports what the original's does.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn clone_vm(&self, vm: &str, name: &str, clone: CloneSpec) -> Result<()> {
        let power = if clone.powered_on { "on" } else { "off" };
        let body = json!({
            "vm": vm, "name": name, "power": power,
            "keep_uuid": clone.keep_uuid, "extra_config": clone.extra_config,
        });
        self.post("/vm/clone", body).await.map(drop)
    }

    /// Switches a machine on or off.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn power(&self, vm: &str, power: Power) -> Result<()> {
        let power = match power {
            Power::On => "on",
            Power::Off => "off",
            Power::Suspended => "suspended",
        };
        self.post("/vm/power", json!({"vm": vm, "power": power})).await.map(drop)
    }

    /// Gives a machine's first network card other addresses.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn readdress(&self, vm: &str, addresses: &[&str]) -> Result<()> {
        self.post("/vm/guest", json!({"vm": vm, "addresses": addresses})).await.map(drop)
    }

    /// Lets the tools in a machine's guest report, or not.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn run_tools(&self, vm: &str, run: bool) -> Result<()> {
        self.post("/vm/guest", json!({"vm": vm, "tools": run})).await.map(drop)
    }

    /// Takes a machine's files away, or gives them back: an inaccessible machine has no BIOS UUID.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn reach_vm(&self, vm: &str, accessible: bool) -> Result<()> {
        self.post("/vm/accessible", json!({"vm": vm, "accessible": accessible})).await.map(drop)
    }

    /// Moves a machine to another host.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn migrate(&self, vm: &str, host: &str) -> Result<()> {
        self.post("/vm/host", json!({"vm": vm, "host": host})).await.map(drop)
    }

    /// Moves a machine's files to another datastore.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn migrate_storage(&self, vm: &str, datastore: &str) -> Result<()> {
        self.post("/vm/datastore", json!({"vm": vm, "datastore": datastore})).await.map(drop)
    }

    /// Takes a machine off the inventory; its files stay.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn unregister(&self, vm: &str) -> Result<()> {
        self.post("/vm/unregister", json!({"vm": vm})).await.map(drop)
    }

    /// Deletes a machine, a datastore that no machine uses, or a host with its machines.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn delete(&self, object: &str) -> Result<()> {
        self.post("/delete", json!({"object": object})).await.map(drop)
    }

    /// Renames an object.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn rename(&self, object: &str, to: &str) -> Result<()> {
        self.post("/rename", json!({"object": object, "to": to})).await.map(drop)
    }

    /// Puts a tag on an object.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn tag(&self, category: &str, tag: &str, object: &str) -> Result<()> {
        self.post("/tag", json!({"category": category, "tag": tag, "object": object}))
            .await
            .map(drop)
    }

    /// Takes a tag off an object.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn untag(&self, category: &str, tag: &str, object: &str) -> Result<()> {
        self.post("/untag", json!({"category": category, "tag": tag, "object": object}))
            .await
            .map(drop)
    }

    /// Disconnects a host, or connects it again.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn connect_host(&self, host: &str, connected: bool) -> Result<()> {
        let state = if connected { "connected" } else { "disconnected" };
        self.post("/host/state", json!({"host": host, "state": state})).await.map(drop)
    }

    /// Puts a host into maintenance, or takes it out.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn maintain_host(&self, host: &str, maintenance: bool) -> Result<()> {
        self.post("/host/state", json!({"host": host, "maintenance": maintenance})).await.map(drop)
    }

    /// Says how many bytes a datastore has free.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn free_space(&self, datastore: &str, bytes: u64) -> Result<()> {
        self.post("/datastore/free", json!({"datastore": datastore, "free": bytes})).await.map(drop)
    }

    /// Makes a datastore inaccessible, or accessible again.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn reach_datastore(&self, datastore: &str, accessible: bool) -> Result<()> {
        self.post(
            "/datastore/accessible",
            json!({"datastore": datastore, "accessible": accessible}),
        )
        .await
        .map(drop)
    }

    /// Makes a datastore inaccessible to one of its hosts, or accessible again.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn reach_datastore_from(
        &self,
        datastore: &str,
        host: &str,
        accessible: bool,
    ) -> Result<()> {
        let body = json!({"datastore": datastore, "host": host, "accessible": accessible});
        self.post("/datastore/accessible", body).await.map(drop)
    }

    /// Marks a datastore as one on which drivers shall make no volumes, or takes the mark away.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn suspend_datastore(&self, datastore: &str, suspended: bool) -> Result<()> {
        let body = json!({"datastore": datastore, "suspended": suspended});
        self.post("/datastore/state", body).await.map(drop)
    }

    /// Puts a datastore into maintenance, or takes it out.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn maintain_datastore(&self, datastore: &str, maintenance: bool) -> Result<()> {
        let body = json!({"datastore": datastore, "maintenance": maintenance});
        self.post("/datastore/state", body).await.map(drop)
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Result<Value> {
        self.call("POST", path, body).await
    }

    /// One request on one connection: no client crate is worth its weight for this.
    pub(super) async fn call(&self, verb: &str, path: &str, body: Value) -> Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(self.at).await.with_context(|| {
            format!("the simulator's control endpoint {} does not answer", self.at)
        })?;
        let head = format!(
            "{verb} {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.at,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) =
            answer.split_once("\r\n\r\n").context("the control endpoint sent no answer")?;
        if head.split(' ').nth(1) != Some("200") {
            bail!("the simulator refused {verb} {path}: {}", body.trim());
        }
        Ok(serde_json::from_str(body)?)
    }
}
