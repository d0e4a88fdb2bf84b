//! A gRPC client over a unix socket: one call with its answer, for our own liveness and for tests.

use std::{
    io,
    path::Path,
    task::{Context, Poll},
};

use hyper::{
    Uri,
    body::Incoming,
    client::conn::http2::{self, SendRequest},
    http::{Request, Response, uri::PathAndQuery},
};
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, task::JoinSet};
use tonic::{
    Status,
    body::Body,
    client::Grpc,
    codegen::{BoxFuture, Service},
};
use tonic_prost::ProstCodec;

use crate::serve::Calls;

/// A connection; clones share it.
#[derive(Clone)]
pub struct Client {
    grpc: Grpc<Channel>,
    /// Ends with the last clone.
    _connection: std::sync::Arc<JoinSet<()>>,
}

impl Client {
    /// Connects to the server at a socket.
    ///
    /// # Errors
    /// When nobody listens there, or what listens does not speak HTTP/2.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        let stream = TokioIo::new(UnixStream::connect(socket).await?);
        let (sender, connection) =
            http2::handshake(Calls::default(), stream).await.map_err(io::Error::other)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { connection.await.unwrap_or_default() });
        let origin = Uri::from_static("http://localhost");
        let grpc = Grpc::with_origin(Channel(sender), origin);
        Ok(Self { grpc, _connection: std::sync::Arc::new(tasks) })
    }

    /// Calls a method, such as `/csi.v1.Identity/Probe`.
    ///
    /// # Errors
    /// As the server answers; `Unknown` if the connection is lost.
    pub async fn call<Q, A>(&mut self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let path = PathAndQuery::from_static(method);
        let codec = ProstCodec::<Q, A>::default();
        let answer = self.grpc.unary(tonic::Request::new(request), path, codec).await;
        answer.map(tonic::Response::into_inner)
    }
}

/// Requests over one connection.
#[derive(Clone)]
struct Channel(SendRequest<Body>);

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
