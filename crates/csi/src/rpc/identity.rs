//! Who we are, and what we can do.

use tonic::{Request, Response, Status};

use crate::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
    identity_server::Identity as Server,
    plugin_capability::{self, VolumeExpansion, service, volume_expansion},
};

/// The name by which Kubernetes knows the driver.
const DRIVER: &str = "csi.vsphere.vmware.com";

/// Which services a process offers beside this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Services {
    /// The controller's.
    Controller,
    /// The node's.
    Node,
}

/// The identity service.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    services: Services,
}

impl Identity {
    /// Of a process that offers these services.
    pub fn new(services: Services) -> Self {
        Self { services }
    }
}

fn capability(kind: plugin_capability::Type) -> PluginCapability {
    PluginCapability { r#type: Some(kind) }
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
        let controller =
            plugin_capability::Service { r#type: service::Type::ControllerService.into() };
        let online = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
        let mut capabilities = vec![capability(plugin_capability::Type::VolumeExpansion(online))];
        if self.services == Services::Controller {
            capabilities.push(capability(plugin_capability::Type::Service(controller)));
        }
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
