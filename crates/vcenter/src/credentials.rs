//! Where credentials come from, and how they follow their source.
//!
//! Each Secret and each directory is followed once, however many vCenters use it; each vCenter gets a channel
//! with its own login. A source that is missing or not valid is a reason that the vCenter's health reports. One
//! that becomes so later keeps the last good login.

use std::{collections::BTreeMap, convert::Infallible};

use cloud_config::{CredentialSource, Login, Logins, Problems, SecretName, VCenter};
use daemon::{
    reload::{self, Contents, Followed, Problem},
    supervise::{Shutdown, Tasks},
};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use secrecy::ExposeSecret;
use tokio::sync::watch;
use tracing::warn;
use vsphere::{
    session::Credentials,
    shared::{Bearer, SharedSession},
    sts::KeyPair,
};

use crate::view::send_if_different;

/// A login, or why there is none: nothing when it has not been read yet.
pub(crate) type Credential = watch::Receiver<Result<Login, Option<String>>>;

/// The token for a session service if the Secret has none.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Where the login of a vCenter goes.
pub(crate) type Sender = watch::Sender<Result<Login, Option<String>>>;
/// The vCenters of one source, and where the login of each goes.
type Receivers = Vec<(VCenter, Sender)>;

/// Follows the credentials of all vCenters, in their order. Those that stand in the configuration follow what is sent.
pub(crate) fn follow(
    client: &Client,
    vcenters: &[VCenter],
    tasks: &mut Tasks,
) -> Vec<(Credential, Option<Sender>)> {
    let mut credentials = Vec::new();
    let mut sources: BTreeMap<String, (&CredentialSource, Receivers)> = BTreeMap::new();
    for vcenter in vcenters {
        let source = &vcenter.credentials;
        if let CredentialSource::Inline(inline) = source {
            let (sender, credential) = watch::channel(Ok(Login::Password(inline.clone())));
            credentials.push((credential, Some(sender)));
            continue;
        }
        let (sender, credential) = watch::channel(Err(None));
        credentials.push((credential, None));
        let (_, receivers) = sources.entry(describe(source)).or_insert((source, Vec::new()));
        receivers.push((vcenter.clone(), sender));
    }
    for (described, (source, receivers)) in sources {
        let followed = match source {
            CredentialSource::Inline(_) => continue,
            CredentialSource::Secret(SecretName { namespace, name }) => {
                let (secret, followed) = reload::secret(client.clone(), namespace, name, of_secret);
                tasks.spawn(&described, |shutdown| secret.follow(shutdown));
                followed
            }
            CredentialSource::Directory(path) => {
                let (files, followed) = reload::files(vec![path.clone()], of_directory);
                tasks.spawn(&described, |shutdown| files.follow(shutdown));
                followed
            }
        };
        tasks.spawn(&format!("logins in {described}"), |shutdown| {
            distribute(described, followed, receivers, shutdown)
        });
    }
    credentials
}

/// As messages name the source.
pub(crate) fn describe(source: &CredentialSource) -> String {
    match source {
        CredentialSource::Inline(_) => "the configuration".to_owned(),
        CredentialSource::Secret(name) => format!("the Secret {name}"),
        CredentialSource::Directory(path) => format!("the directory {}", path.display()),
    }
}

/// Sends every vCenter of a source its login, now and whenever the source changes.
async fn distribute(
    source: String,
    mut followed: Followed<Logins, Problems>,
    receivers: Receivers,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    loop {
        let state = followed.state();
        for (vcenter, sender) in &receivers {
            let found = |logins| {
                let login = vcenter.login(logins);
                login.map_err(|missing| Some(format!("{source}: {missing}")))
            };
            let next = match (&state.value, &state.problem) {
                (Some(logins), _) => found(Some(logins.as_ref())),
                (None, None | Some(Problem::Unread)) => continue,
                (None, Some(Problem::Absent)) if vcenter.fallback.is_some() => found(None),
                (None, Some(problem)) => Err(Some(format!("{source} cannot be used: {problem}"))),
            };
            send_if_different(sender, next);
        }
        if shutdown.unless(followed.changed()).await.is_none() {
            return Ok(());
        }
    }
}

fn of_secret(secret: &Secret) -> Result<Logins, Problems> {
    let entries = secret.data.iter().flatten();
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    read(name, entries.map(|(key, value)| (key.as_str(), value.0.as_slice())))
}

fn of_directory(contents: &Contents) -> Result<Logins, Problems> {
    let entries = contents.iter().filter_map(|(path, bytes)| {
        let key = path.file_name()?.to_str()?;
        Some((key, bytes.as_slice()))
    });
    read("", entries)
}

fn read<'a>(
    name: &str,
    entries: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Logins, Problems> {
    let (logins, warnings) = Logins::read(name, entries)?;
    for warning in warnings {
        warn!(%warning, "credentials read with a warning");
    }
    Ok(logins)
}

/// The client's credentials of a login.
pub(crate) fn of(login: &Login) -> Result<Credentials, Option<String>> {
    match login {
        Login::Password(inline) => {
            let password = inline.password.expose_secret();
            if inline.user.trim_start().starts_with("-----BEGIN") {
                let pair = KeyPair::from_pem(&inline.user, password);
                return pair.map(Credentials::Certificate).map_err(|error| Some(error.to_string()));
            }
            Ok(Credentials::password(inline.user.clone(), password))
        }
        Login::SharedSession { url, token } => {
            let own = || Bearer::File(OWN_TOKEN.into());
            let bearer = token.clone().map_or_else(own, Bearer::Token);
            Ok(Credentials::Shared(SharedSession { url: url.clone(), bearer }))
        }
    }
}
