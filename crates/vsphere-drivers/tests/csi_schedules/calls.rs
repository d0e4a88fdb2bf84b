//! Calls as sidecars make them: again and again, until the answer is one that counts.

use std::{cell::Cell, time::Duration};

use anyhow::{Result, bail};
use csi::{
    client::Client,
    proto::{
        CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
        ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
        ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateVolumeRequest,
        CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, ListVolumesRequest,
        ListVolumesResponse, VolumeCapability,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

use crate::{
    lane::{Lane, id},
    script::CONTROLLERS,
};

/// How long one call may take before it is made again.
const PATIENCE: Duration = Duration::from_secs(15);
/// A call that has not succeeded after this time never will: all troubles have ended long before.
pub(crate) const BOUND: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(100);
const MIB: i64 = 1 << 20;

/// Who calls. It goes to the other controller only when its own one does not serve: sidecars of both replicas never
/// work at the same time.
pub(crate) struct Caller<'a> {
    lane: &'a Lane,
    controller: Cell<usize>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(lane: &'a Lane, controller: usize) -> Self {
        Self { lane, controller: Cell::new(controller % CONTROLLERS) }
    }

    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A>
    where
        Q: prost::Message + Clone + std::fmt::Debug + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let began = Instant::now();
        loop {
            let called = timeout(PATIENCE, self.once(method, request.clone())).await;
            let seen = match called {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) if is_wrong(&status) => {
                    bail!("{method} was refused for good: {status}\n{request:?}")
                }
                Ok(Err(status)) => {
                    // The connection was lost, or there is none.
                    if status.code() == Code::Unknown {
                        self.controller.set((self.controller.get() + 1) % CONTROLLERS);
                    }
                    status.to_string()
                }
                Err(_) => "no answer".to_owned(),
            };
            if began.elapsed() > BOUND {
                bail!("{method} did not succeed; last: {seen}\n{request:?}");
            }
            sleep(PAUSE).await;
        }
    }

    async fn once<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let socket = self.lane.socket(self.controller.get());
        let client = Client::connect(&socket).await;
        client.map_err(|error| Status::unknown(error.to_string()))?.call(method, request).await
    }

    /// Creates a volume, and returns its id and its size in MiB.
    pub(crate) async fn create(&self, name: &str, mebibytes: i64) -> Result<(String, i64)> {
        let range = CapacityRange { required_bytes: mebibytes * MIB, limit_bytes: 0 };
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(range),
            volume_capabilities: vec![capability()],
            ..CreateVolumeRequest::default()
        };
        let answer: CreateVolumeResponse =
            self.call("/csi.v1.Controller/CreateVolume", request).await?;
        let volume = answer.volume.unwrap_or_default();
        Ok((volume.volume_id, volume.capacity_bytes / MIB))
    }

    pub(crate) async fn delete(&self, volume: &str) -> Result<()> {
        let request =
            DeleteVolumeRequest { volume_id: volume.to_owned(), ..DeleteVolumeRequest::default() };
        let _answer: DeleteVolumeResponse =
            self.call("/csi.v1.Controller/DeleteVolume", request).await?;
        Ok(())
    }

    /// Attaches a volume, and returns the UUID of its disk.
    pub(crate) async fn attach(&self, volume: &str, node: usize) -> Result<String> {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: id(node),
            volume_capability: Some(capability()),
            ..ControllerPublishVolumeRequest::default()
        };
        let mut answer: ControllerPublishVolumeResponse =
            self.call("/csi.v1.Controller/ControllerPublishVolume", request).await?;
        Ok(answer.publish_context.remove("diskUUID").unwrap_or_default())
    }

    pub(crate) async fn detach(&self, volume: &str, node: usize) -> Result<()> {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: id(node),
            ..ControllerUnpublishVolumeRequest::default()
        };
        let _answer: ControllerUnpublishVolumeResponse =
            self.call("/csi.v1.Controller/ControllerUnpublishVolume", request).await?;
        Ok(())
    }

    /// Grows a volume, and returns its size in MiB.
    pub(crate) async fn expand(&self, volume: &str, mebibytes: i64) -> Result<i64> {
        let range = CapacityRange { required_bytes: mebibytes * MIB, limit_bytes: 0 };
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.to_owned(),
            capacity_range: Some(range),
            volume_capability: Some(capability()),
            ..ControllerExpandVolumeRequest::default()
        };
        let answer: ControllerExpandVolumeResponse =
            self.call("/csi.v1.Controller/ControllerExpandVolume", request).await?;
        Ok(answer.capacity_bytes / MIB)
    }

    /// Reads the list of volumes, page by page.
    pub(crate) async fn list(&self) -> Result<()> {
        let mut request = ListVolumesRequest { max_entries: 3, ..ListVolumesRequest::default() };
        loop {
            let answer: ListVolumesResponse =
                self.call("/csi.v1.Controller/ListVolumes", request.clone()).await?;
            if answer.next_token.is_empty() {
                return Ok(());
            }
            request.starting_token = answer.next_token;
        }
    }
}

/// Whether an answer is one that no trouble explains.
fn is_wrong(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::AlreadyExists
            | Code::InvalidArgument
            | Code::NotFound
            | Code::OutOfRange
            | Code::PermissionDenied
            | Code::Unimplemented
    )
}

fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}
