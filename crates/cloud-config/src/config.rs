//! What a configuration says, after all of it was understood: nothing here can be wrong any more.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    str::FromStr,
};

use secrecy::{ExposeSecret, SecretString};
use vsphere::{endpoint::Endpoint, tls::Trust};

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
    /// How it proves who it is.
    pub trust: Trust,
    /// Where VMs are looked for: names, inventory paths or references. Everywhere if empty.
    pub datacenters: Vec<String>,
    /// Where user and password come from.
    pub credentials: CredentialSource,
    /// Which addresses nodes get, the preferred family first; at least one, none twice.
    pub ip_families: Vec<IpFamily>,
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

/// A range of addresses such as `10.0.0.0/8`. What is written behind the prefix does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subnet {
    base: IpAddr,
    prefix: u8,
}

/// A text that is no subnet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no subnet: {problem}")]
pub struct InvalidSubnet {
    text: String,
    problem: &'static str,
}

impl Subnet {
    /// Whether an address is in it; an IPv4 address that is written as IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.base.is_ipv4() && mask(address, self.prefix) == self.base
    }
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let kept = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & kept).into()
        }
        IpAddr::V6(v6) => {
            let kept = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & kept).into()
        }
    }
}

impl FromStr for Subnet {
    type Err = InvalidSubnet;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem| InvalidSubnet { text: text.to_owned(), problem };
        let (address, prefix) = text
            .split_once('/')
            .ok_or_else(|| invalid("there is no length of its prefix, such as /24"))?;
        let address: IpAddr =
            address.parse().map_err(|_| invalid("what precedes the slash is no IP address"))?;
        let digits = !prefix.is_empty() && prefix.bytes().all(|digit| digit.is_ascii_digit());
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let too_long = if address.is_ipv4() {
            "the length of its prefix is no number from 0 to 32"
        } else {
            "the length of its prefix is no number from 0 to 128"
        };
        let prefix: u8 = prefix
            .parse()
            .ok()
            .filter(|length| digits && *length <= longest)
            .ok_or_else(|| invalid(too_long))?;
        Ok(Self { base: mask(address, prefix), prefix })
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
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
    fn what_is_no_subnet_is_refused_with_the_reason() {
        let cases = [
            ("10.0.0.0", "there is no length"),
            ("10.0.0/8", "no IP address"),
            ("10.0.0.0/33", "0 to 32"),
            ("fd00::/129", "0 to 128"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("10.0.0.01/8", "no IP address"),
        ];
        for (text, reason) in cases {
            let error = text.parse::<Subnet>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
