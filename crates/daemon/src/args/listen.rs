//! Addresses to listen on, as Go writes them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// `:9808` for every address of the machine, `127.0.0.1:9808` or `[::1]:9808` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// All of them if there is none.
    address: Option<IpAddr>,
    port: u16,
}

/// An alias of `Option`, so that clap accepts `--flag=` as an empty value, as Go does.
pub type OptionalListen = Option<Listen>;

/// Reads an address; an empty text is `None`.
pub fn optional_listen(text: &str) -> Result<OptionalListen, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let all = text.strip_prefix(':').and_then(|port| port.parse().ok());
    let one = || text.parse::<SocketAddr>().ok();
    let listen = all
        .map(|port| Listen { address: None, port })
        .or_else(|| one().map(|one| Listen { address: Some(one.ip()), port: one.port() }));
    listen.map(Some).ok_or_else(|| {
        "not a valid address; write it as :9808, 127.0.0.1:9808 or [::1]:9808".to_owned()
    })
}

impl Listen {
    /// What to try, in this order: machines may be without IPv6.
    pub(crate) fn socket_addresses(&self) -> Vec<SocketAddr> {
        let all = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
        let addresses = self.address.map_or_else(|| all.to_vec(), |one| vec![one]);
        addresses.into_iter().map(|address| SocketAddr::new(address, self.port)).collect()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
            None => write!(f, ":{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_go_reads_them() {
        for text in [":9808", "127.0.0.1:0", "[::1]:2112"] {
            assert_eq!(optional_listen(text).unwrap().unwrap().to_string(), text);
        }
        assert_eq!(optional_listen("").unwrap(), None);
        for wrong in ["9808", ":", ":port", ":70000", "localhost:1", "1.2.3.4", "::1:80:x"] {
            assert!(optional_listen(wrong).unwrap_err().contains(":9808"), "{wrong}");
        }
    }

    #[test]
    fn every_address_is_meant_where_none_is_given() {
        let all = optional_listen(":1").unwrap().unwrap().socket_addresses();
        assert_eq!(all, ["[::]:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap()]);
    }
}
