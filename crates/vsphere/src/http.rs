//! HTTP to one vCenter: pooled connections, a timeout on everything, and errors that say what is wrong.

use std::{error::Error as _, io, time::Duration};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use crate::{
    endpoint::Endpoint,
    error::Cause,
    tls::{InvalidTrust, Trust, Untrusted},
};

/// How long a TCP connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Unused connections are given up before the proxies in front of a vCenter do it.
const IDLE: Duration = Duration::from_secs(50);
/// No page of ours is longer; a server that sends more is not a vCenter.
const LONGEST: usize = 64 << 20;

/// Sends requests to one vCenter.
#[derive(Debug)]
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    host: String,
    address: String,
    agent: String,
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
    pub(crate) fn new(
        endpoint: &Endpoint,
        trust: &Trust,
        agent: &str,
    ) -> Result<Self, InvalidTrust> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_nodelay(true);
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(trust.config()?)
            .https_only()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(tls);
        let address = endpoint.authority();
        Ok(Self {
            client,
            base: format!("https://{address}"),
            host: endpoint.host().to_owned(),
            address,
            agent: agent.to_owned(),
        })
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
        let response = match tokio::time::timeout(limit, self.client.request(request)).await {
            Err(_) => return Err(Cause::Timeout(limit)),
            Ok(Err(error)) => return Err(self.explain(&error)),
            Ok(Ok(response)) => response,
        };
        let (parts, body) = Response::into_parts(response);
        let text = match tokio::time::timeout_at(started + limit, self.read(body)).await {
            Err(_) => Err(Cause::Timeout(limit)),
            Ok(text) => text,
        };
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

    /// Finds in the chain what the user can do something about.
    fn explain(&self, error: &ClientError) -> Cause {
        let address = self.address.clone();
        let problem = innermost(error);
        let mut chain = std::iter::successors(error.source(), |cause| (*cause).source());
        if let Some(tls) = chain.find_map(tls_error) {
            return match untrusted(tls) {
                Some(reason) => Cause::Untrusted { address, reason },
                None => Cause::NoTls { address, problem: tls.to_string() },
            };
        }
        if !error.is_connect() {
            return Cause::Broken { address, problem };
        }
        let chain = std::iter::successors(error.source(), |cause| (*cause).source());
        if chain.into_iter().any(|cause| cause.to_string().starts_with("dns error")) {
            return Cause::UnknownHost { host: self.host.clone(), problem };
        }
        Cause::NoConnection { address, problem }
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |cause| (*cause).source())
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// The library's error, out of the I/O errors that it is wrapped in; those hide it from the chain.
fn tls_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = cause.downcast_ref() {
        return Some(found);
    }
    let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
    tls_error(inner)
}

fn untrusted(error: &rustls::Error) -> Option<Untrusted> {
    match error {
        rustls::Error::Other(other) => other.0.downcast_ref::<Untrusted>().cloned(),
        _ => None,
    }
}
