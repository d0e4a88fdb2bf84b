//! Values that follow their source: files, directories and a Secret.
//!
//! A source that changes is read and parsed again, and the holders of [`Followed`] are woken. A source that
//! is absent or invalid is a state like any other, beside which the last good value is kept. Rewriting a
//! source with the same bytes is not a change.
//!
//! Files are checked once a second. Kubernetes swaps mounts of ConfigMaps and Secrets by renaming a link two
//! levels above the file, and network file systems report no changes: `stat` on the path sees both, inotify
//! sees neither without watching every level. A Secret is followed by a watch of that one object, so that a
//! role which names it suffices.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        watcher::{Event, watcher},
    },
};
use sha2::{Digest, Sha256};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tracing::{info, warn};

use crate::{
    client,
    permissions::{Permission, Scope},
    supervise::{self, Chain, Shutdown},
};

const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The contents of files by their paths; a path that does not exist is left out.
pub type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// A value that follows its source.
#[derive(Debug)]
pub struct Followed<T, E> {
    source: Arc<str>,
    state: watch::Receiver<Arc<State<T, E>>>,
}

/// What is known of a source.
#[derive(Debug)]
pub struct State<T, E> {
    /// The last good value; kept while there is a problem.
    pub value: Option<Arc<T>>,
    /// Why the source cannot be used as it is now.
    pub problem: Option<Problem<E>>,
}

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Problem<E> {
    /// The API server has not answered yet.
    #[error("it has not been read yet")]
    Unread,
    /// The Secret, or every one of the paths, does not exist.
    #[error("it does not exist")]
    Absent,
    /// Reading failed.
    #[error("{0}")]
    Unreadable(String),
    /// The parser refused the contents.
    #[error("{0}")]
    Invalid(E),
}

/// A source has no good value yet.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(String);

impl<T, E> Followed<T, E> {
    /// The current state, which then counts as seen.
    pub fn state(&mut self) -> Arc<State<T, E>> {
        Arc::clone(&self.state.borrow_and_update())
    }

    /// Returns when the state differs from the one seen last; never when the source is no longer followed.
    /// Cancel safe.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The last good value, if there has been one.
    pub fn usable(&self) -> Result<Arc<T>, Unusable>
    where
        E: fmt::Display,
    {
        let State { value, problem } = &**self.state.borrow();
        value.clone().ok_or_else(|| {
            let problem = problem.as_ref().unwrap_or(&Problem::Unread);
            Unusable(format!("{} cannot be used: {problem}", self.source))
        })
    }
}

impl<T, E> Clone for Followed<T, E> {
    fn clone(&self) -> Self {
        Self { source: Arc::clone(&self.source), state: self.state.clone() }
    }
}

/// Returns when the value is not one that is in use, or one of further files that it names has changed: why.
pub async fn replaced<T, E>(
    followed: &mut Followed<T, E>,
    is_in_use: impl Fn(&T) -> bool,
    named: Vec<PathBuf>,
) -> &'static str {
    let (stop, asked) = supervise::shutdown();
    let keep = |contents: &Contents| Ok::<_, Infallible>(contents.clone());
    let (follow, mut contents) = files(named, keep);
    let first = contents.state();
    let rotated = async {
        // A file that is gone for a while is not a reason to give up what is in use.
        while contents.state().value == first.value {
            contents.changed().await;
        }
    };
    let edited = async {
        while followed.state().value.as_deref().is_none_or(&is_in_use) {
            followed.changed().await;
        }
    };
    let why = tokio::select! {
        () = rotated => "a file of certificate authorities changed",
        () = edited => "the configuration changed",
        _ = follow.follow(asked) => std::future::pending().await,
    };
    drop(stop);
    why
}

/// Files that are checked for changes.
pub struct Files<T, E> {
    paths: Vec<PathBuf>,
    seen: Option<Stamps>,
    target: Target<Contents, T, E>,
}

/// What distinguishes a file from its successor: device, inode, size and time of change.
type Stamps = BTreeMap<PathBuf, (u64, u64, u64, i64, i64)>;

