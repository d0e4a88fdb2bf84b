//! The crate against a real Kubernetes API and real signals.

#![cfg(test)]

mod admin;
mod client;
mod events;
mod lease;
mod programs;
mod reload;

use std::time::Duration;

use daemon::args;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use serde_json::json;

/// Generous: the machine may be busy with other things.
const BOUND: Duration = Duration::from_secs(60);

/// All groups of flags, as a program has them.
#[derive(clap::Parser, Debug)]
struct Flags {
    #[command(flatten)]
    leader: args::LeaderElection,
    #[command(flatten)]
    serving: args::Serving,
    #[command(flatten)]
    authentication: args::Authentication,
    #[command(flatten)]
    authorization: args::Authorization,
    #[command(flatten)]
    kubernetes: args::Kubernetes,
    #[command(flatten)]
    logs: args::Logs,
}

fn flags(line: &[&str]) -> Flags {
    let words = std::iter::once("program").chain(line.iter().copied());
    args::read(words.map(Into::into), &[], &[]).unwrap().flags
}

/// The token of a new service account in the namespace default.
async fn token(client: &Client, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let new = serde_json::from_value(json!({"metadata": {"name": account}})).unwrap();
    accounts.create(&PostParams::default(), &new).await.unwrap();
    let asked = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(account, &PostParams::default(), &asked).await;
    answer.unwrap().status.unwrap().token
}
