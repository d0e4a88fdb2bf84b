//! The HTTPS server for health, readiness, metrics and the log level.
//!
//! ```text
//!   /healthz /livez /readyz   [/name] [?verbose]   open by default; details of checks for callers with `get` on /metrics
//!   /metrics                                       callers with `get` on it
//!   /debug/flags/v            GET, PUT             callers with `get` or `put` on it
//! ```
//!
//! Everything but the open paths needs a token that the Kubernetes API knows and a role that allows it
//! ([`Access`]). The certificate comes from files that are followed, or is made at the start.
//!
//! [`Plain`] is what remains without TLS, for programs whose probes and scrapers know no other: health, and metrics
//! where they are asked for, for anybody who reaches the port.
//!
//! Deliberately absent: HTTP/2, profiles, `/configz`, client certificates.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::http::{
    Method, Request, Response, StatusCode,
    header::{self, HeaderValue},
};
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info};

pub use self::{
    access::{Access, permissions},
    health::{Check, Checks, Weight},
    plain::{Plain, PlainContents},
};
use crate::{
    args::Serving,
    reload::{self, Files, Unusable},
    supervise::Shutdown,
    telemetry::Verbosity,
};

mod access;
mod health;
mod http;
mod plain;
mod process;
mod tls;

/// What the server serves, and to whom.
pub struct Contents {
    /// The checks behind `/healthz`, `/livez` and `/readyz`.
    pub checks: Checks,
    /// Served under `/metrics`, with the metrics of the process added.
    pub metrics: Registry,
    /// Read and set by `/debug/flags/v`.
    pub verbosity: Verbosity,
    /// Authenticates and authorizes callers.
    pub access: Access,
}

/// The server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is in use or not an address of this machine.
    #[error("cannot listen on {address}: set --bind-address and --secure-port (0 serves nothing)")]
    Listen {
        /// From the flags.
        address: SocketAddr,
        /// From the operating system.
        #[source]
        problem: io::Error,
    },
    /// The files with the certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] Unusable),
    /// One of two files is missing.
    #[error("--tls-cert-file and --tls-private-key-file belong together: give both or none")]
    HalfAPair,
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    SelfSigned(String),
}

/// The configuration for the next connection.
type CurrentTls = Box<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// A server that listens, and answers once it is run.
pub struct Admin {
    listener: TcpListener,
    tls: CurrentTls,
    /// The files with the certificate, unless it was made at the start.
    files: Option<Files<ServerConfig, String>>,
    contents: Arc<Contents>,
}

impl Admin {
    /// Listens as the flags say; `None` when the port is 0.
    pub async fn bind(serving: &Serving, contents: Contents) -> Result<Option<Self>, AdminError> {
        if serving.secure_port == 0 {
            return Ok(None);
        }
        let address = SocketAddr::new(serving.bind_address, serving.secure_port);
        let refuse = |problem| AdminError::Listen { address, problem };
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        Self::on(listener, serving, contents).map(Some)
    }

    /// Serves on a socket that listens already.
    pub fn on(
        listener: TcpListener,
        serving: &Serving,
        mut contents: Contents,
    ) -> Result<Self, AdminError> {
        let (tls, files) = certificate(serving)?;
        contents.metrics.register_collector(Box::new(process::Process));
        Ok(Self { listener, tls, files, contents: Arc::new(contents) })
    }

    /// Serves until `shutdown`; requests that are being answered then may finish.
    pub async fn run(self, shutdown: Shutdown) -> io::Result<()> {
        let Self { listener, tls, files, contents } = self;
        info!(address = %listener.local_addr()?, "serving health and metrics");
        let follow = async {
            if let Some(files) = files {
                files.follow(shutdown.clone()).await.unwrap_or_default();
            }
            Ok(())
        };
        let connect = |socket| TlsAcceptor::from(tls()).accept(socket);
        let answer = move |request| {
            let contents = Arc::clone(&contents);
            async move { contents.answer(request).await }
        };
        tokio::try_join!(follow, http::serve(&listener, connect, answer, &shutdown)).map(drop)
    }
}