/// Follows files, which are read at once; a path that is a directory stands for the files in it.
pub fn files<T, E: fmt::Display>(
    paths: Vec<PathBuf>,
    parse: impl Fn(&Contents) -> Result<T, E> + Send + Sync + 'static,
) -> (Files<T, E>, Followed<T, E>) {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    let (target, followed) = Target::new(&names.join(", "), parse);
    let mut files = Files { paths, seen: None, target };
    files.check();
    (files, followed)
}

impl<T, E: fmt::Display> Files<T, E> {
    /// Checks for changes until `shutdown`.
    pub async fn follow(mut self, shutdown: Shutdown) -> Result<(), Infallible> {
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.unless(checks.tick()).await.is_some() {
            self.check();
        }
        Ok(())
    }

    fn check(&mut self) {
        if let Err(reason) = self.read() {
            self.seen = None;
            self.target.report(Problem::Unreadable(reason));
        }
    }

    fn read(&mut self) -> Result<(), String> {
        // Stamped before it is read: a change in between is seen by the next check.
        let seen = stamps(&self.paths)?;
        if self.seen.as_ref() == Some(&seen) {
            return Ok(());
        }
        let contents = contents(seen.keys())?;
        if contents.is_empty() && !self.paths.iter().any(|path| path.exists()) {
            self.target.report(Problem::Absent);
        } else {
            let entries =
                contents.iter().map(|(path, bytes)| (path.as_os_str().as_encoded_bytes(), bytes));
            self.target.take(digest(entries), &contents);
        }
        self.seen = Some(seen);
        Ok(())
    }
}

/// A Secret that is watched.
pub struct NamedSecret<T, E> {
    secrets: Api<Secret>,
    name: String,
    target: Target<Secret, T, E>,
}

/// Follows one Secret by its name; a change is a change of its data.
pub fn secret<T, E: fmt::Display>(
    client: Client,
    namespace: &str,
    name: &str,
    parse: impl Fn(&Secret) -> Result<T, E> + Send + Sync + 'static,
) -> (NamedSecret<T, E>, Followed<T, E>) {
    let (target, followed) = Target::new(&format!("the secret {namespace}/{name}"), parse);
    let secrets = Api::namespaced(client, namespace);
    (NamedSecret { secrets, name: name.to_owned(), target }, followed)
}

/// What [`NamedSecret::follow`] calls for this Secret.
pub fn permissions(namespace: &str, name: &str) -> Vec<Permission> {
    let scope = Scope::Namespace(namespace.to_owned());
    vec![Permission::new(scope, ("", "secrets"), &["list", "watch"]).named(name)]
}

impl<T, E: fmt::Display> NamedSecret<T, E> {
    /// Watches the Secret until `shutdown`; while the API server is unavailable it retries with back-off.
    pub async fn follow(mut self, shutdown: Shutdown) -> Result<(), Infallible> {
        let only = client::watch().fields(&format!("metadata.name={}", self.name));
        let events = watcher(self.secrets.clone(), only).backoff(client::backoff());
        pin_mut!(events);
        let (mut present, mut listed) = (false, false);
        while let Some(Some(event)) = shutdown.unless(events.next()).await {
            match event {
                Ok(Event::Init) => present = false,
                Ok(Event::InitApply(secret) | Event::Apply(secret)) => {
                    present = true;
                    let data = secret.data.iter().flatten();
                    let entries = data.map(|(key, value)| (key.as_bytes(), &value.0));
                    self.target.take(digest(entries), &secret);
                }
                Ok(Event::InitDone) => {
                    listed = true;
                    if !present {
                        self.target.report(Problem::Absent);
                    }
                }
                Ok(Event::Delete(_)) => self.target.report(Problem::Absent),
                // A broken watch resumes without an event that would clear the problem again.
                Err(error) if listed => {
                    warn!(source = &*self.target.source, error = %Chain(&error), "watch broke; retrying");
                }
                Err(error) => {
                    self.target.report(Problem::Unreadable(Chain(&error).to_string()));
                }
            }
        }
        Ok(())
    }
}

type Parse<S, T, E> = Box<dyn Fn(&S) -> Result<T, E> + Send + Sync>;

/// The sending side of [`Followed`].
struct Target<S, T, E> {
    source: Arc<str>,
    parse: Parse<S, T, E>,
    state: watch::Sender<Arc<State<T, E>>>,
    /// What was found last: contents, as a digest because they may be secret, or why there are none.
    found: Option<Result<[u8; 32], String>>,
    /// The contents of the value in force.
    in_force: Option<[u8; 32]>,
}

