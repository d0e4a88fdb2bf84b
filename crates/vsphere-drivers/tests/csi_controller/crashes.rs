//! The controller is killed between any two of its effects, and another one goes on.
//!
//! ```text
//!   once, undisturbed ─► which writes to Kubernetes and which calls to vCenter an operation makes
//!   each of them again ─► held before or after it was carried out ─► SIGKILL ─► the next controller, the same request
//! ```
//!
//! At the end there are exactly the volumes and snapshots that were created and not deleted, each volume with one disk.

use std::collections::{BTreeMap, BTreeSet};

use csi::proto::CreateVolumeRequest;
use k8s_openapi::api::{coordination::v1::Lease, storage::v1::VolumeAttachment};
use kube::{Api, api::DeleteParams};
use lab::{
    Wait, until,
    vcenter::{Fault, Moment as TaskMoment},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    gate::{Gate, Moment},
    snapshots::{cloned, restored},
    world::{BOUND, Controller, NODES, Start, World, request},
};

const CREATE: &str = "CnsCreateVolume";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    /// Its task runs until it was recorded.
    CreateSlowly,
    Attach,
    Expand,
    Detach,
    Delete,
    /// By a VolumeAttachment.
    AttachObject,
    /// By deleting it.
    DetachObject,
    TakeSnapshot,
    DeleteSnapshot,
    /// A volume with the content of a snapshot, larger than that.
    Restore,
    /// A volume with the content of another one, larger than that.
    Clone,
}

/// Where a process is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Point {
    /// At a write to Kubernetes, by its number.
    Write(usize, Moment),
    /// vCenter carried the call out, and nobody knows. By its method and number.
    Done(String, u64),
    /// vCenter has the task, and has not begun with it.
    Begun(String, u64),
    /// The call reaches vCenter after the process is gone.
    Late(String, u64),
}

/// What is gone through, with the controller that runs at present.
struct Crashes {
    world: World,
    gate: Gate,
    controller: Option<Controller>,
    /// Volumes that must exist at the end, by name.
    volumes: BTreeMap<String, String>,
    /// Snapshots that must exist at the end, by the names of their volumes.
    snapshots: BTreeMap<String, String>,
    /// Creations that could not be ended at once, because an earlier attempt may still be under way; with what they are
    /// about.
    open: Vec<(Operation, String, String)>,
    kills: usize,
    /// Bytes in the beginning.
    available: i64,
}

fn named(name: &str) -> CreateVolumeRequest {
    request(name, 64)
}

impl Crashes {
    async fn start(release: &str) -> Self {
        let release = format!("release: {release}");
        let world = World::start_with(|usual| usual.replace("release: 8.0U3", &release)).await;
        let gate = Gate::start(&world).await;
        let mut crashes = Self {
            world,
            gate,
            controller: None,
            volumes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            open: Vec::new(),
            kills: 0,
            available: 0,
        };
        crashes.restart().await;
        crashes.available = crashes.controller().capacity().await.unwrap();
        crashes
    }

    fn controller(&self) -> &Controller {
        self.controller.as_ref().unwrap()
    }

    /// Kills the controller, and starts the next one.
    async fn restart(&mut self) {
        if let Some(killed) = self.controller.take() {
            killed.kill();
            self.kills += 1;
        }
        self.gate.open();
        // As if the killed one's time had run out.
        let leases: Api<Lease> = Api::namespaced(self.world.plane.client(), csi_namespace());
        leases.delete(LEASE, &DeleteParams::default()).await.ok();
        let kubeconfig = Some(self.gate.kubeconfig.clone());
        let flags = &["--attach"];
        let start = Start { kubeconfig, flags, ..Start::controller("csi.sock") };
        let controller = self.world.serve(start).await;
        controller.until_ready().await;
        self.controller = Some(controller);
    }

    /// What an operation is about: made before it begins.
    async fn prepare(&mut self, operation: Operation, name: &str) -> String {
        if matches!(operation, Operation::Create | Operation::CreateSlowly) {
            return String::new();
        }
        let volume = self.create(name).await.unwrap();
        self.volumes.insert(name.to_owned(), volume.clone());
        match operation {
            Operation::Detach => {
                let attached = async |to: &Controller| to.attach(&volume, NODES[0]).await;
                self.controller().patiently("attached", attached).await.unwrap();
            }
            Operation::AttachObject | Operation::DetachObject => {
                self.world.plane.apply(&[persistent_volume(name, &volume)]).unwrap();
                if operation == Operation::DetachObject {
                    self.world.plane.apply(&[attachment(name)]).unwrap();
                    self.until_attached(name).await;
                }
            }
            Operation::DeleteSnapshot | Operation::Restore => {
                let take = async |to: &Controller| to.snapshot(&volume, &snapshot_of(name)).await;
                let taken = self.controller().patiently("taken", take).await.unwrap();
                self.snapshots.insert(name.to_owned(), taken.snapshot_id);
            }
            _ => {}
        }
        volume
    }

