//! The node service.

use tonic::{Request, Response, Status};

use super::{parse, saturated};
use crate::{
    machine::Machine,
    node::{Node, Stats, Usage},
    proto::{
        NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
        NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
        NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
        NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
        NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
        NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, Topology, VolumeCondition,
        VolumeUsage,
        node_server::Node as Server,
        node_service_capability::{self, Rpc, rpc},
        volume_usage::Unit,
    },
    serve::about_volume,
    topology::NodeTopology,
};

/// The node service.
#[derive(Clone)]
pub struct NodeService {
    node: Node,
    machine: Machine,
    topology: NodeTopology,
}

impl NodeService {
    /// The service of a node.
    pub fn new(node: Node, machine: Machine, topology: NodeTopology) -> Self {
        Self { node, machine, topology }
    }
}

#[tonic::async_trait]
impl Server for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        about_volume(&request.volume_id);
        self.node.stage(parse::stage(request)?).await?;
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        about_volume(&request.volume_id);
        let volume = parse::volume(&request.volume_id)?;
        let staging = parse::path("staging_target_path", &request.staging_target_path)?;
        self.node.unstage(volume, staging).await?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        about_volume(&request.volume_id);
        self.node.publish(parse::publish(request)?).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        about_volume(&request.volume_id);
        let volume = parse::volume(&request.volume_id)?;
        let target = parse::path("target_path", &request.target_path)?;
        self.node.unpublish(volume, target).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        about_volume(&request.volume_id);
        let volume = parse::volume(&request.volume_id)?;
        let path = parse::volume_path(&request.volume_path)?;
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
        let request = request.into_inner();
        about_volume(&request.volume_id);
        let bytes = self.node.expand(parse::expand(&request)?).await?;
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
        let node_id = self.machine.id().await?;
        let labels = self.topology.labels(&node_id).await?;
        let segments = labels.into_iter().collect();
        Ok(Response::new(NodeGetInfoResponse {
            node_id,
            max_volumes_per_node: self.machine.max_volumes().await,
            accessible_topology: Some(Topology { segments }).filter(|one| !one.segments.is_empty()),
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