impl<S, T, E: fmt::Display> Target<S, T, E> {
    fn new(
        source: &str,
        parse: impl Fn(&S) -> Result<T, E> + Send + Sync + 'static,
    ) -> (Self, Followed<T, E>) {
        let source: Arc<str> = source.into();
        let unread = State { value: None, problem: Some(Problem::Unread) };
        let (state, receiver) = watch::channel(Arc::new(unread));
        let followed = Followed { source: Arc::clone(&source), state: receiver };
        (Self { source, parse: Box::new(parse), state, found: None, in_force: None }, followed)
    }

    /// Takes over contents, which are parsed unless they are those of the value in force.
    fn take(&mut self, digest: [u8; 32], contents: &S) {
        if self.found.replace(Ok(digest)) == Some(Ok(digest)) {
            return;
        }
        if self.in_force == Some(digest) {
            return self.keep_value(None);
        }
        match (self.parse)(contents) {
            Ok(value) => {
                info!(source = &*self.source, "source read");
                self.in_force = Some(digest);
                let state = State { value: Some(Arc::new(value)), problem: None };
                self.state.send_replace(Arc::new(state));
            }
            Err(error) => self.keep_value(Some(Problem::Invalid(error))),
        }
    }

    /// Takes over that there are no contents.
    fn report(&mut self, problem: Problem<E>) {
        let found = Err(problem.to_string());
        if self.found.replace(found.clone()) != Some(found) {
            self.keep_value(Some(problem));
        }
    }

    fn keep_value(&self, problem: Option<Problem<E>>) {
        let source = &*self.source;
        let value = self.state.borrow().value.clone();
        match (&problem, &value) {
            (None, _) => info!(source, "source usable again; nothing changed"),
            (Some(problem), None) => warn!(source, %problem, "source cannot be used"),
            (Some(problem), Some(_)) => {
                warn!(source, %problem, "source cannot be used; the last good value stays in force");
            }
        }
        self.state.send_replace(Arc::new(State { value, problem }));
    }
}

fn digest<'a>(entries: impl Iterator<Item = (&'a [u8], &'a Vec<u8>)>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for (name, bytes) in entries {
        for part in [name, bytes] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
    }
    digest.finalize().into()
}

/// The result of reading a path, without paths that do not exist.
fn existing<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, String> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

/// The stamps of the files that the paths stand for.
fn stamps(paths: &[PathBuf]) -> Result<Stamps, String> {
    let mut stamps = Stamps::new();
    for path in paths {
        let Some(found) = existing(path, fs::metadata(path))? else { continue };
        if !found.is_dir() {
            stamps.insert(path.clone(), stamp(&found));
            continue;
        }
        let Some(entries) = existing(path, fs::read_dir(path))? else { continue };
        for entry in entries {
            let Some(entry) = existing(path, entry)? else { continue };
            // Kubernetes keeps the versions of a mount in hidden directories beside the links into them.
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if let Ok(found) = fs::metadata(entry.path())
                && !hidden
                && found.is_file()
            {
                stamps.insert(entry.path(), stamp(&found));
            }
        }
    }
    Ok(stamps)
}

fn stamp(found: &fs::Metadata) -> (u64, u64, u64, i64, i64) {
    (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec())
}