    async fn create(&self, name: &str) -> Result<String, Status> {
        let create = async |to: &Controller| to.create(named(name)).await;
        self.controller().patiently("created", create).await
    }

    /// Creates a volume whose task ends after the second write: the first one is that of the call, the second one that
    /// of the task.
    async fn create_slowly(&self, name: &str) -> Result<(), Status> {
        let control = self.world.vcenter.control();
        let task = Fault { fault: None, at: TaskMoment::Hold, ..Fault::next(CREATE, "") };
        control.fail(&task).await.unwrap();
        let recorded = async {
            self.gate.until_written(2).await;
            control.release_tasks().await.unwrap();
            std::future::pending().await
        };
        tokio::select! {
            made = self.controller().create(named(name)) => made.map(|_| ()),
            never = recorded => never,
        }
    }

    /// Asks for an operation, and does not wait for objects.
    async fn request(&self, operation: Operation, name: &str, volume: &str) -> Result<(), Status> {
        match operation {
            Operation::CreateSlowly => self.create_slowly(name).await,
            Operation::Attach => self.controller().attach(volume, NODES[0]).await.map(|_| ()),
            Operation::Detach => self.controller().detach(volume, NODES[0]).await,
            Operation::Delete => self.controller().delete(volume).await,
            Operation::Expand => self.controller().expand(volume, 128).await,
            Operation::AttachObject => {
                self.world.plane.apply(&[attachment(name)]).unwrap();
                Ok(())
            }
            Operation::DetachObject => {
                self.attachments().delete(name, &DeleteParams::default()).await.ok();
                Ok(())
            }
            Operation::DeleteSnapshot => {
                self.controller().delete_snapshot(&self.snapshots[name]).await
            }
            _ => self.make(operation, name, volume).await.map(|_| ()),
        }
    }

    /// Requests a volume or a snapshot, and returns its id.
    async fn make(&self, operation: Operation, name: &str, volume: &str) -> Result<String, Status> {
        let (to, copy) = (self.controller(), copy_of(name));
        match operation {
            Operation::TakeSnapshot => {
                let taken = to.snapshot(volume, &snapshot_of(name)).await;
                taken.map(|taken| taken.snapshot_id)
            }
            Operation::Restore => to.create(restored(&copy, 128, &self.snapshots[name])).await,
            Operation::Clone => to.create(cloned(&copy, 128, volume)).await,
            _ => to.create(named(name)).await,
        }
    }

    /// Notes what a request made.
    fn made(&mut self, operation: Operation, name: &str, id: String) {
        match operation {
            Operation::TakeSnapshot => self.snapshots.insert(name.to_owned(), id),
            Operation::Restore | Operation::Clone => self.volumes.insert(copy_of(name), id),
            _ => self.volumes.insert(name.to_owned(), id),
        };
    }

    /// Asks again until it is done, and checks what came of it.
    async fn finish(&mut self, operation: Operation, name: &str, volume: &str) {
        match operation {
            Operation::Create
            | Operation::CreateSlowly
            | Operation::TakeSnapshot
            | Operation::Restore
            | Operation::Clone => match self.make(operation, name, volume).await {
                Ok(id) => self.made(operation, name, id),
                Err(status) if status.code() == Code::Aborted => {
                    self.open.push((operation, name.to_owned(), volume.to_owned()));
                }
                Err(_) => self.make_patiently(operation, name, volume).await,
            },
            Operation::AttachObject => {
                self.request(operation, name, volume).await.unwrap();
                self.until_attached(name).await;
            }
            Operation::DetachObject => {
                self.request(operation, name, volume).await.unwrap();
                self.until_gone(name).await;
            }
            _ => {
                let request = async |_: &Controller| self.request(operation, name, volume).await;
                self.controller().patiently("done", request).await.unwrap();
            }
        }
        let has = self.attached_to(volume).await;
        match operation {
            Operation::Attach | Operation::AttachObject => {
                assert_eq!(has.len(), 1, "{name}: {has:?}");
            }
            Operation::Detach | Operation::DetachObject => assert!(has.is_empty(), "{name}"),
            Operation::Delete => {
                self.volumes.remove(name);
            }
            Operation::DeleteSnapshot => {
                self.snapshots.remove(name);
            }
            _ => {}
        }
    }

    async fn make_patiently(&mut self, operation: Operation, name: &str, volume: &str) {
        let make = async |_: &Controller| self.make(operation, name, volume).await;
        let id = self.controller().patiently("made", make).await.unwrap();
        self.made(operation, name, id);
    }

