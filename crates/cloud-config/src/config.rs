//! A configuration whose values have all been validated.

mod csi;

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use vsphere::{endpoint::Endpoint, tls::Trust};

use crate::secret::{Login, Logins, MissingLogin};

pub use csi::{
    Access, ClusterId, ClusterIdProblem, CsiConfig, CsiVCenter, Intervals, InvalidClusterId,
    NetPermission, SnapshotLimits, TopologyCategory,
};

/// The configuration of the cloud controller manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// At least one, in the order of the file.
    pub vcenters: Vec<VCenter>,
    /// The categories of the tags that name zones and regions.
    pub labels: Labels,
    /// Which addresses nodes get.
    pub nodes: Nodes,
}

/// One vCenter, with everything that it inherits from the global section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VCenter {
    /// The name of its section.
    pub name: String,
    /// The server as the user wrote it, which is what Secrets name it by.
    pub server: String,
    /// The server as connections need it.
    pub endpoint: Endpoint,
    /// How its certificate is verified.
    pub trust: Trust,
    /// Where VMs are looked for: names, inventory paths or references. Everywhere if empty.
    pub datacenters: Vec<String>,
    /// Where user and password come from.
    pub credentials: CredentialSource,
    /// The user and password in the file, for a Secret or directory that has none for this server.
    pub fallback: Option<Inline>,
    /// Which addresses nodes get, the preferred family first; at least one, none twice.
    pub ip_families: Vec<IpFamily>,
}

impl VCenter {
    /// The login from the Secret or directory, or the fallback if it has none for this server. `None` stands for
    /// a Secret or directory that does not exist.
    pub fn login(&self, logins: Option<&Logins>) -> Result<Login, MissingLogin> {
        let none = Logins::default();
        let found = logins.unwrap_or(&none).find(&self.server);
        match (found, &self.fallback) {
            (Ok(login), _) => Ok(login.clone()),
            (Err(_), Some(inline)) => Ok(Login::Password(inline.clone())),
            (Err(missing), None) => Err(missing),
        }
    }
}

/// Where a vCenter's credentials come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// They are in the file itself, or in the environment.
    Inline(Inline),
    /// They are in a Secret.
    Secret(SecretName),
    /// They are in a directory that has a file for each key of such a Secret.
    Directory(PathBuf),
}

/// Credentials that stand in the configuration.
#[derive(Debug, Clone)]
pub struct Inline {
    /// The user, or a certificate in PEM.
    pub user: String,
    /// The password, or the private key of the certificate.
    pub password: SecretString,
}

impl PartialEq for Inline {
    fn eq(&self, other: &Self) -> bool {
        self.user == other.user && self.password.expose_secret() == other.password.expose_secret()
    }
}

impl Eq for Inline {}

/// The name of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// The family of an address; an IPv4 address that is written as IPv6 counts as IPv4.
    pub fn of(address: IpAddr) -> Self {
        if address.to_canonical().is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}

/// Which tags become labels of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    /// The category of tags that name zones.
    pub zone: Option<String>,
    /// The category of tags that name regions.
    pub region: Option<String>,
    /// Whether the nearest tag counts for each category by itself, as for the CSI driver with the same setting.
    pub nearest: bool,
}

/// Which addresses of a VM become addresses of its node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nodes {
    /// For internal addresses.
    pub internal: AddressRules,
    /// For external addresses.
    pub external: AddressRules,
}

/// How addresses of one type are chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressRules {
    /// Addresses in these are preferred.
    pub subnets: Vec<Subnet>,
    /// Addresses of adapters on this network are preferred.
    pub network: Option<String>,
    /// Addresses in these are never taken.
    pub excluded: Vec<Subnet>,
}

/// A range of addresses such as `10.0.0.0/8`. Bits behind the prefix do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subnet(IpNet);

/// A text that is not a subnet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid subnet")]
pub struct InvalidSubnet(String);

impl Subnet {
    /// Whether an address is in it; an IPv4 address that is written as IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Subnet {
    type Err = InvalidSubnet;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Parsed in two halves: the crate's own parser takes leading zeros, which Go refuses.
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let digits = prefix.bytes().all(|digit| digit.is_ascii_digit());
            let prefix = prefix.parse().ok().filter(|_| digits)?;
            IpNet::new(address.parse().ok()?, prefix).ok()
        };
        parse().map(|net| Self(net.trunc())).ok_or_else(|| InvalidSubnet(text.to_owned()))
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Subnet;

    #[test]
    fn an_address_is_in_its_subnet_and_in_no_other() {
        let cases = [
            ("10.0.0.5/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "203.0.113.7", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("::/0", "fd00::1", true),
            ("fe80::1/128", "fe80::1", true),
            ("fe80::1/128", "fe80::2", false),
            ("192.0.2.0/24", "192.0.3.0", false),
        ];
        for (subnet, address, inside) in cases {
            let parsed: Subnet = subnet.parse().unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), inside, "{subnet} {address}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_subnet_is_refused() {
        for text in [
            "10.0.0.0",
            "10.0.0/8",
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.01/8",
        ] {
            let error = text.parse::<Subnet>().unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is not a valid subnet"));
        }
    }
}
