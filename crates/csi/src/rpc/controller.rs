//! The controller service.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::{BLOCK_VOLUME, parse, saturated};
use crate::{
    metrics::{Metrics, Operation},
    proto::{
        self, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
        ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse,
        ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerModifyVolumeRequest,
        ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
        ControllerPublishVolumeResponse, ControllerServiceCapability,
        ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest,
        CreateSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest,
        DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest,
        GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest,
        ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, Topology,
        ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
        VolumeCondition, controller_get_volume_response,
        controller_server::Controller as Server,
        controller_service_capability::{self, Rpc, rpc},
        list_snapshots_response,
        list_volumes_response::{self, Entry},
        validate_volume_capabilities_response::Confirmed,
    },
    refusal::{Kind, Refusal},
    serve::about_volume,
    volumes::{Listed, Segment, Snapshot, SnapshotPage, Volumes},
};

/// In the publish context: the UUID of the attached disk.
pub(crate) const DISK_UUID: &str = "diskUUID";

/// How long a question about capabilities waits for vCenter.
const RELEASE_KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// The controller service.
#[derive(Debug, Clone)]
pub struct ControllerService {
    volumes: Volumes,
    metrics: Metrics,
}

impl ControllerService {
    /// The service over operations on volumes.
    pub fn new(volumes: Volumes, metrics: Metrics) -> Self {
        Self { volumes, metrics }
    }
}

