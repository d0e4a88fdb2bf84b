//! Health and metrics over plain HTTP, without authentication.

use std::{future::ready, io, net::SocketAddr, sync::Arc};

use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    http::{Method, Request, Response, StatusCode},
};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tracing::info;

use super::{Checks, health, http, is_verbose, metrics, process, text};
use crate::{args::Listen, supervise::Shutdown};

/// What is served; a part that is missing is not found.
#[derive(Default)]
pub struct PlainContents {
    /// Behind `/healthz`, `/livez` and `/readyz`; details are withheld.
    pub checks: Option<Checks>,
    /// Served under `/metrics`, with the metrics of the process added.
    pub metrics: Option<Registry>,
}

/// A server that listens, and answers once it is run.
pub struct Plain {
    listener: TcpListener,
    contents: Arc<PlainContents>,
}

/// The server cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; --{flag} sets another address, and --{flag}= serves nothing")]
pub struct CannotListen {
    /// The flag with the address, without dashes.
    flag: &'static str,
    address: Listen,
    #[source]
    problem: io::Error,
}

impl Plain {
    /// Listens at the address that a flag gave.
    pub async fn bind(
        flag: &'static str,
        address: &Listen,
        mut contents: PlainContents,
    ) -> Result<Self, CannotListen> {
        let refuse = |problem| CannotListen { flag, address: address.clone(), problem };
        let listener = TcpListener::bind(&*address.socket_addresses()).await.map_err(refuse)?;
        if let Some(registry) = &mut contents.metrics {
            registry.register_collector(Box::new(process::Process));
        }
        Ok(Self { listener, contents: Arc::new(contents) })
    }

    /// Where it listens, with the port that the system chose if the flag had none.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`; requests that are being answered then may finish.
    pub async fn run(self, shutdown: Shutdown) -> io::Result<()> {
        let Self { listener, contents } = self;
        info!(
            address = %listener.local_addr()?,
            health = contents.checks.is_some(),
            metrics = contents.metrics.is_some(),
            "serving over plain HTTP"
        );
        let answer = move |request: Request<Incoming>| ready(contents.answer(&request));
        http::serve(&listener, |socket| ready(Ok(socket)), answer, &shutdown).await
    }
}

impl PlainContents {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let (endpoint, only) = match path.trim_start_matches('/').split_once('/') {
            Some((endpoint, only)) => (endpoint, Some(only)),
            None => (path.trim_start_matches('/'), None),
        };
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match (endpoint, &self.checks, &self.metrics) {
            ("healthz" | "livez" | "readyz", Some(_), _) | ("metrics", _, Some(_)) if !reads => {
                text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n")
            }
            ("healthz" | "livez" | "readyz", Some(checks), _) => {
                let verbose = request.uri().query().is_some_and(is_verbose);
                health(checks, endpoint, only, verbose, false)
            }
            ("metrics", _, Some(registry)) if only.is_none() => metrics(registry),
            _ => text(StatusCode::NOT_FOUND, "not found\n"),
        }
    }
}
