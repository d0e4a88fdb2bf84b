//! Where logins come from, and how they follow their source.
//!
//! Each Secret and each directory is followed once, whoever needs it; each vCenter gets a view of its own login
//! in it. A source that is missing or wrong is a reason that the vCenter's site repeats to the user. One that
//! becomes wrong later keeps the last good login.

use std::{collections::BTreeMap, convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use cloud_config::{Config, CredentialSource, Login, Logins, SecretName};
use daemon::{
    reload::{self, Contents, Followed},
    supervise::Shutdown,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tokio::{sync::watch, task::JoinSet, time::sleep};
use tracing::warn;

/// A login, or why there is none.
pub type LoginView = watch::Receiver<Result<Login, String>>;

/// How soon a directory that cannot be read is looked at again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Who waits for a login: the server, as sources name it, and where the login goes.
type Waiting = Vec<(String, watch::Sender<Result<Login, String>>)>;

/// Follows the credentials of all vCenters, in their order; `tasks` do the work until `shutdown`.
pub fn follow(
    client: &Client,
    config: &Config,
    tasks: &mut JoinSet<Result<(), Infallible>>,
    shutdown: &Shutdown,
) -> Vec<LoginView> {
    let mut views = Vec::new();
    let mut secrets: BTreeMap<SecretName, Waiting> = BTreeMap::new();
    let mut directories: BTreeMap<PathBuf, Waiting> = BTreeMap::new();
    for vcenter in &config.vcenters {
        let first = match &vcenter.credentials {
            CredentialSource::Inline(inline) => Ok(Login::Password(inline.clone())),
            _ => Err("its credentials have not been read yet".to_owned()),
        };
        let (sender, view) = watch::channel(first);
        views.push(view);
        let waiting = match &vcenter.credentials {
            CredentialSource::Inline(_) => continue,
            CredentialSource::Secret(name) => secrets.entry(name.clone()).or_default(),
            CredentialSource::Directory(path) => directories.entry(path.clone()).or_default(),
        };
        waiting.push((vcenter.server.clone(), sender));
    }
    for (name, waiting) in secrets {
        let source = format!("the secret {name}");
        let (named, followed) =
            reload::secret(client.clone(), &name.namespace, &name.name, of_secret);
        tasks.spawn(named.follow(shutdown.clone()));
        let value = |logins: &Option<Arc<Logins>>| logins.clone();
        tasks.spawn(hand_out(source, followed, value, waiting, shutdown.clone()));
    }
    for (path, waiting) in directories {
        tasks.spawn(follow_directory(path, waiting, shutdown.clone()));
    }
    views
}

async fn follow_directory(
    path: PathBuf,
    waiting: Waiting,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let (files, followed) = loop {
        match reload::files(vec![path.clone()], of_directory) {
            Ok(found) => break found,
            Err(unusable) => {
                let why = unusable.to_string();
                for (_, sender) in &waiting {
                    sender.send_if_modified(|login| replace(login, Err(why.clone())));
                }
            }
        }
        if shutdown.unless(sleep(AGAIN_AFTER)).await.is_none() {
            return Ok(());
        }
    };
    let source = format!("the directory {}", path.display());
    let value = |logins: &Arc<Logins>| Some(Arc::clone(logins));
    let handed = hand_out(source, followed, value, waiting, shutdown.clone());
    tokio::join!(files.follow(shutdown), handed).0
}

/// Gives everybody who waits for a login of one source what it says now, and later what it says then.
async fn hand_out<V>(
    source: String,
    mut followed: Followed<V>,
    value: impl Fn(&V) -> Option<Arc<Logins>>,
    waiting: Waiting,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    loop {
        let logins = value(&followed.value.borrow_and_update());
        let refusal = followed.refusal.borrow_and_update().clone();
        for (server, sender) in &waiting {
            let next = match (&logins, &refusal) {
                (Some(logins), _) => {
                    let found = logins.find(server).cloned();
                    found.map_err(|missing| format!("{source}: {missing}"))
                }
                (None, Some(refusal)) => Err(format!("{source} cannot be used: {refusal}")),
                (None, None) => continue,
            };
            sender.send_if_modified(|login| replace(login, next));
        }
        let changed = shutdown.unless(async {
            tokio::select! {
                changed = followed.value.changed() => changed,
                changed = followed.refusal.changed() => changed,
            }
        });
        if !matches!(changed.await, Some(Ok(()))) {
            shutdown.requested().await;
            return Ok(());
        }
    }
}

fn replace(login: &mut Result<Login, String>, next: Result<Login, String>) -> bool {
    let news = *login != next;
    if news {
        *login = next;
    }
    news
}

fn of_secret(secret: &Secret) -> Result<Logins, String> {
    let none = BTreeMap::new();
    let entries = secret.data.as_ref().unwrap_or(&none);
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    read(name, entries.iter().map(|(key, value)| (key.as_str(), value.0.as_slice())))
}

fn of_directory(contents: &Contents) -> Result<Logins, String> {
    let entries = contents.iter().filter_map(|(path, bytes)| {
        let key = path.file_name()?.to_str()?;
        Some((key, bytes.as_slice()))
    });
    read("", entries)
}

fn read<'a>(
    name: &str,
    entries: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Logins, String> {
    let (logins, warnings) =
        Logins::read(name, entries).map_err(|problems| problems.to_string())?;
    for warning in warnings {
        warn!(%warning, "credentials");
    }
    Ok(logins)
}
