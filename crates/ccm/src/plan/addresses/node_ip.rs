//! The address that a kubelet was started with, which must be the Node's.
//!
//! A kubelet with `--node-ip` writes the annotation `alpha.kubernetes.io/provided-node-ip`. As in Kubernetes'
//! own controller its addresses come first and are the only ones of their type, and an address that the
//! machine does not have is an error.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::NodeAddress;

use cloud_config::IpFamily;

pub(crate) const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Why the kubelet's address cannot be the Node's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NodeIpError {
    #[error(
        "the kubelet's --node-ip {0:?} is neither one address nor an IPv4 and an IPv6 address with a comma \
         between them; correct the kubelet's flag and restart it"
    )]
    Invalid(String),
    #[error(
        "the kubelet's --node-ip {wanted} is not among the VM's addresses ({had}); correct the kubelet's flag, \
         or let the subnets and excludes of the configuration select it"
    )]
    NotOfTheVm { wanted: IpAddr, had: String },
}

/// The addresses with those of the annotation first.
pub(crate) fn prefer(
    annotation: &str,
    addresses: &[NodeAddress],
) -> Result<Vec<NodeAddress>, NodeIpError> {
    let wanted = parse(annotation).ok_or_else(|| NodeIpError::Invalid(annotation.to_owned()))?;
    let mut preferred: Vec<NodeAddress> = Vec::with_capacity(addresses.len());
    for ip in wanted {
        let before = preferred.len();
        let is_it = |one: &&NodeAddress| {
            one.address.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == ip)
        };
        preferred.extend(addresses.iter().filter(is_it).cloned());
        if preferred.len() == before {
            let had: Vec<&str> = addresses.iter().map(|one| one.address.as_str()).collect();
            return Err(NodeIpError::NotOfTheVm { wanted: ip, had: had.join(", ") });
        }
    }
    let matched = preferred.len();
    for other in addresses {
        if !preferred[..matched].iter().any(|first| first.type_ == other.type_) {
            preferred.push(other.clone());
        }
    }
    Ok(preferred)
}

fn parse(annotation: &str) -> Option<Vec<IpAddr>> {
    let ips: Option<Vec<IpAddr>> = annotation
        .split(',')
        .map(|text| text.parse().ok().map(|ip: IpAddr| ip.to_canonical()))
        .collect();
    let fits = |ips: &Vec<IpAddr>| match ips.as_slice() {
        [_] => true,
        [one, two] => {
            IpFamily::of(*one) != IpFamily::of(*two) && !ips.iter().any(IpAddr::is_unspecified)
        }
        _ => false,
    };
    ips.filter(fits)
}

#[cfg(test)]
mod tests {
    use super::{NodeIpError, prefer};
    use k8s_openapi::api::core::v1::NodeAddress;

    fn list(text: &str) -> Vec<NodeAddress> {
        let one = |pair: &str| {
            let (type_, address) = pair.split_once('=').unwrap();
            NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
        };
        text.split_whitespace().map(one).collect()
    }

    #[test]
    fn the_kubelets_address_goes_first_and_is_the_only_one_of_its_type() {
        let check = |annotation: &str, addresses: &str, expected: &str| {
            assert_eq!(
                prefer(annotation, &list(addresses)).unwrap(),
                list(expected),
                "{annotation}"
            );
        };
        let cloud = "Hostname=a InternalIP=10.0.0.1 ExternalIP=10.0.0.1 InternalIP=fd00::1";
        check("10.0.0.1", cloud, "InternalIP=10.0.0.1 ExternalIP=10.0.0.1 Hostname=a");
        check("fd00::1", cloud, "InternalIP=fd00::1 Hostname=a ExternalIP=10.0.0.1");
        let both = "InternalIP=fd00::1 InternalIP=10.0.0.1 ExternalIP=10.0.0.1 Hostname=a";
        check("fd00:0::1,10.0.0.1", cloud, both);
    }

    #[test]
    fn an_address_that_the_vm_does_not_have_is_an_error() {
        let cloud = list("Hostname=a InternalIP=10.0.0.1");
        let error = prefer("10.0.0.2", &cloud).unwrap_err();
        assert!(
            error.to_string().contains("10.0.0.2 is not among the VM's addresses (a, 10.0.0.1)")
        );
        for text in ["", "x", "10.0.0.1, fd00::1", "10.0.0.1,10.0.0.1", "10.0.0.1,::", "1,2,3"] {
            assert_eq!(prefer(text, &cloud), Err(NodeIpError::Invalid(text.to_owned())), "{text}");
        }
    }
}