#[tonic::async_trait]
impl Server for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let content_source = request.volume_content_source.clone();
        let request = parse::create(request)?;
        about_volume(&request.name);
        let running = self.metrics.start(Operation::Create);
        let created = running.ended(self.volumes.create(request).await)?;
        let volume = Volume {
            capacity_bytes: saturated(created.bytes),
            volume_id: created.id,
            volume_context: [("type".to_owned(), BLOCK_VOLUME.to_owned())].into(),
            content_source,
            accessible_topology: created.accessible.iter().map(topology).collect(),
        };
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let volume = parse::volume(&request.into_inner().volume_id)?;
        about_volume(&volume);
        let running = self.metrics.start(Operation::Delete);
        running.ended(self.volumes.delete(&volume).await)?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let (volume, node) = parse::attach(request.into_inner())?;
        about_volume(&volume);
        let running = self.metrics.start(Operation::Attach);
        let published = running.ended(self.volumes.publish(&volume, &node).await)?;
        let context = [("type", BLOCK_VOLUME.to_owned()), (DISK_UUID, published.disk)];
        let publish_context = context.into_iter().map(|(key, value)| (key.to_owned(), value));
        Ok(Response::new(ControllerPublishVolumeResponse {
            publish_context: publish_context.collect(),
        }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume = parse::volume(&request.volume_id)?;
        about_volume(&volume);
        let nodes = match request.node_id.as_str() {
            "" => self.nodes_of(&volume).await?,
            node => [parse::node(node)?].into(),
        };
        for node in nodes {
            let running = self.metrics.start(Operation::Detach);
            running.ended(self.volumes.unpublish(&volume, &node).await)?;
        }
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let volume = parse::volume(&request.volume_id)?;
        parse::some_capabilities(&request.volume_capabilities)?;
        let judged = parse::capabilities(&request.volume_capabilities);
        if !self.volumes.exists(&volume).await? {
            let what = format!("volume {volume} does not exist");
            return Err(Refusal::new(Kind::NotFound, what).into());
        }
        let answer = match judged {
            Ok(()) => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
            Err(refusal) => {
                ValidateVolumeCapabilitiesResponse { confirmed: None, message: refusal.to_string() }
            }
        };
        Ok(Response::new(answer))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let request = request.into_inner();
        let most = parse::max_entries(request.max_entries)?;
        let from = parse::token(&request.starting_token)?;
        let running = self.metrics.start(Operation::List);
        let page = running.ended(self.volumes.list(&from, most).await)?;
        let entry = |listed: Listed| Entry {
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: listed.nodes.iter().cloned().collect(),
                volume_condition: Some(condition(&listed)),
            }),
            volume: Some(volume(listed)),
        };
        Ok(Response::new(ListVolumesResponse {
            entries: page.volumes.into_iter().map(entry).collect(),
            next_token: page.next.map(|next| next.to_string()).unwrap_or_default(),
        }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let request = request.into_inner();
        if !request.volume_capabilities.is_empty()
            && parse::capabilities(&request.volume_capabilities).is_err()
        {
            // No volume of that kind fits anywhere.
            return Ok(Response::new(GetCapacityResponse::default()));
        }
        let parameters = parse::parameters(&request.parameters)?;
        let policy = parameters.policy.as_deref();
        let topology = request.accessible_topology.unwrap_or_default();
        let segment = parse::segment("accessible_topology", topology)?;
        let capacity =
            self.volumes.capacity(policy, &parameters.selection, segment.as_ref()).await?;
        Ok(Response::new(GetCapacityResponse {
            available_capacity: saturated(capacity.available),
            maximum_volume_size: Some(saturated(capacity.largest)),
            minimum_volume_size: Some(1 << 20),
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let mut able = vec![
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::ListVolumes,
            rpc::Type::ListVolumesPublishedNodes,
            rpc::Type::GetCapacity,
            rpc::Type::ExpandVolume,
            rpc::Type::GetVolume,
            rpc::Type::VolumeCondition,
            rpc::Type::SingleNodeMultiWriter,
        ];
        if self.have_snapshots().await {
            able.extend([
                rpc::Type::CreateDeleteSnapshot,
                rpc::Type::ListSnapshots,
                rpc::Type::CloneVolume,
            ]);
        }
        let capability = |kind: rpc::Type| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = able.into_iter().map(capability).collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = parse::grow(request.into_inner())?;
        about_volume(&request.volume);
        let running = self.metrics.start(Operation::Expand);
        let expanded = self.volumes.expand(&request.volume, request.required, request.limit).await;
        let expanded = running.ended(expanded)?;
        Ok(Response::new(ControllerExpandVolumeResponse {
            capacity_bytes: saturated(expanded.bytes),
            // The kernel must notice the new size of a device, too.
            node_expansion_required: true,
        }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        let id = parse::volume(&request.into_inner().volume_id)?;
        let listed = self.volumes.get(&id).await?;
        let status = controller_get_volume_response::VolumeStatus {
            published_node_ids: listed.nodes.iter().cloned().collect(),
            volume_condition: Some(condition(&listed)),
        };
        Ok(Response::new(ControllerGetVolumeResponse {
            volume: Some(volume(listed)),
            status: Some(status),
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let (volume, name) = parse::snapshot(request.into_inner())?;
        about_volume(&volume);
        let running = self.metrics.start(Operation::CreateSnapshot);
        let taken = running.ended(self.volumes.take_snapshot(&volume, &name).await)?;
        Ok(Response::new(CreateSnapshotResponse { snapshot: Some(snapshot(&taken)) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        if let Some(id) = parse::snapshot_id(&request.into_inner().snapshot_id)? {
            about_volume(&id.volume);
            let running = self.metrics.start(Operation::DeleteSnapshot);
            running.ended(self.volumes.delete_snapshot(&id).await)?;
        }
        Ok(Response::new(DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let request = request.into_inner();
        let most = parse::max_entries(request.max_entries)?;
        let from = parse::token(&request.starting_token)?;
        let volume = Some(request.source_volume_id).filter(|id| !id.is_empty());
        let running = self.metrics.start(Operation::ListSnapshots);
        let page = match Some(request.snapshot_id).filter(|id| !id.is_empty()) {
            Some(id) => {
                let found = self.find_snapshot(&id).await;
                let found = running.ended(found)?;
                let is_meant =
                    |one: &Snapshot| volume.as_ref().is_none_or(|id| *id == one.id.volume);
                let snapshots = found.into_iter().filter(is_meant).collect();
                SnapshotPage { snapshots, next: None }
            }
            None => {
                let listed = self.volumes.list_snapshots(volume.as_deref(), &from, most).await;
                running.ended(listed)?
            }
        };
        let entry =
            |one: &Snapshot| list_snapshots_response::Entry { snapshot: Some(snapshot(one)) };
        Ok(Response::new(ListSnapshotsResponse {
            entries: page.snapshots.iter().map(entry).collect(),
            next_token: page.next.map(|next| next.to_string()).unwrap_or_default(),
        }))
    }

    async fn get_snapshot(
        &self,
        _request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        // Part of the specification for too short a time: what checks capabilities does not know it.
        Err(not_advertised("GetSnapshot; ListSnapshots takes the id of a snapshot"))
    }

    async fn controller_modify_volume(
        &self,
        _request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        Err(not_advertised("modification of volumes"))
    }
}

impl ControllerService {
    /// Whether snapshots and clones work: they are taken to while vCenter has not been reached yet.
    async fn have_snapshots(&self) -> bool {
        let known = timeout(RELEASE_KNOWN_WITHIN, self.volumes.have_snapshots()).await;
        known.ok().flatten().unwrap_or(true)
    }

    async fn find_snapshot(&self, id: &str) -> Result<Option<Snapshot>, Refusal> {
        match parse::snapshot_id(id)? {
            Some(id) => self.volumes.snapshot(&id).await,
            None => Ok(None),
        }
    }

    /// All nodes that have a volume.
    async fn nodes_of(&self, volume: &str) -> Result<BTreeSet<String>, Status> {
        match self.volumes.get(volume).await {
            Ok(listed) => Ok(listed.nodes),
            Err(refusal) if refusal.kind == Kind::NotFound => Ok(BTreeSet::new()),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

fn not_advertised(what: &str) -> Status {
    Status::unimplemented(format!("this version of the driver has no {what}"))
}

fn topology(segment: &Segment) -> Topology {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    Topology { segments: segment.labels().map(owned).collect() }
}

fn snapshot(found: &Snapshot) -> proto::Snapshot {
    proto::Snapshot {
        size_bytes: saturated(found.bytes),
        snapshot_id: found.id.to_string(),
        source_volume_id: found.id.volume.clone(),
        creation_time: Some(prost_types::Timestamp {
            seconds: found.taken.as_second(),
            nanos: found.taken.subsec_nanosecond(),
        }),
        // vCenter answers when the snapshot can be used.
        ready_to_use: true,
        ..proto::Snapshot::default()
    }
}

fn volume(listed: Listed) -> Volume {
    Volume {
        volume_id: listed.id,
        capacity_bytes: saturated(listed.bytes.unwrap_or_default()),
        ..Volume::default()
    }
}

fn condition(listed: &Listed) -> VolumeCondition {
    VolumeCondition {
        abnormal: listed.problem.is_some(),
        message: listed.problem.clone().unwrap_or_else(|| "vCenter reports no problem".to_owned()),
    }
}