fn contents<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<Contents, String> {
    let read =
        |path: &PathBuf| Ok(existing(path, fs::read(path))?.map(|bytes| (path.clone(), bytes)));
    paths.filter_map(|path| read(path).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn number(contents: &Contents) -> Result<Vec<i32>, std::num::ParseIntError> {
        let parse = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).trim().parse();
        contents.values().map(parse).collect()
    }

    fn value<E>(followed: &mut Followed<Vec<i32>, E>) -> Option<Vec<i32>> {
        followed.state().value.as_ref().map(|value| value.to_vec())
    }

    /// A mount as the kubelet makes it: the file is a link to `..data/file`, which is a link to a version.
    fn publish(mount: &Path, version: &str, value: &str) {
        let dir = mount.join(format!("..{version}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("value"), value).unwrap();
        symlink(format!("..{version}"), mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        if !mount.join("value").exists() {
            symlink("..data/value", mount.join("value")).unwrap();
        }
    }

    #[test]
    fn a_swapped_mount_is_seen_through_the_file_and_through_the_directory() {
        let mount = tempfile::tempdir().unwrap();
        publish(mount.path(), "1", "1");
        let (mut file, mut file_value) = files(vec![mount.path().join("value")], number);
        let (mut dir, mut dir_value) = files(vec![mount.path().to_owned()], number);
        assert_eq!(value(&mut dir_value).unwrap(), [1]);
        publish(mount.path(), "2", "2");
        file.check();
        dir.check();
        assert_eq!(value(&mut file_value).unwrap(), [2]);
        assert_eq!(value(&mut dir_value).unwrap(), [2]);
    }

    #[test]
    fn a_bad_value_keeps_the_old_one_and_is_reported_until_it_is_good_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        fs::write(&path, "1").unwrap();
        let (mut source, mut followed) = files(vec![path.clone()], number);
        fs::write(&path, "one hundred").unwrap();
        source.check();
        assert_eq!(value(&mut followed).unwrap(), [1]);
        let state = followed.state();
        let Some(Problem::Invalid(error)) = &state.problem else { panic!("accepted") };
        assert_eq!(*error.kind(), std::num::IntErrorKind::InvalidDigit);
        fs::remove_file(&path).unwrap();
        source.check();
        assert!(matches!(followed.state().problem, Some(Problem::Absent)));
        assert_eq!(value(&mut followed).unwrap(), [1]);
        fs::write(&path, "100").unwrap();
        source.check();
        assert_eq!(value(&mut followed).unwrap(), [100]);
        assert!(followed.state().problem.is_none());
    }

    #[test]
    fn a_file_that_comes_later_is_read_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        let (mut source, mut followed) = files(vec![path.clone()], number);
        let absent = followed.usable().unwrap_err().to_string();
        assert_eq!(absent, format!("{} cannot be used: it does not exist", path.display()));
        fs::write(&path, "7").unwrap();
        source.check();
        assert_eq!(value(&mut followed).unwrap(), [7]);
    }

    #[test]
    fn one_of_several_files_may_come_later() {
        let dir = tempfile::tempdir().unwrap();
        let paths = vec![dir.path().join("1"), dir.path().join("2")];
        fs::write(&paths[0], "1").unwrap();
        let (mut source, mut followed) = files(paths.clone(), number);
        assert_eq!(value(&mut followed).unwrap(), [1]);
        fs::write(&paths[1], "2").unwrap();
        source.check();
        assert_eq!(value(&mut followed).unwrap(), [1, 2]);
    }

    #[test]
    fn a_file_that_comes_back_as_it_was_keeps_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("value"), dir.path().join("aside"));
        fs::write(&path, "1").unwrap();
        let (mut source, mut followed) = files(vec![path.clone()], number);
        let first = followed.usable().unwrap();
        fs::rename(&path, &aside).unwrap();
        source.check();
        assert!(matches!(followed.state().problem, Some(Problem::Absent)));
        fs::rename(&aside, &path).unwrap();
        source.check();
        assert!(followed.state().problem.is_none());
        assert!(Arc::ptr_eq(&first, &followed.usable().unwrap()));
    }

    #[test]
    fn a_file_rewritten_with_the_same_bytes_is_not_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        for text in ["1", "one"] {
            fs::write(&path, text).unwrap();
            let (mut source, mut followed) = files(vec![path.clone()], number);
            followed.state();
            let rewritten = dir.path().join("rewritten");
            fs::write(&rewritten, text).unwrap();
            fs::rename(&rewritten, &path).unwrap();
            source.check();
            assert!(!followed.state.has_changed().unwrap(), "{text}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "1").unwrap();
        let (_source, followed) = files(vec![file.join("below")], number);
        let error = followed.usable().unwrap_err().to_string();
        assert!(error.contains("cannot read") && error.contains("file/below"), "{error}");
    }

    #[test]
    fn nothing_is_read_while_nothing_changes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("value"), "1").unwrap();
        let (mut source, mut followed) = files(vec![dir.path().to_owned()], number);
        followed.state();
        source.check();
        assert!(!followed.state.has_changed().unwrap());
        fs::write(dir.path().join("another"), "2").unwrap();
        source.check();
        assert_eq!(value(&mut followed).unwrap(), [2, 1]);
    }
}
