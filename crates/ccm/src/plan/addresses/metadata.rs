//! The addresses that cloud-init configured statically, which are preferred to others.
//!
//! They are in the VM's option `guestinfo.metadata`: YAML, mostly in base64, perhaps compressed, with a
//! network configuration inside that may be encoded once more. Hides all of these layers.
//!
//! Deliberately absent: userdata and vApp properties, in which cloud-init has no network configuration.

use std::{fmt, io::Read, net::IpAddr};

use flate2::read::GzDecoder;
use k8s_openapi::ByteString;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

/// In bytes, unpacked: an archive that is larger is a trap.
const LARGEST: u64 = 1 << 20;

/// The VM's options `guestinfo.metadata` and `guestinfo.metadata.encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metadata<'a> {
    pub(crate) text: &'a str,
    /// `None` for plain text.
    pub(crate) encoding: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the VM's option guestinfo.metadata cannot be read as {layer}: {cause}; correct or remove the option"
)]
pub(crate) struct MetadataError {
    layer: &'static str,
    cause: String,
}

#[derive(Deserialize)]
struct CloudInit {
    network: Option<Network>,
    #[serde(rename = "network.encoding")]
    encoding: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Network {
    Encoded(String),
    Inline(Netplan),
    Other(IgnoredAny),
}

/// A network configuration of version 2.
#[derive(Deserialize)]
struct Netplan {
    #[serde(default)]
    ethernets: Option<Ethernets>,
}

/// Interfaces in the order of the document, which a map would lose.
struct Ethernets(Vec<Ethernet>);

#[derive(Deserialize)]
struct Ethernet {
    /// Texts, or maps from one text to its options.
    #[serde(default)]
    addresses: Option<Vec<Value>>,
}

impl Metadata<'_> {
    /// In the order of the document. Only `base64` is an error when it cannot be read: the Go manager ignores
    /// other encodings, so they may hold anything.
    pub(crate) fn static_addresses(&self) -> Result<Vec<IpAddr>, MetadataError> {
        let read = decode(self.text, self.encoding).and_then(|text| addresses(&text));
        if self.encoding == Some("base64") { read } else { Ok(read.unwrap_or_default()) }
    }
}

fn addresses(text: &str) -> Result<Vec<IpAddr>, MetadataError> {
    let metadata: CloudInit = yaml(text, "cloud-init metadata in YAML")?;
    let netplan = match metadata.network {
        Some(Network::Encoded(text)) => {
            let text = decode(&text, metadata.encoding.as_deref())?;
            Some(yaml(&text, "a network configuration in YAML")?)
        }
        Some(Network::Inline(netplan)) => Some(netplan),
        Some(Network::Other(_)) | None => None,
    };
    let ethernets = netplan.and_then(|netplan: Netplan| netplan.ethernets);
    let ethernets = ethernets.map(|ethernets| ethernets.0).unwrap_or_default();
    let texts = ethernets.iter().filter_map(|one| one.addresses.as_ref()).flatten();
    Ok(texts.filter_map(address).collect())
}

fn address(value: &Value) -> Option<IpAddr> {
    let text = match value {
        Value::String(text) => text,
        Value::Object(labelled) => labelled.keys().next()?,
        _ => return None,
    };
    let ip: IpAddr = text.split('/').next()?.trim().parse().ok()?;
    Some(ip.to_canonical())
}

fn decode(text: &str, encoding: Option<&str>) -> Result<String, MetadataError> {
    let bytes = match encoding {
        Some("base64" | "b64") => base64(text)?,
        Some("gzip+base64" | "gz+b64") => gunzip(&base64(text)?)?,
        _ => return Ok(text.to_owned()),
    };
    String::from_utf8(bytes).map_err(|cause| fail("text", &cause))
}

/// Decoded by Kubernetes' type for base64 in JSON, which the program contains anyway.
fn base64(text: &str) -> Result<Vec<u8>, MetadataError> {
    let text: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
    let bytes: ByteString =
        serde_json::from_value(Value::String(text)).map_err(|cause| fail("base64", &cause))?;
    Ok(bytes.0)
}

