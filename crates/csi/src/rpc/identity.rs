//! Who we are, and what we can do.

use tonic::{Request, Response, Status};

use crate::{
    DRIVER,
    proto::{
        GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
        GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
        identity_server::Identity as Server,
        plugin_capability::{self, Service, VolumeExpansion, service, volume_expansion},
    },
};

/// The identity service, the same in every process of the driver: what one of them cannot do, another one can.
#[derive(Debug, Clone, Copy, Default)]
pub struct Identity {
    /// Whether volumes are placed by zones. A provisioner that reads so makes no volume for a node without a zone, so it
    /// must not be said where no zones are configured.
    pub is_zoned: bool,
}

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
        let controller = Service { r#type: service::Type::ControllerService.into() };
        let online = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
        let constraints = Service { r#type: service::Type::VolumeAccessibilityConstraints.into() };
        let constraints = self.is_zoned.then_some(plugin_capability::Type::Service(constraints));
        let kinds = [
            plugin_capability::Type::Service(controller),
            plugin_capability::Type::VolumeExpansion(online),
        ];
        let kinds = kinds.into_iter().chain(constraints);
        let capabilities = kinds.map(|kind| PluginCapability { r#type: Some(kind) }).collect();
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
