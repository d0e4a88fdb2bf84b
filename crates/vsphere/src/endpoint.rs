//! The address of a vCenter: host and port, in the spellings that users have.

use std::{fmt, net::Ipv6Addr, str::FromStr};

/// The port of every vCenter that was not moved.
const PORT: u16 = 443;

/// The address of a vCenter: `vcenter.example`, `vcenter.example:8443`, `10.0.0.5`, `[2001:db8::5]:443`,
/// `2001:db8::5` or `https://vcenter.example/sdk`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// A name or an address; an IPv6 address without brackets.
    host: String,
    port: u16,
}

/// A text that is not a valid address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a valid address of a vCenter: {problem}; write a host, or host:port, such as vcenter.example:443"
)]
pub struct InvalidEndpoint {
    text: String,
    problem: &'static str,
}

impl Endpoint {
    /// The host as it was written, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same host at another port.
    #[must_use]
    pub fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Host and port as a URL has them.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem| InvalidEndpoint { text: text.to_owned(), problem };
        let rest = text.trim();
        let rest = match rest.split_once("://") {
            Some(("https", rest)) => rest,
            Some(("http", _)) => return Err(invalid("vCenter is reached by https only")),
            Some(_) => return Err(invalid("only https is supported")),
            None => rest,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(invalid("the user belongs in the credentials"));
        }
        let (host, port) = split(authority).map_err(invalid)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        if host.is_empty() {
            return Err(invalid("there is no host"));
        }
        if !host.chars().all(allowed) {
            return Err(invalid("the host has a character that is not allowed in host names"));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

fn split(authority: &str) -> Result<(&str, u16), &'static str> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("a bracket is not closed")?;
        host.parse::<Ipv6Addr>().map_err(|_| "the brackets do not hold a valid IPv6 address")?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, number(port)?)),
            None if after.is_empty() => Ok((host, PORT)),
            None => Err("the text after the bracket is not a port"),
        };
    }
    if authority.parse::<Ipv6Addr>().is_ok() {
        return Ok((authority, PORT));
    }
    match authority.split_once(':') {
        Some((host, port)) => Ok((host, number(port)?)),
        None => Ok((authority, PORT)),
    }
}

fn number(port: &str) -> Result<u16, &'static str> {
    match port.parse() {
        Ok(0) | Err(_) => Err("the port is not a number from 1 to 65535"),
        Ok(port) => Ok(port),
    }
}

/// Without the port if it is 443.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == PORT { f.write_str(&self.host) } else { f.write_str(&self.authority()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn hosts_ports_and_literals_are_understood() {
        let cases = [
            ("vcenter.example", "vcenter.example:443"),
            (" vcenter.example:8443 ", "vcenter.example:8443"),
            ("https://vcenter.example/sdk", "vcenter.example:443"),
            ("https://10.0.0.5:444/", "10.0.0.5:444"),
            ("2001:db8::5", "[2001:db8::5]:443"),
            ("[2001:db8::5]:444", "[2001:db8::5]:444"),
            ("https://[::1]", "[::1]:443"),
        ];
        for (text, authority) in cases {
            assert_eq!(text.parse::<Endpoint>().unwrap().authority(), authority, "{text}");
        }
    }

    #[test]
    fn what_names_no_vcenter_is_refused_with_the_reason() {
        let cases = [
            ("", "there is no host"),
            ("http://vcenter.example", "https only"),
            ("ftp://vcenter.example", "only https"),
            ("vcenter.example:0", "1 to 65535"),
            ("vcenter.example:https", "1 to 65535"),
            ("[::1", "not closed"),
            ("[vcenter]", "valid IPv6 address"),
            ("admin@vcenter.example", "credentials"),
            ("vcenter example", "character"),
        ];
        for (text, reason) in cases {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