    /// The VMs that have a volume.
    async fn attached_to(&self, volume: &str) -> Vec<String> {
        let attached = self.world.vcenter.control().state().await.unwrap().attachments;
        let of_volume = attached.iter().filter(|one| one["volume"] == volume);
        of_volume.map(|one| one["vm"].as_str().unwrap().to_owned()).collect()
    }

    fn attachments(&self) -> Api<VolumeAttachment> {
        Api::all(self.world.plane.client())
    }

    async fn until_attached(&self, name: &str) {
        let attached = until("attached", 3 * BOUND, || async {
            let found = self.attachments().get(name).await?;
            let status = found.status.clone().unwrap_or_default();
            let seen = format!("{found:?}");
            Ok(if status.attached { Wait::Done(status) } else { Wait::NotYet(seen) })
        });
        let status =
            attached.await.unwrap_or_else(|error| panic!("{error}\n{}", self.controller().log()));
        assert_eq!(status.attachment_metadata.unwrap()["diskUUID"].len(), 32);
    }

    async fn until_gone(&self, name: &str) {
        let gone = until("gone", 3 * BOUND, || async {
            let found = self.attachments().get_opt(name).await?;
            Ok(found.map_or(Wait::Done(()), |found| Wait::NotYet(format!("{found:?}"))))
        });
        gone.await.unwrap_or_else(|error| panic!("{error}\n{}", self.controller().log()));
    }

    /// The points of an operation, from one that nothing disturbs.
    async fn points(&mut self, operation: Operation) -> Vec<Point> {
        let name = format!("{operation:?}-undisturbed").to_lowercase();
        let volume = self.prepare(operation, &name).await;
        self.gate.open();
        let before = self.changes().await;
        self.request(operation, &name, &volume).await.unwrap();
        if matches!(operation, Operation::AttachObject | Operation::DetachObject) {
            self.finish(operation, &name, &volume).await;
        }
        let (after, writes) = (self.changes().await, self.gate.open());
        self.finish(operation, &name, &volume).await;
        let mut points = Vec::new();
        for (number, _) in writes.iter().enumerate() {
            points.extend([Moment::Before, Moment::After].map(|at| Point::Write(number, at)));
        }
        if operation == Operation::CreateSlowly {
            // Its calls are those of a create.
            return points;
        }
        for (method, count) in after {
            for number in 0..count - before.get(&method).copied().unwrap_or_default() {
                let kinds = [Point::Done, Point::Begun, Point::Late];
                points.extend(kinds.map(|kind| kind(method.clone(), number)));
            }
        }
        points
    }

    /// How often the calls were made that change volumes.
    async fn changes(&self) -> BTreeMap<String, u64> {
        let calls = self.world.vcenter.control().calls().await.unwrap();
        let calls = calls["calls"].as_array().unwrap().clone();
        let mut changes = BTreeMap::new();
        for call in calls {
            let method = call["method"].as_str().unwrap_or_default();
            let is_change = method.starts_with("Cns") && !method.starts_with("CnsQuery");
            if is_change {
                *changes.entry(method.to_owned()).or_default() += call["count"].as_u64().unwrap();
            }
        }
        changes
    }

    /// Kills the controller at a point of an operation, and lets the next one end it.
    async fn crash(&mut self, operation: Operation, point: &Point, number: usize) {
        let name = format!("{operation:?}-{number}").to_lowercase();
        let volume = self.prepare(operation, &name).await;
        let control = self.world.vcenter.control().clone();
        let armed = match point {
            Point::Write(number, moment) => {
                self.gate.hold(*number, *moment);
                None
            }
            Point::Done(method, skip) => Some(control.hang_one(method, *skip).await.unwrap()),
            Point::Begun(method, skip) => {
                let skip = u32::try_from(*skip).unwrap();
                let fault = Fault::next(method, "");
                let fault = Fault { fault: None, skip, at: TaskMoment::Hold, ..fault };
                Some(control.fail(&fault).await.unwrap())
            }
            Point::Late(method, skip) => {
                Some(control.delay_one(method, *skip, 2000).await.unwrap())
            }
        };
        {
            let held = async {
                match armed {
                    None => self.gate.until_held().await,
                    Some(rule) => self.world.until_struck(rule).await,
                }
            };
            tokio::select! {
                () = held => {}
                ended = self.never_ends(operation, &name, &volume) => panic!("{name} {point:?}: {ended:?}"),
            }
        }
        self.restart().await;
        if operation == Operation::CreateSlowly {
            control.disarm().await.unwrap();
        }
        if matches!(point, Point::Begun(..)) || operation == Operation::CreateSlowly {
            // The work of the killed process's call ends while the next process begins.
            control.release_tasks().await.unwrap();
        }
        self.finish(operation, &name, &volume).await;
    }

