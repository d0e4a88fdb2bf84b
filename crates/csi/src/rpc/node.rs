//! The node service.

use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::parse;
use crate::{
    node::{Node, Stats, Usage},
    proto::{
        NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
        NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
        NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
        NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
        NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
        NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeCondition, VolumeUsage,
        node_server::Node as Server,
        node_service_capability::{self, Rpc, rpc},
        volume_usage::Unit,
    },
    refusal::Refusal,
};

/// The node service.
#[derive(Debug, Clone)]
pub struct NodeService {
    node: Node,
    /// The BIOS UUID of this node's VM.
    id: String,
    /// How many volumes fit; 0 if it is not known.
    slots: i64,
}

impl NodeService {
    /// The service of a node that vCenter knows by this UUID.
    pub fn new(node: Node, id: String, slots: i64) -> Self {
        Self { node, id, slots }
    }
}

/// Logs how a call ended, and gives it its code.
fn answered<T>(rpc: &'static str, volume: &str, done: Result<T, Refusal>) -> Result<T, Status> {
    match done {
        Ok(answer) => {
            info!(rpc, volume, "call answered");
            Ok(answer)
        }
        Err(refusal) => {
            warn!(rpc, volume, error = %refusal, "call refused");
            Err(refusal.into())
        }
    }
}

#[tonic::async_trait]
impl Server for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = parse::stage(request.into_inner())?;
        let volume = request.volume.clone();
        answered("NodeStageVolume", &volume, self.node.stage(request).await)?;
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume = parse::volume(&request.volume_id)?;
        let staging = parse::path("staging_target_path", &request.staging_target_path)?;
        let done = self.node.unstage(volume.clone(), staging).await;
        answered("NodeUnstageVolume", &volume, done)?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = parse::publish(request.into_inner())?;
        let volume = request.volume.clone();
        answered("NodePublishVolume", &volume, self.node.publish(request).await)?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume = parse::volume(&request.volume_id)?;
        let target = parse::path("target_path", &request.target_path)?;
        let done = self.node.unpublish(volume.clone(), target).await;
        answered("NodeUnpublishVolume", &volume, done)?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        let volume = parse::volume(&request.volume_id)?;
        let path = parse::path("volume_path", &request.volume_path)?;
        let Stats { bytes, inodes, problem } = self.node.stats(volume, path).await?;
        let mut usage = vec![usage(Unit::Bytes, &bytes)];
        usage.extend(inodes.map(|inodes| self::usage(Unit::Inodes, &inodes)));
        let volume_condition = Some(VolumeCondition {
            abnormal: problem.is_some(),
            message: problem.unwrap_or_else(|| "mounted and answering".to_owned()),
        });
        Ok(Response::new(NodeGetVolumeStatsResponse { usage, volume_condition }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = parse::expand(&request.into_inner())?;
        let volume = request.volume.clone();
        let bytes = answered("NodeExpandVolume", &volume, self.node.expand(request).await)?;
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes: saturated(bytes) }))
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let able = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::VolumeCondition,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capability = |kind: rpc::Type| NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = able.into_iter().map(capability).collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.id.clone(),
            max_volumes_per_node: self.slots,
            accessible_topology: None,
        }))
    }
}

fn usage(unit: Unit, usage: &Usage) -> VolumeUsage {
    VolumeUsage {
        available: saturated(usage.available),
        total: saturated(usage.total),
        used: saturated(usage.used),
        unit: unit.into(),
    }
}

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
