//! What a machine's guest reports beyond its network cards.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use super::Control;

/// What real guests report now and then. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GuestReport {
    /// `false`: no interfaces, although the tools run and the guest has an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<bool>,
    /// The one address, whatever the cards have: link-local, IPv6, that of a bridge. Empty takes it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// Interfaces that no card belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Vec<GuestInterface>>,
    /// So many interfaces of pods; with more than 16 interfaces in all the addresses are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_interfaces: Option<u32>,
    /// Whether these two kinds stand before the cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces_first: Option<bool>,
    /// So many looks at the guest find no address at all; then all is as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blank_reads: Option<u32>,
}

/// An interface of the guest alone, such as a bridge or a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GuestInterface {
    /// Empty for a tunnel.
    pub mac: String,
    /// With or without prefix length.
    pub addresses: Vec<String>,
}

impl Control {
    /// Changes what a machine's guest reports, until it is changed again.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn report_guest(&self, vm: &str, report: &GuestReport) -> Result<()> {
        let mut body = serde_json::to_value(report)?;
        body["vm"] = json!(vm);
        self.post("/vm/guest", body).await.map(drop)
    }

    /// Lets a machine leave the inventory in the middle of the next read that finds it.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn vanish(&self, vm: &str) -> Result<()> {
        self.post("/vm/vanish", json!({"vm": vm})).await.map(drop)
    }
}
