//! The proxy between a program and vCenter.
//!
//! Requests are tunnelled (`CONNECT`), so that the proxy sees the name of the vCenter and nothing else. Which
//! vCenters are reached through it follows the rules that other programs have for `HTTPS_PROXY` and `NO_PROXY`;
//! a program passes its environment in, because a library does not read it.

use std::net::IpAddr;

use hyper::http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use secrecy::{ExposeSecret, SecretString};

/// The proxy of a program, if it has one.
#[derive(Debug, Clone, Default)]
pub struct Proxy {
    /// May have a password.
    url: Option<SecretString>,
    /// Hosts, domains and subnets that are reached without it, separated by commas.
    except: String,
}

/// A proxy that cannot be used. Its URL may have a password and is not shown.
#[derive(Debug, Clone, thiserror::Error)]
#[error("HTTPS_PROXY is not a valid URL of an HTTP proxy, such as http://proxy.example:3128")]
pub struct InvalidProxy;

impl Proxy {
    /// The proxy by the variables `HTTPS_PROXY` and `NO_PROXY`, or the same in lower case. `variable` returns the
    /// value of one of the program's variables.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| {
            let found = variable(name).or_else(|| variable(&name.to_lowercase()));
            found.filter(|value| !value.is_empty())
        };
        Self {
            url: value("HTTPS_PROXY").map(SecretString::from),
            except: value("NO_PROXY").unwrap_or_default(),
        }
    }

    /// The proxy that the tunnel to a URL begins at; none if it is reached directly.
    pub(crate) fn tunnel_to(&self, url: &Uri) -> Result<Option<Intercept>, InvalidProxy> {
        let Some(proxy) = &self.url else { return Ok(None) };
        let except = Matcher::builder().all("http://any").no(self.except.clone()).build();
        if is_local(url) || except.intercept(url).is_none() {
            return Ok(None);
        }
        let matcher = Matcher::builder().https(proxy.expose_secret().to_owned());
        let found = matcher.build().intercept(url).ok_or(InvalidProxy)?;
        if found.uri().scheme_str() == Some("http") { Ok(Some(found)) } else { Err(InvalidProxy) }
    }
}

/// Whether a URL leads to this machine, which no proxy reaches.
fn is_local(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::Proxy;

    fn tunnel(https: &str, except: &str, url: &str) -> Result<Option<String>, String> {
        let proxy = Proxy::from_variables(|name| match name {
            "https_proxy" => Some(https.to_owned()),
            "NO_PROXY" => Some(except.to_owned()),
            _ => None,
        });
        assert!(!format!("{proxy:?}").contains("secret"));
        let found = proxy.tunnel_to(&url.parse().unwrap()).map_err(|error| error.to_string())?;
        Ok(found.map(|found| found.uri().to_string()))
    }

    #[test]
    fn vcenters_are_reached_through_the_proxy_unless_they_are_excepted() {
        let proxy = "http://user:secret@proxy.example:3128";
        let through = Ok(Some("http://proxy.example:3128/".to_owned()));
        let url = "https://vc.corp.example:443/sdk";
        assert_eq!(tunnel("", "", url), Ok(None));
        assert_eq!(tunnel(proxy, "", url), through);
        assert_eq!(tunnel("proxy.example:3128", "", url), through);
        assert_eq!(tunnel(proxy, "other.example, 10.0.0.0/8", url), through);
        assert_eq!(tunnel(proxy, ".corp.example", url), Ok(None));
        assert_eq!(tunnel(proxy, "corp.example", url), Ok(None));
        assert_eq!(tunnel(proxy, "*", url), Ok(None));
        assert_eq!(tunnel(proxy, "10.0.0.0/8", "https://10.1.2.3:443/"), Ok(None));
        assert_eq!(tunnel(proxy, "10.0.0.0/8", "https://11.1.2.3:443/"), through);
        for local in ["https://localhost:8443/", "https://127.0.0.2:1/", "https://[::1]:443/"] {
            assert_eq!(tunnel(proxy, "", local), Ok(None));
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_refused_without_its_password() {
        for url in ["socks5://u:secret@proxy:1", "https://proxy:1", "ftp://secret", "http://a b"] {
            let error = tunnel(url, "", "https://vc.example/").unwrap_err();
            assert!(error.contains("HTTPS_PROXY") && !error.contains("secret"), "{error}");
            // A vCenter that is reached without it does not care.
            assert_eq!(tunnel(url, ".example", "https://vc.example/"), Ok(None));
        }
    }
}