    /// Requests an operation that is not going to be answered.
    async fn never_ends(&self, operation: Operation, name: &str, volume: &str) -> Option<Status> {
        match self.request(operation, name, volume).await {
            Ok(()) if matches!(operation, Operation::AttachObject | Operation::DetachObject) => {
                std::future::pending().await
            }
            Ok(()) => None,
            Err(status) => Some(status),
        }
    }

    /// The record of a volume says that it was made, and which one it is.
    async fn check_record(&self, name: &str) {
        let record = self.world.record(name).await.unwrap();
        let status = &record["status"];
        let last = status["latestOperationDetails"].as_array().unwrap().last().unwrap();
        assert_eq!(status["volumeID"], self.volumes[name], "{record:#}");
        assert_eq!(last["taskStatus"], "Success", "{record:#}");
    }

    /// Ends the creations that had to wait, and compares all that there is with what was requested.
    async fn settle(&mut self) {
        for (operation, name, volume) in std::mem::take(&mut self.open) {
            self.make_patiently(operation, &name, &volume).await;
        }
        let snapshots: BTreeSet<String> =
            self.world.snapshots().await.into_iter().map(|(id, _)| id).collect();
        let expected: BTreeSet<String> = self.snapshots.values().cloned().collect();
        assert_eq!(snapshots, expected, "snapshots of vCenter, and those that were taken");
        let ids: BTreeSet<&String> = self.volumes.values().collect();
        assert_eq!(ids.len(), self.volumes.len(), "no two names are one volume");
        let state = self.world.vcenter.control().state_as_json().await.unwrap();
        let found: BTreeMap<String, String> = state["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (text(&one["name"]), text(&one["id"])))
            .collect();
        assert_eq!(found, self.volumes, "volumes of vCenter, and those that were created");
        let volumes = state["volumes"].as_array().unwrap();
        assert_eq!(volumes.len(), found.len(), "one of each name");
        let sizes: i64 = volumes.iter().map(|one| one["capacityMb"].as_i64().unwrap() << 20).sum();
        until("no other disks take space", BOUND, || async {
            let taken = self.available - self.controller().capacity().await?;
            let seen = format!("the volumes have {sizes} bytes, and {taken} are taken");
            Ok(if taken == sizes { Wait::Done(()) } else { Wait::NotYet(seen) })
        })
        .await
        .unwrap();
        for name in self.volumes.keys() {
            self.check_record(name).await;
        }
    }
}

/// The name of a volume's snapshot.
fn snapshot_of(name: &str) -> String {
    format!("snapshot-{name}")
}

/// The name of a volume with another one's content.
fn copy_of(name: &str) -> String {
    format!("{name}-copy")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

const LEASE: &str = "external-attacher-leader-csi-vsphere-vmware-com";

fn csi_namespace() -> &'static str {
    csi::manifests::NAMESPACE
}

fn persistent_volume(name: &str, volume: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "64Mi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": csi::DRIVER, "volumeHandle": volume},
        },
    })
}

fn attachment(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {
            "attacher": csi::DRIVER,
            "nodeName": "node-1",
            "source": {"persistentVolumeName": name},
        },
    })
}

async fn kill_everywhere(release: &str, operations: &[Operation]) -> usize {
    let mut crashes = Crashes::start(release).await;
    for operation in operations {
        let points = crashes.points(*operation).await;
        for (number, point) in points.iter().enumerate() {
            crashes.crash(*operation, point, number).await;
        }
    }
    crashes.settle().await;
    crashes.kills
}

#[tokio::test]
async fn a_controller_that_is_killed_between_any_two_effects_loses_and_doubles_nothing() {
    let operations = [
        Operation::Create,
        Operation::CreateSlowly,
        Operation::Attach,
        Operation::Expand,
        Operation::Detach,
        Operation::Delete,
        Operation::AttachObject,
        Operation::DetachObject,
    ];
    let kills = kill_everywhere("8.0U3", &operations).await;
    assert!(kills >= 33, "{kills} kills");
}

#[tokio::test]
async fn a_controller_that_is_killed_loses_and_doubles_no_snapshot_and_no_copy() {
    let operations =
        [Operation::TakeSnapshot, Operation::DeleteSnapshot, Operation::Restore, Operation::Clone];
    let kills = kill_everywhere("8.0U3", &operations).await;
    assert!(kills >= 40, "{kills} kills");
}

/// There a volume takes two calls: the first one has an id that such hosts do not take.
#[tokio::test]
async fn a_controller_that_is_killed_doubles_nothing_where_hosts_are_older_than_vcenter() {
    let release = "9.1\nassumptions: {OldHosts: without chosen ids}";
    let kills = kill_everywhere(release, &[Operation::Create]).await;
    assert!(kills >= 12, "{kills} kills");
}
