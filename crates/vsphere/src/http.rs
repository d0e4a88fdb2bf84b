//! HTTP to one vCenter: pooled connections, a timeout on everything, and errors with their reasons.

use std::{io, time::Duration};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::http::{HeaderMap, Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client, Error as ClientError,
        connect::{HttpConnector, proxy::Tunnel},
    },
    rt::{TokioExecutor, TokioTimer},
};

use crate::{
    connection::{InvalidSettings, Settings},
    error::Cause,
    tls::Untrusted,
};

/// How long a TCP connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Unused connections are given up before the proxies in front of a vCenter do it.
const IDLE: Duration = Duration::from_secs(50);
/// The longest answer; pages of lists are shorter.
const LONGEST: usize = 64 << 20;

/// Sends requests to one vCenter.
#[derive(Debug)]
pub(crate) struct Http {
    client: Route,
    base: String,
    /// The host that is resolved, and where the connection leads: for messages.
    host: String,
    address: String,
    agent: String,
}

/// How vCenter is reached.
#[derive(Debug)]
enum Route {
    Direct(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
    Tunnelled(Client<HttpsConnector<Tunnel<HttpConnector>>, Full<Bytes>>),
}

/// An answer: its text may be a SOAP fault, JSON or nothing.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The text, or why it did not come whole; the headers came in any case.
    pub(crate) text: Result<String, Cause>,
}

impl Http {
    pub(crate) fn new(settings: &Settings) -> Result<Self, InvalidSettings> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_nodelay(true);
        let mut address = settings.endpoint.authority();
        let base = format!("https://{address}");
        let mut host = settings.endpoint.host().to_owned();
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(settings.trust.config()?)
            .https_only()
            .enable_http1();
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        // An endpoint is always a valid authority.
        let url = base.parse().unwrap_or_default();
        let client = match settings.proxy.tunnel_to(&url)? {
            None => Route::Direct(client.build(tls.wrap_connector(tcp))),
            Some(proxy) => {
                let uri = proxy.uri();
                let between = uri.authority().map(ToString::to_string).unwrap_or_default();
                address = format!("{address} through the proxy {between}");
                host = uri.host().unwrap_or_default().to_owned();
                let mut tunnel = Tunnel::new(uri.clone(), tcp);
                if let Some(authorization) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(authorization.clone());
                }
                Route::Tunnelled(client.build(tls.wrap_connector(tunnel)))
            }
        };
        Ok(Self { client, base, host, address, agent: settings.user_agent.clone() })
    }

    /// Sends a request and reads the whole answer within `limit`.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: String,
        limit: Duration,
    ) -> Result<Reply, Cause> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("user-agent", &self.agent);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|error| self.broken(&error))?;
        let started = tokio::time::Instant::now();
        let response = match &self.client {
            Route::Direct(client) => client.request(request),
            Route::Tunnelled(client) => client.request(request),
        };
        let late = |_| Cause::Timeout(limit);
        let response = tokio::time::timeout(limit, response).await.map_err(late)?;
        let (parts, body) = response.map_err(|error| self.explain(&error))?.into_parts();
        let text = tokio::time::timeout_at(started + limit, self.read(body)).await;
        let text = text.map_err(late).flatten();
        Ok(Reply { status: parts.status, headers: parts.headers, text })
    }

    async fn read(&self, body: Incoming) -> Result<String, Cause> {
        let bytes =
            Limited::new(body, LONGEST).collect().await.map_err(|error| self.broken(&*error))?;
        // One allocation moves from the wire to the reader.
        String::from_utf8(Vec::from(bytes.to_bytes())).map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> Cause {
        Cause::Broken { address: self.address.clone(), problem: innermost(error) }
    }

    /// Finds the reason in the chain of errors.
    fn explain(&self, error: &ClientError) -> Cause {
        let address = self.address.clone();
        let problem = innermost(error);
        if let Some(tls) = causes(error).find_map(tls_error) {
            if let rustls::Error::Other(other) = tls
                && let Some(reason) = other.0.downcast_ref::<Untrusted>()
            {
                return Cause::Untrusted { address, reason: reason.clone() };
            }
            return Cause::NoTls { address, problem: tls.to_string() };
        }
        if !error.is_connect() {
            return Cause::Broken { address, problem };
        }
        if causes(error).any(|cause| cause.to_string().starts_with("dns error")) {
            return Cause::UnknownHost { host: self.host.clone(), problem };
        }
        Cause::NoConnection { address, problem }
    }
}

/// The innermost cause is the most specific.
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |cause| (*cause).source())
}

/// The library's error, out of the I/O errors that it is wrapped in; those hide it from the chain.
fn tls_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = cause.downcast_ref() {
        return Some(found);
    }
    let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
    tls_error(inner)
}
