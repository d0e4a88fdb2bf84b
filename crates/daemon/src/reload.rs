//! Values that follow their source: files, directories and a Secret.
//!
//! A source that changes is read and parsed again; whoever holds the value's receiver gets the new one. What
//! does not parse keeps the old value and says so, in the log and in [`Followed::refusal`].
//!
//! Files are looked at once a second. Kubernetes swaps mounts of ConfigMaps and Secrets by renaming a link
//! two levels above the file, and file systems on a network tell nobody about changes: a look at what the
//! path leads to sees both, inotify sees neither without watching every level and adding watches anew. A few
//! calls of `stat` a second cost nothing. A Secret is followed by a watch of that one object, so that a role
//! which names it suffices.

use std::{
    collections::BTreeMap,
    fs, io,
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
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tracing::{info, warn};

use crate::{
    pauses::Pauses,
    permissions::{Permission, Scope},
    supervise::{Chain, Shutdown},
};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The contents of files by their paths.
pub type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// A value that follows its source.
#[derive(Clone, Debug)]
pub struct Followed<T> {
    /// The value that is in force.
    pub value: watch::Receiver<T>,
    /// Why the source's current state was refused; `None` while the value is what the source says.
    pub refusal: watch::Receiver<Option<String>>,
}

/// The sources cannot be used at the start, when there is no older value to keep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name} cannot be used: {problem}")]
pub struct Unusable {
    /// Which source.
    pub source_name: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Files that are looked at again and again.
pub struct Files<T> {
    paths: Vec<PathBuf>,
    parse: Parse<Contents, T>,
    seen: Stamps,
    target: Target<Arc<T>>,
}

/// A Secret that is watched.
pub struct Named<T> {
    secrets: Api<Secret>,
    name: String,
    parse: Parse<Secret, T>,
    /// The version that was parsed last, and what was wrong with it.
    parsed: Option<(String, Option<String>)>,
    target: Target<Option<Arc<T>>>,
}

type Parse<S, T> = Box<dyn Fn(&S) -> Result<T, String> + Send + Sync>;

/// What tells a file from its successor: device, inode, size and time of change.
type Stamps = BTreeMap<PathBuf, (u64, u64, u64, i64, i64)>;

/// Follows files; a path that is a directory stands for the files in it. Their first state must parse.
///
/// # Errors
/// When a path cannot be read or what is in the files is refused by `parse`.
pub fn files<T>(
    paths: Vec<PathBuf>,
    parse: impl Fn(&Contents) -> Result<T, String> + Send + Sync + 'static,
) -> Result<(Files<T>, Followed<Arc<T>>), Unusable> {
    let name = named(&paths);
    let first = || {
        // Stamped before it is read: a change in between is seen by the next look.
        let seen = stamps(&paths)?;
        Ok((seen, parse(&contents(&paths)?)?))
    };
    let (seen, value) =
        first().map_err(|problem| Unusable { source_name: name.clone(), problem })?;
    let (target, followed) = Target::new(name, Arc::new(value));
    Ok((Files { paths, parse: Box::new(parse), seen, target }, followed))
}

impl<T: Send + Sync> Files<T> {
    /// Looks for changes until `shutdown`.
    ///
    /// # Errors
    /// None: files that cannot be read keep the old value.
    pub async fn follow(mut self, shutdown: Shutdown) -> Result<(), std::convert::Infallible> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.unless(looks.tick()).await.is_some() {
            self.look();
        }
        Ok(())
    }

    fn look(&mut self) {
        let seen = match stamps(&self.paths) {
            Ok(seen) if seen == self.seen => return,
            Ok(seen) => seen,
            Err(problem) => {
                // The same file may come back, and is good news then.
                self.seen.clear();
                return self.target.refuse(problem);
            }
        };
        self.seen = seen;
        match contents(&self.paths).and_then(|contents| (self.parse)(&contents)) {
            Ok(value) => self.target.replace(Arc::new(value)),
            Err(problem) => self.target.refuse(problem),
        }
    }
}

/// Follows one Secret by its name. There is no value before the first good one was seen, and one that is
/// removed keeps its last value.
pub fn secret<T>(
    client: Client,
    namespace: &str,
    name: &str,
    parse: impl Fn(&Secret) -> Result<T, String> + Send + Sync + 'static,
) -> (Named<T>, Followed<Option<Arc<T>>>) {
    let (target, followed) = Target::new(format!("the secret {namespace}/{name}"), None);
    let named = Named {
        secrets: Api::namespaced(client, namespace),
        name: name.to_owned(),
        parse: Box::new(parse),
        parsed: None,
        target,
    };
    (named, followed)
}

/// What [`Named::follow`] calls for this Secret.
#[must_use]
pub fn permissions(namespace: &str, name: &str) -> Vec<Permission> {
    let verbs = &["list", "watch"];
    vec![Permission::new(Scope::namespace(namespace), ("", "secrets"), verbs).named(name)]
}

impl<T: Send + Sync> Named<T> {
    /// Watches the Secret until `shutdown`; an API that is away is tried again with growing pauses.
    ///
    /// # Errors
    /// None: what goes wrong is said in [`Followed::refusal`].
    pub async fn follow(mut self, shutdown: Shutdown) -> Result<(), std::convert::Infallible> {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let events = watcher(self.secrets.clone(), only).backoff(Pauses::default());
        pin_mut!(events);
        let (mut present, mut listed) = (false, false);
        while let Some(Some(event)) = shutdown.unless(events.next()).await {
            match event {
                Ok(Event::Init) => present = false,
                Ok(Event::InitApply(secret) | Event::Apply(secret)) => {
                    present = true;
                    self.take(&secret);
                }
                Ok(Event::InitDone) => {
                    listed = true;
                    if !present {
                        self.target.refuse("it does not exist".to_owned());
                    }
                }
                Ok(Event::Delete(_)) => self.target.refuse("it was removed".to_owned()),
                // A watch that broke goes on where it was and tells nobody when it does: a refusal would stay.
                Err(error) if listed => {
                    warn!(source = self.target.name, error = %Chain(&error), "watch broke; trying again");
                }
                Err(error) => self.target.refuse(Chain(&error).to_string()),
            }
        }
        Ok(())
    }

    fn take(&mut self, secret: &Secret) {
        let version = secret.metadata.resource_version.clone().unwrap_or_default();
        // An API that was away lists anew what we know; nobody should log in again for that.
        if let Some((_, problem)) = self.parsed.as_ref().filter(|(known, _)| *known == version) {
            match problem {
                None => self.target.confirm(),
                Some(problem) => self.target.refuse(problem.clone()),
            }
            return;
        }
        let problem = match (self.parse)(secret) {
            Ok(value) => {
                self.target.replace(Some(Arc::new(value)));
                None
            }
            Err(problem) => {
                self.target.refuse(problem.clone());
                Some(problem)
            }
        };
        self.parsed = Some((version, problem));
    }
}

/// Where values and refusals go.
struct Target<V> {
    name: String,
    value: watch::Sender<V>,
    refusal: watch::Sender<Option<String>>,
}

impl<V> Target<V> {
    fn new(name: String, first: V) -> (Self, Followed<V>) {
        let (value, values) = watch::channel(first);
        let (refusal, refusals) = watch::channel(None);
        (Self { name, value, refusal }, Followed { value: values, refusal: refusals })
    }

    fn replace(&self, value: V) {
        info!(source = self.name, "read anew");
        self.value.send_replace(value);
        self.confirm();
    }

    /// The value in force is what the source says.
    fn confirm(&self) {
        self.refusal.send_if_modified(|refusal| refusal.take().is_some());
    }

    fn refuse(&self, problem: String) {
        self.refusal.send_if_modified(|refusal| {
            let news = refusal.as_ref() != Some(&problem);
            if news {
                warn!(source = self.name, problem, "change refused; the last good value stays");
                *refusal = Some(problem);
            }
            news
        });
    }
}

fn named(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// The files that the paths stand for.
fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    for path in paths {
        let cannot = |error: io::Error| format!("cannot read {}: {error}", path.display());
        if !fs::metadata(path).map_err(cannot)?.is_dir() {
            all.push(path.clone());
            continue;
        }
        for entry in fs::read_dir(path).map_err(cannot)? {
            let entry = entry.map_err(cannot)?.path();
            // Kubernetes keeps the versions of a mount in hidden directories beside the links into them.
            let hidden =
                entry.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && fs::metadata(&entry).is_ok_and(|found| found.is_file()) {
                all.push(entry);
            }
        }
    }
    Ok(all)
}

fn stamps(paths: &[PathBuf]) -> Result<Stamps, String> {
    let stamp = |path: PathBuf| {
        let found = fs::metadata(&path).map_err(|error| cannot_read(&path, &error))?;
        let stamp = (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec());
        Ok((path, stamp))
    };
    expand(paths)?.into_iter().map(stamp).collect()
}

fn contents(paths: &[PathBuf]) -> Result<Contents, String> {
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).map_err(|error| cannot_read(&path, &error))?;
        Ok((path, bytes))
    };
    expand(paths)?.into_iter().map(read).collect()
}

