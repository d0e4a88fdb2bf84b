//! A subnet, written as an address and the length of its prefix.

use std::{fmt, net::IpAddr, str::FromStr};

/// A subnet: `10.10.0.0/16`, `fd00::/64`. Bits of the address behind the prefix do not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// A text that is no subnet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no subnet; write an address and a prefix, such as 10.10.0.0/16 or fd00::/64")]
pub struct InvalidCidr(String);

impl Cidr {
    /// Whether the address is in the subnet. IPv4 addresses count as such however they are written.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.prefix);
                (u32::from(own) ^ u32::from(ip)).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.prefix);
                (u128::from(own) ^ u128::from(ip)).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (address, prefix) = text.trim().split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
            let prefix: u8 = prefix.parse().ok().filter(|_| digits)?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            (prefix <= longest).then_some(Self { address, prefix })
        };
        parse().ok_or_else(|| InvalidCidr(text.to_owned()))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::Cidr;

    #[test]
    fn a_subnet_holds_what_shares_its_prefix() {
        let check = |cidr: &str, ip: &str, inside: bool| {
            let cidr: Cidr = cidr.parse().unwrap();
            assert_eq!(cidr.contains(ip.parse().unwrap()), inside, "{cidr} {ip}");
        };
        check("10.10.0.0/16", "10.10.255.1", true);
        check("10.10.0.0/16", "10.11.0.1", false);
        check("10.10.0.0/16", "::ffff:10.10.0.1", true);
        check("172.15.108.11/8", "172.1.2.3", true);
        check("0.0.0.0/0", "255.255.255.255", true);
        check("0.0.0.0/0", "::1", false);
        check("::/0", "ff::1", true);
        check("fd00::1/128", "fd00::1", true);
        check("fd00::1/128", "fd00::2", false);
    }

    #[test]
    fn d15_a_text_that_is_no_subnet_is_refused_where_it_is_read() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "10.0.0.0/+8", "a/8"]
        {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        assert_eq!(" 10.0.0.0/8 ".parse::<Cidr>().unwrap().to_string(), "10.0.0.0/8");
    }
}
