//! The real Kubernetes components: which ones, from which Go module, and where the built ones are.
//!
//! Each module below `lab/` pins its components by go.mod and go.sum. What is built from it goes to
//! a cache outside the checkout, in a directory named by a digest of those files, the Go version and
//! the way we build: a clean clone finds them again, and a change of any of these builds anew.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::{process::run, progress::Progress};

/// A Go module below `lab/` and the programs we build from it.
#[derive(Debug)]
pub struct Module {
    /// Its directory below `lab/`.
    pub name: &'static str,
    programs: &'static [Program],
}

#[derive(Debug)]
struct Program {
    /// What the file is called in the cache.
    name: &'static str,
    /// The package it is built from; `.` is the module's own test program.
    package: &'static str,
}

const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package }
}

/// Everything the lab runs that Debian does not have.
pub const MODULES: &[Module] = &[
    Module {
        name: "kubernetes",
        programs: &[
            program("etcd", "go.etcd.io/etcd/server/v3"),
            program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            program("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            program("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
            program("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
            program("agnhost", "k8s.io/kubernetes/test/images/agnhost"),
            program("e2e.test", "."),
        ],
    },
    Module {
        name: "vcenter",
        programs: &[
            program("vcenter", "vsphere-drivers.example/lab/vcenter"),
            program("cnsctl", "vsphere-drivers.example/lab/vcenter/cmd/cnsctl"),
            program("govmomi-requests", "vsphere-drivers.example/lab/vcenter/cmd/requests"),
            program("govmomi-reader", "vsphere-drivers.example/lab/vcenter/cmd/reader"),
        ],
    },
    Module {
        name: "sidecars",
        programs: &[
            program("csi-resizer", "github.com/kubernetes-csi/external-resizer/cmd/csi-resizer"),
            program(
                "csi-snapshotter",
                "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
            ),
            program(
                "snapshot-controller",
                "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
            ),
        ],
    },
    Module {
        name: "provisioner",
        programs: &[program(
            "csi-provisioner",
            "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner",
        )],
    },
    Module {
        name: "sanity",
        programs: &[program("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")],
    },
];

/// Part of the cache key: change it when the way of building changes.
const RECIPE: &str = "1: CGO_ENABLED=0 -trimpath -ldflags '-s -w' with Kubernetes' version";

/// The path of a built component.
///
/// # Errors
/// When it is not built; the message has the command that builds it.
pub fn binary(name: &str) -> Result<PathBuf> {
    let path = directory_of(name)?.join(name);
    if !path.exists() {
        bail!("{name} is not built; run `cargo xtask lab build`");
    }
    Ok(path)
}

/// The directory that holds this component and the others of its module.
pub(crate) fn directory_of(name: &str) -> Result<PathBuf> {
    MODULES
        .iter()
        .find(|module| module.programs.iter().any(|program| program.name == name))
        .ok_or_else(|| anyhow!("the lab has no component called {name}"))?
        .directory(&cache_dir()?)
}

/// The version of Kubernetes that `lab/kubernetes/go.mod` pins, such as `v1.36.3`.
///
/// # Errors
/// When the file cannot be read or pins none.
pub fn kubernetes_version() -> Result<String> {
    let path = source_dir().join("kubernetes/go.mod");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines()
        .find_map(|line| {
            line.trim().trim_start_matches("require ").strip_prefix("k8s.io/kubernetes ")
        })
        .map(|version| version.split(' ').next().unwrap_or(version).to_owned())
        .ok_or_else(|| anyhow!("{} requires no k8s.io/kubernetes", path.display()))
}

/// Builds what is missing in the cache. A second caller waits for the first.
///
/// # Errors
/// When Go is missing, a module cannot be fetched or does not compile.
pub fn build(progress: &Progress) -> Result<()> {
    build_into(&cache_dir()?, &[], progress)
}

/// Builds everything below `scratch`, with empty caches of Go: for measuring what a new machine does.
///
/// # Errors
/// As [`build`].
pub fn build_cold(scratch: &Path, progress: &Progress) -> Result<()> {
    let caches =
        [("GOCACHE", scratch.join("go-build")), ("GOMODCACHE", scratch.join("go-modules"))];
    build_into(&scratch.join("components"), &caches, progress)
}

fn build_into(cache: &Path, environment: &[(&str, PathBuf)], progress: &Progress) -> Result<()> {
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let lock = File::create(cache.join("build.lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    std::thread::scope(|scope| {
        // Fetching waits for the network, compiling for the processor: the later modules' sources
        // come while the first is compiled. What goes wrong here goes wrong again, and is told, below.
        scope.spawn(|| {
            for module in MODULES.iter().skip(1).filter(|module| !module.is_built(cache)) {
                module.packages(environment).ok();
            }
        });
        MODULES.iter().try_for_each(|module| module.build(cache, environment, progress))
    })
}

impl Module {
    fn source(&self) -> PathBuf {
        source_dir().join(self.name)
    }

    fn directory(&self, cache: &Path) -> Result<PathBuf> {
        Ok(cache.join(format!("{}-{}", self.name, self.key()?)))
    }

    fn is_built(&self, cache: &Path) -> bool {
        let built = |directory: PathBuf| {
            self.programs.iter().all(|program| directory.join(program.name).exists())
        };
        self.directory(cache).is_ok_and(built)
    }

    fn build(
        &self,
        cache: &Path,
        environment: &[(&str, PathBuf)],
        progress: &Progress,
    ) -> Result<()> {
        let step = progress.step(format!("components: {}", self.name));
        let names: Vec<&str> = self.programs.iter().map(|program| program.name).collect();
        if self.is_built(cache) {
            step.done(&format!("{} (built before)", names.join(", ")));
            return Ok(());
        }
        // Only a complete build gets the final name.
        let directory = self.directory(cache)?;
        let scratch = directory.with_extension("building");
        fs::remove_dir_all(&scratch).ok();
        fs::create_dir_all(&scratch)?;
        self.compile(&scratch, environment, &|note| step.note(note))?;
        fs::remove_dir_all(&directory).ok();
        fs::rename(&scratch, &directory)?;
        step.done(&names.join(", "));
        Ok(())
    }

    /// How many packages its programs consist of; their sources are there afterwards.
    fn packages(&self, environment: &[(&str, PathBuf)]) -> Result<usize> {
        let packages =
            self.programs.iter().map(|program| program.package).filter(|package| *package != ".");
        let mut list = self.go("list", environment)?;
        Ok(run(list.arg("-deps").args(packages))?.lines().count())
    }

    fn key(&self) -> Result<String> {
        let mut digest = Sha256::new();
        digest.update(RECIPE);
        digest.update(go_version()?);
        for file in files_below(&self.source())? {
            // Documents do not change a program.
            if file.extension().is_none_or(|kind| kind != "md") {
                digest.update(fs::read(&file)?);
            }
        }
        Ok(digest.finalize().iter().take(8).fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").ok();
            hex
        }))
    }

    fn compile(
        &self,
        out: &Path,
        environment: &[(&str, PathBuf)],
        note: &dyn Fn(&str),
    ) -> Result<()> {
        let (tests, mains): (Vec<_>, Vec<_>) =
            self.programs.iter().partition(|program| program.package == ".");
        let packages: Vec<&str> = mains.iter().map(|program| program.package).collect();
        note("asking Go what there is to do");
        let total = self.packages(environment)?;
        let mut build = self.go("build", environment)?;
        build.args(["-v", "-o"]).arg(format!("{}/", out.display())).args(&packages);
        counted(build, |line, seen| {
            note(&format!("{seen} of at most {total} packages, now {line}"));
        })?;
        for program in &mains {
            rename_main(out, program)?;
        }
        for program in tests {
            let mut build = self.go("test", environment)?;
            build.args(["-v", "-c", "-o"]).arg(out.join(program.name)).arg(program.package);
            counted(build, |line, seen| {
                note(&format!("{}: {seen} packages, now {line}", program.name));
            })?;
        }
        Ok(())
    }

    /// A go command in the module, with flags that are equal for all so that packages are shared.
    fn go(&self, verb: &str, environment: &[(&str, PathBuf)]) -> Result<Command> {
        let version = kubernetes_version()?;
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) =
            (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let variable = "k8s.io/component-base/version";
        let mut command = Command::new("go");
        command.current_dir(self.source()).env("CGO_ENABLED", "0").arg(verb);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        if verb != "list" {
            command.arg("-trimpath").arg("-ldflags").arg(format!(
                "-s -w -X {variable}.gitVersion={version} -X {variable}.gitMajor={major} -X {variable}.gitMinor={minor}"
            ));
        }
        Ok(command)
    }
}

fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Go names a program after its package's directory (and skips a version suffix).
fn rename_main(out: &Path, program: &Program) -> Result<()> {
    let last =
        program.package.rsplit('/').find(|part| !is_version(part)).unwrap_or(program.package);
    if last != program.name {
        fs::rename(out.join(last), out.join(program.name))?;
    }
    Ok(())
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Runs a go command that prints a package a line, counting them; other lines are its complaints.
fn counted(mut command: Command, mut note: impl FnMut(&str, usize)) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run go")?;
    let mut complaints = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let mut seen = 0;
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            if line.contains(' ') && !line.starts_with("go: downloading ") {
                complaints.push(line);
            } else {
                seen += 1;
                note(line.trim_start_matches("go: "), seen);
            }
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("go failed ({status}):\n{}", complaints.join("\n"));
    }
    Ok(())
}

fn go_version() -> Result<String> {
    run(Command::new("go").args(["env", "GOVERSION"])).context(
        "Go is needed to build the Kubernetes components; install it from your distribution (1.26 or newer) and put it on PATH",
    )
}

/// The directory of the Go modules.
#[must_use]
pub fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab")
}

/// Where built things are kept between checkouts: `$VSPHERE_DRIVERS_CACHE`, else the user's cache directory.
///
/// # Errors
/// When neither is known.
pub fn cache_dir() -> Result<PathBuf> {
    if let Some(chosen) = std::env::var_os("VSPHERE_DRIVERS_CACHE") {
        return Ok(PathBuf::from(chosen));
    }
    if let Some(cache) = std::env::var_os("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(cache).join("vsphere-drivers"));
    }
    match std::env::var_os("HOME") {
        Some(home) => Ok(PathBuf::from(home).join(".cache/vsphere-drivers")),
        None => bail!(
            "neither VSPHERE_DRIVERS_CACHE nor HOME is set; set one, built components are kept there"
        ),
    }
}
