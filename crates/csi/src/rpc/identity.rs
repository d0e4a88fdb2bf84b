//! Who we are, and what we can do.

use tonic::{Request, Response, Status};

use crate::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
    identity_server::Identity as Server,
    plugin_capability::{self, VolumeExpansion, volume_expansion},
};

/// The name by which Kubernetes knows the driver.
const DRIVER: &str = "csi.vsphere.vmware.com";

/// The identity service of a node's process.
#[derive(Debug, Clone, Copy)]
pub struct Identity;

#[tonic::async_trait]
impl Server for Identity {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: [].into(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let online = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
        let kind = plugin_capability::Type::VolumeExpansion(online);
        let capabilities = vec![PluginCapability { r#type: Some(kind) }];
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(
        &self,
        _request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        // A process that serves this is ready: volumes that are mounted need no vCenter, and a restart heals none.
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