fn certificate(
    serving: &Serving,
) -> Result<(CurrentTls, Option<Files<ServerConfig, String>>), AdminError> {
    let versions = tls::versions(&serving.tls_min_version);
    match (&serving.tls_cert_file, &serving.tls_private_key_file) {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (certificate.clone(), key.clone());
            let paths = vec![certificate.clone(), key.clone()];
            let parse = move |files: &reload::Contents| {
                tls::from_files(&certificate, &key, versions, files)
            };
            let (files, followed) = reload::files(paths, parse);
            let first = followed.usable()?;
            let current = move || followed.usable().unwrap_or_else(|_| Arc::clone(&first));
            Ok((Box::new(current), Some(files)))
        }
        (None, None) => {
            let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
            let made = tls::self_signed(names, versions).map_err(AdminError::SelfSigned)?;
            let made = Arc::new(made);
            Ok((Box::new(move || Arc::clone(&made)), None))
        }
        _ => Err(AdminError::HalfAPair),
    }
}

/// Nothing can panic while it is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Contents {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        if let Err(refusal) = self.access.check(request.method(), &path, request.headers()).await {
            debug!(path, status = refusal.status.as_u16(), "request refused");
            return text(refusal.status, format!("{}\n", refusal.text));
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let mut parts = path.strip_prefix('/').unwrap_or(&path).splitn(2, '/');
        match (parts.next().unwrap_or_default(), parts.next()) {
            (endpoint @ ("healthz" | "livez" | "readyz"), only) if reads => {
                self.health(endpoint, only, &request).await
            }
            ("metrics", None) if reads => metrics(&self.metrics),
            ("debug", Some("flags/v")) => self.verbosity(request).await,
            ("healthz" | "livez" | "readyz", _) | ("metrics", None) => {
                text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n")
            }
            _ => text(
                StatusCode::NOT_FOUND,
                "not found; there are /healthz, /livez, /readyz, /metrics and /debug/flags/v\n",
            ),
        }
    }

    async fn health(
        &self,
        endpoint: &str,
        only: Option<&str>,
        request: &Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let verbose = request.uri().query().is_some_and(is_verbose);
        // Details name users, Secrets and servers.
        let details = self.access.shows_details(request.headers()).await;
        health(&self.checks, endpoint, only, verbose, details)
    }

    async fn verbosity(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match *request.method() {
            Method::GET => return text(StatusCode::OK, format!("{}\n", self.verbosity.get())),
            Method::PUT => {}
            _ => return text(StatusCode::METHOD_NOT_ALLOWED, "use GET or PUT\n"),
        }
        let body = Limited::new(request.into_body(), 16).collect().await;
        let level = body
            .ok()
            .and_then(|body| str::from_utf8(&body.to_bytes()).ok()?.trim().parse::<u8>().ok());
        let Some(verbosity) = level else {
            return text(StatusCode::BAD_REQUEST, "send a number from 0 to 255\n");
        };
        if let Err(error) = self.verbosity.set(verbosity) {
            return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
        }
        info!(verbosity, "log verbosity changed");
        let done = format!("successfully set klog.logging.verbosity to {verbosity}\n");
        text(StatusCode::OK, done)
    }
}

fn health(
    checks: &Checks,
    endpoint: &str,
    only: Option<&str>,
    verbose: bool,
    details: bool,
) -> Response<Full<Bytes>> {
    match checks.answer(endpoint, only, verbose, details) {
        Some((true, lines)) => text(StatusCode::OK, lines),
        Some((false, lines)) => text(StatusCode::INTERNAL_SERVER_ERROR, lines),
        None => text(StatusCode::NOT_FOUND, "there is no such check\n"),
    }
}

fn metrics(registry: &Registry) -> Response<Full<Bytes>> {
    let mut lines = String::new();
    if let Err(error) = prometheus_client::encoding::text::encode(&mut lines, registry) {
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    typed(StatusCode::OK, kind, lines)
}

/// Whether a query has `verbose`, with or without a value.
fn is_verbose(query: &str) -> bool {
    query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="))
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body)
}

fn typed(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let mut set =
        |name, value| response.headers_mut().insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, kind);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::CACHE_CONTROL, "no-cache, no-store");
    if status == StatusCode::UNAUTHORIZED {
        set(header::WWW_AUTHENTICATE, "Bearer");
    }
    response
}
