//! Sessions cloned from that of another program: a service that is logged in issues tickets.
//!
//! Each login requests a ticket, because a ticket is valid once. The bearer token may be in a file, which is read at
//! each login: tokens of Kubernetes change. A service that issues no ticket is like an unreachable vCenter, not like
//! a refused password: the next login tries again.

use std::{fs, path::PathBuf, time::Duration};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{
    body::Bytes,
    http::{Request, StatusCode, Uri},
};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{http::innermost, tls::Trust};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const LONGEST: usize = 64 << 10;

/// A service that issues tickets for clones of its session.
#[derive(Debug, Clone)]
pub struct SharedSession {
    /// Where it is; `https`, or `http` inside a cluster.
    pub url: String,
    /// How we authenticate to it.
    pub bearer: Bearer,
}

/// The bearer token for the service.
#[derive(Debug, Clone)]
pub enum Bearer {
    /// This token.
    Token(SecretString),
    /// The token in this file.
    File(PathBuf),
}

/// Why there is no ticket.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the session service {url} gave no usable ticket: {problem}")]
pub struct NoTicket {
    url: String,
    problem: String,
}

#[derive(Deserialize)]
struct Answer {
    token: String,
}

impl SharedSession {
    pub(crate) async fn ticket(&self) -> Result<SecretString, NoTicket> {
        let late = |_| Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs()));
        let answered = tokio::time::timeout(ANSWER_WITHIN, self.request()).await;
        answered.unwrap_or_else(late).map_err(|problem| self.refusal(problem))
    }

    /// The error of a missing or unusable ticket.
    pub(crate) fn refusal(&self, problem: impl Into<String>) -> NoTicket {
        NoTicket { url: self.url.clone(), problem: problem.into() }
    }

    async fn request(&self) -> Result<SecretString, String> {
        let url: Uri = self.url.parse().map_err(|_| "not a valid URL".to_owned())?;
        let bearer = self.bearer.read()?;
        let tls = Trust::default().config().map_err(|error| error.to_string())?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let client: Client<_, Empty<Bytes>> =
            Client::builder(TokioExecutor::new()).build(connector);
        let request = Request::get(url)
            .header("accept", "application/json")
            .header("authorization", format!("Bearer {}", bearer.expose_secret()))
            .body(Empty::new())
            .map_err(|error| error.to_string())?;
        let response = client.request(request).await.map_err(|error| innermost(&error))?;
        match response.status() {
            StatusCode::OK => {}
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let remedy = "correct vc-session-manager-token in the Secret";
                return Err(format!("it answered {status}; {remedy}"));
            }
            status => return Err(format!("it answered {status}")),
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| "it did not answer {\"token\": \"…\"}".to_owned())?;
        if answer.token.is_empty() {
            return Err("its ticket is empty; look at the service's own log".to_owned());
        }
        Ok(SecretString::from(answer.token))
    }
}

impl Bearer {
    fn read(&self) -> Result<SecretString, String> {
        match self {
            Self::Token(token) => Ok(token.clone()),
            Self::File(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                Ok(SecretString::from(text.trim().to_owned()))
            }
        }
    }
}