fn cannot_read(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn number(contents: &Contents) -> Result<Vec<i32>, String> {
        let parse = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).trim().parse();
        contents.values().map(parse).collect::<Result<_, _>>().map_err(|error| format!("{error}"))
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
        let (mut file, file_value) = files(vec![mount.path().join("value")], number).unwrap();
        let (mut dir, dir_value) = files(vec![mount.path().to_owned()], number).unwrap();
        assert_eq!(**dir_value.value.borrow(), [1]);
        publish(mount.path(), "2", "2");
        file.look();
        dir.look();
        assert_eq!(**file_value.value.borrow(), [2]);
        assert_eq!(**dir_value.value.borrow(), [2]);
    }

    #[test]
    fn a_bad_value_keeps_the_old_one_and_says_so_until_it_is_good_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        fs::write(&path, "1").unwrap();
        let (mut source, followed) = files(vec![path.clone()], number).unwrap();
        fs::write(&path, "one hundred").unwrap();
        source.look();
        assert_eq!(**followed.value.borrow(), [1]);
        assert!(followed.refusal.borrow().as_ref().unwrap().contains("invalid digit"));
        fs::remove_file(&path).unwrap();
        source.look();
        assert!(followed.refusal.borrow().as_ref().unwrap().contains("No such file"));
        fs::write(&path, "100").unwrap();
        source.look();
        assert_eq!(**followed.value.borrow(), [100]);
        assert_eq!(*followed.refusal.borrow(), None);
    }

    #[test]
    fn a_file_that_comes_back_as_it_was_is_good_news() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("value"), dir.path().join("aside"));
        fs::write(&path, "1").unwrap();
        let (mut source, followed) = files(vec![path.clone()], number).unwrap();
        fs::rename(&path, &aside).unwrap();
        source.look();
        assert!(followed.refusal.borrow().is_some());
        fs::rename(&aside, &path).unwrap();
        source.look();
        assert_eq!(*followed.refusal.borrow(), None);
    }

    #[test]
    fn the_first_state_must_be_good() {
        let problem = files(vec!["/nowhere/vsphere.conf".into()], number).err().unwrap();
        assert_eq!(problem.source_name, "/nowhere/vsphere.conf");
        assert!(problem.to_string().contains("No such file"), "{problem}");
    }

    #[test]
    fn nothing_is_read_while_nothing_changes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("value"), "1").unwrap();
        let (mut source, mut followed) = files(vec![dir.path().to_owned()], number).unwrap();
        followed.value.mark_unchanged();
        source.look();
        assert!(!followed.value.has_changed().unwrap());
        fs::write(dir.path().join("another"), "2").unwrap();
        source.look();
        assert_eq!(**followed.value.borrow_and_update(), [2, 1]);
    }
}