fn gunzip(packed: &[u8]) -> Result<Vec<u8>, MetadataError> {
    let mut bytes = Vec::new();
    let mut limited = GzDecoder::new(packed).take(LARGEST + 1);
    limited.read_to_end(&mut bytes).map_err(|cause| fail("gzip", &cause))?;
    if bytes.len() as u64 > LARGEST {
        return Err(fail("gzip", &"it is larger than 1 MiB when unpacked"));
    }
    Ok(bytes)
}

fn yaml<'de, T: Deserialize<'de>>(text: &'de str, layer: &'static str) -> Result<T, MetadataError> {
    serde_saphyr::from_str(text).map_err(|cause| fail(layer, &cause))
}

/// Some causes quote the document in further lines; the first line names the problem.
fn fail(layer: &'static str, cause: &dyn fmt::Display) -> MetadataError {
    let cause = cause.to_string();
    MetadataError { layer, cause: cause.lines().next().unwrap_or_default().to_owned() }
}

impl<'de> Deserialize<'de> for Ethernets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Ethernets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping from names to interfaces")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ethernets, A::Error> {
                let mut ethernets = Vec::new();
                while let Some((_, ethernet)) = map.next_entry::<IgnoredAny, Option<Ethernet>>()? {
                    ethernets.extend(ethernet);
                }
                Ok(Ethernets(ethernets))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use k8s_openapi::ByteString;

    use super::Metadata;

    fn read(text: &str, encoding: Option<&str>) -> Result<Vec<String>, String> {
        let found = Metadata { text, encoding }.static_addresses();
        found.map(|ips| ips.iter().map(ToString::to_string).collect()).map_err(|e| e.to_string())
    }

    const TWO: &str = "instance-id: a\nnetwork:\n  version: 2\n  ethernets:\n    z9:\n      addresses: \
                       [10.0.0.2/24, nonsense, '10.0.0.3/24': {label: x}]\n    a1:\n      dhcp4: true\n    \
                       m5: {addresses: ['fd00:0:0::5/64']}\n";

    #[test]
    fn d25_addresses_of_several_interfaces_come_in_the_order_of_the_document() {
        for _ in 0..20 {
            assert_eq!(read(TWO, None).unwrap(), ["10.0.0.2", "10.0.0.3", "fd00::5"]);
        }
    }

    #[test]
    fn an_address_in_the_form_of_ipv6_is_the_ipv4_address_that_it_is() {
        let text = "network: {ethernets: {a: {addresses: ['::ffff:10.0.0.1/120']}}}";
        assert_eq!(read(text, None).unwrap(), ["10.0.0.1"]);
    }

    #[test]
    fn what_has_no_network_has_no_static_addresses() {
        for text in ["instance-id: a", "network: null", "network: [1]", "network: {version: 1}"] {
            assert_eq!(read(text, None).unwrap(), [""; 0], "{text}");
        }
    }

    #[test]
    fn metadata_that_cannot_be_read_is_an_error_that_says_what_to_do() {
        let error = read("!!!", Some("base64")).unwrap_err();
        assert!(error.contains("guestinfo.metadata cannot be read as base64"), "{error}");
        assert!(error.contains("correct or remove the option"), "{error}");
    }

    #[test]
    fn an_archive_may_be_a_mebibyte_when_unpacked_and_not_more() {
        let read_packed = |size: usize| {
            let plan = b"ethernets: {a: {addresses: [10.0.0.2/24]}}\n#";
            let mut packer = GzEncoder::new(Vec::new(), Compression::best());
            packer.write_all(plan).unwrap();
            packer.write_all(&vec![b'x'; size - plan.len()]).unwrap();
            let encode = |bytes| serde_json::to_value(ByteString(bytes)).unwrap();
            let packed = encode(packer.finish().unwrap());
            let text = format!("network: {packed}\nnetwork.encoding: gzip+base64\n");
            read(encode(text.into_bytes()).as_str().unwrap(), Some("base64"))
        };
        assert_eq!(read_packed(1 << 20).unwrap(), ["10.0.0.2"]);
        let error = read_packed((1 << 20) + 1).unwrap_err();
        assert!(error.contains("larger than 1 MiB"), "{error}");
    }

    #[test]
    fn what_earlier_providers_passed_over_never_fails() {
        assert_eq!(read("just text", None).unwrap(), [""; 0]);
        assert_eq!(read("!!!", Some("gzip+base64")).unwrap(), [""; 0]);
        assert_eq!(read("x", Some("rot13")).unwrap(), [""; 0]);
    }
}
