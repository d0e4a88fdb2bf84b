//! Authentication and authorization of callers, delegated to the Kubernetes API and cached for a while.
//!
//! A TokenReview authenticates the caller, a SubjectAccessReview authorizes the request. Tokens are cached by
//! their digests only. A review that failed is not cached.

use std::{sync::Mutex, time::Duration};

use hyper::http::{HeaderMap, Method, StatusCode, header::AUTHORIZATION};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::lock;
use crate::{
    args::{Authentication, Authorization, OptionalPath},
    client::{self, InvalidKubernetes},
    expiring::Expiring,
    permissions::{Permission, Scope},
    supervise::Chain,
};

const REVIEW_WITHIN: Duration = Duration::from_secs(10);
/// More callers than any cluster has.
const CACHED: usize = 1024;

/// Decides whether a request is answered.
pub struct Access {
    token_reviews: Api<TokenReview>,
    access_reviews: Api<SubjectAccessReview>,
    authentication: Authentication,
    authorization: Authorization,
    users: Mutex<Expiring<[u8; 32], Option<UserInfo>>>,
    permissions: Mutex<Expiring<(String, String, String), bool>>,
}

/// What [`Access`] calls.
pub fn permissions() -> Vec<Permission> {
    let create = |resource| Permission::new(Scope::Cluster, resource, &["create"]);
    vec![
        create(("authentication.k8s.io", "tokenreviews")),
        create(("authorization.k8s.io", "subjectaccessreviews")),
    ]
}

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Access {
    /// Uses the APIs that the flags name, or the one behind `client`.
    pub async fn new(
        client: &Client,
        authentication: &Authentication,
        authorization: &Authorization,
    ) -> Result<Self, InvalidKubernetes> {
        let authenticates = reviewer(&authentication.authentication_kubeconfig, client).await?;
        let authorizes = reviewer(&authorization.authorization_kubeconfig, client).await?;
        Ok(Self {
            token_reviews: Api::all(authenticates),
            access_reviews: Api::all(authorizes),
            authentication: authentication.clone(),
            authorization: authorization.clone(),
            users: Mutex::new(Expiring::new(CACHED)),
            permissions: Mutex::new(Expiring::new(CACHED)),
        })
    }

    /// `Ok` if the request may be answered.
    pub(super) async fn check(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        if is_open(&self.authorization.authorization_always_allow_paths, path) {
            return Ok(());
        }
        self.authorize(&method.as_str().to_ascii_lowercase(), path, headers).await
    }

    /// Whether the caller may read the details of checks: everybody who may read metrics. The paths of the
    /// checks themselves are open to all accounts of a cluster by default.
    pub(super) async fn shows_details(&self, headers: &HeaderMap) -> bool {
        bearer(headers).is_some() && self.authorize("get", "/metrics", headers).await.is_ok()
    }

    async fn authorize(&self, verb: &str, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = bearer(headers).ok_or_else(|| {
            let text = format!(
                "{path} needs a token: send \"Authorization: Bearer <token>\" with one of a service account"
            );
            Refusal { status: StatusCode::UNAUTHORIZED, text }
        })?;
        let user = self.user(token).await?.ok_or_else(|| {
            let text = "the Kubernetes API does not know this token: it is wrong, expired or for another audience";
            Refusal { status: StatusCode::UNAUTHORIZED, text: text.to_owned() }
        })?;
        if self.may(&user, verb, path).await? {
            return Ok(());
        }
        let name = user.username.unwrap_or_default();
        let text = format!(
            "{name} may not {verb} {path}: bind it to a ClusterRole with the rule \
             {{nonResourceURLs: [\"{path}\"], verbs: [\"{verb}\"]}}"
        );
        Err(Refusal { status: StatusCode::FORBIDDEN, text })
    }

    async fn user(&self, token: &str) -> Result<Option<UserInfo>, Refusal> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(user) = lock(&self.users).get_mut(&key) {
            return Ok(user.clone());
        }
        let review = TokenReview {
            spec: TokenReviewSpec { token: Some(token.to_owned()), audiences: None },
            ..TokenReview::default()
        };
        let params = PostParams::default();
        let answer = review_answer(self.token_reviews.create(&params, &review), "tokenreviews");
        let status = answer.await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let ttl = self.authentication.authentication_token_webhook_cache_ttl;
        lock(&self.users).insert(key, user.clone(), ttl);
        Ok(user)
    }

    async fn may(&self, user: &UserInfo, verb: &str, path: &str) -> Result<bool, Refusal> {
        // Everything about the user takes part: two tokens of one name may have different groups.
        let key = (format!("{user:?}"), verb.to_owned(), path.to_owned());
        if let Some(allowed) = lock(&self.permissions).get_mut(&key) {
            return Ok(*allowed);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                uid: user.uid.clone(),
                groups: user.groups.clone(),
                extra: user.extra.clone(),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let params = PostParams::default();
        let answer = self.access_reviews.create(&params, &review);
        let status = review_answer(answer, "subjectaccessreviews").await?.status;
        let allowed = status.is_some_and(|status| status.allowed);
        let ttl = if allowed {
            self.authorization.authorization_webhook_cache_authorized_ttl
        } else {
            self.authorization.authorization_webhook_cache_unauthorized_ttl
        };
        lock(&self.permissions).insert(key, allowed, ttl);
        Ok(allowed)
    }
}

/// The client of a kubeconfig, or the one that is used for everything else.
async fn reviewer(kubeconfig: &OptionalPath, client: &Client) -> Result<Client, InvalidKubernetes> {
    let Some(path) = kubeconfig else { return Ok(client.clone()) };
    client::connect(client::read_kubeconfig(path).await?, None)
}

/// The API's answer; without one the request is refused, and the text names the remedy.
async fn review_answer<T>(
    review: impl Future<Output = Result<T, kube::Error>>,
    resource: &str,
) -> Result<T, Refusal> {
    let problem = match timeout(REVIEW_WITHIN, review).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => format!(
            "this program may not create {resource}: bind its service account to the ClusterRole \
             system:auth-delegator"
        ),
        Ok(Err(error)) => Chain(&error).to_string(),
        Err(_) => "the Kubernetes API did not answer".to_owned(),
    };
    Err(Refusal {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        text: format!("could not authenticate and authorize the request: {problem}"),
    })
}

fn is_open(open: &[String], path: &str) -> bool {
    open.iter().any(|one| match one.strip_suffix("/*") {
        Some(above) => path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/')),
        None => one == path,
    })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_paths_are_exact_unless_they_end_in_a_star() {
        let open = ["/healthz".to_owned(), "/debug/*".to_owned()];
        let check =
            |path: &str, expected: bool| assert_eq!(is_open(&open, path), expected, "{path}");
        check("/healthz", true);
        check("/healthz/", false);
        check("/healthz/ping", false);
        check("/debug/flags/v", true);
        check("/debug", false);
        check("/debugging", false);
        check("/metrics", false);
    }

    #[test]
    fn a_token_is_found_however_the_scheme_is_written() {
        let check = |value: &str, expected: Option<&str>| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(bearer(&headers), expected, "{value}");
        };
        check("Bearer abc", Some("abc"));
        check("bearer  abc ", Some("abc"));
        check("Basic abc", None);
        check("Bearer ", None);
        check("Bearer", None);
    }
}
