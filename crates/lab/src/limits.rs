//! Limits of the machine that several worlds at once exceed.

use std::{fs, path::Path};

/// inotify instances of a user. An API server has six and a kubelet as many, and Linux allows 128.
const INOTIFY_INSTANCES: &str = "/proc/sys/fs/inotify/max_user_instances";
const MANY: u64 = 1024;

/// Raises what is too low, as far as this user may; a component that meets a limit says so in its log.
pub(crate) fn raise() {
    raise_to(Path::new(INOTIFY_INSTANCES), MANY);
}

fn raise_to(limit: &Path, wanted: u64) {
    let current = fs::read_to_string(limit).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if current.is_some_and(|current| current < wanted) {
        fs::write(limit, wanted.to_string()).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::{fs, raise_to};

    #[test]
    fn a_limit_is_raised_and_never_lowered() {
        let directory = tempfile::tempdir().unwrap();
        let limit = directory.path().join("limit");
        for (before, after) in [("128\n", "1024"), ("1024\n", "1024\n"), ("8192\n", "8192\n")] {
            fs::write(&limit, before).unwrap();
            raise_to(&limit, 1024);
            assert_eq!(fs::read_to_string(&limit).unwrap(), after);
        }
        raise_to(&directory.path().join("absent"), 1024);
        assert!(!directory.path().join("absent").exists());
    }
}
