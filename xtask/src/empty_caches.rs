//! The caches of a new machine: empty directories for cargo, Go and built components.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

/// Dropping it removes the directories.
pub(crate) struct EmptyCaches {
    dir: PathBuf,
}

impl EmptyCaches {
    pub(crate) fn create() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("vsphere-drivers-cold-{}", std::process::id()));
        fs::create_dir_all(dir.join("cargo"))
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let caches = Self { dir };
        // Which registry is used, and how, belongs to the machine and not to the cache.
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        for file in ["config.toml", "credentials.toml"] {
            if let Some(file) =
                home.as_ref().map(|home| home.join(file)).filter(|file| file.exists())
            {
                let name = file.file_name().context("the file has a name")?;
                fs::copy(&file, caches.dir.join("cargo").join(name))?;
            }
        }
        Ok(caches)
    }

    /// The variables by which Go and our component builds use them.
    pub(crate) fn of_go(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("GOCACHE", self.dir.join("go-build")),
            ("GOMODCACHE", self.dir.join("go-modules")),
            ("VSPHERE_DRIVERS_CACHE", self.dir.join("components")),
        ]
    }

    /// As [`EmptyCaches::of_go`], with those of cargo.
    pub(crate) fn of_all(&self) -> Vec<(&'static str, PathBuf)> {
        let mut all = self.of_go();
        all.push(("CARGO_HOME", self.dir.join("cargo")));
        all.push(("CARGO_TARGET_DIR", self.dir.join("target")));
        all
    }
}

impl Drop for EmptyCaches {
    fn drop(&mut self) {
        // Go makes its module cache read-only.
        lab::run(Command::new("chmod").args(["-R", "u+w"]).arg(&self.dir)).ok();
        fs::remove_dir_all(&self.dir).ok();
    }
}
