//! Which programs there are, from which Go module each is built, and where the built ones are.
//!
//! Each module below `lab/` pins its programs by go.mod and go.sum. What is built from it goes to a cache
//! outside the checkout, in a directory named by a digest of those files, the Go version and the way we build:
//! a clean clone finds it again, and a change of any of these builds it again. Each program is built into a scratch
//! directory and moved into place, so a program in the cache is complete.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::{
    background,
    command::{run, run_counted},
    progress::Progress,
};

/// A Go module below `lab/` and the programs we build from it.
#[derive(Debug)]
struct Module {
    /// Its directory below `lab/`.
    name: &'static str,
    programs: &'static [Program],
}

#[derive(Debug)]
struct Program {
    /// The file's name in the cache.
    name: &'static str,
    /// The package it is built from; `.` is the module's own test program.
    package: &'static str,
}

const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package }
}

/// Everything that the lab runs and Debian does not have.
const MODULES: &[Module] = &[
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
    Module { name: "helm", programs: &[program("chart", "vsphere-drivers.example/lab/helm")] },
    Module {
        name: "sanity",
        programs: &[program("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")],
    },
];

/// What a Kubernetes API without nodes consists of.
pub const CONTROL_PLANE: &[&str] = &["etcd", "kube-apiserver"];
/// What has to run before the first node is Ready.
pub const FIRST_NODE: &[&str] = &["etcd", "kube-apiserver", "kubelet"];
/// What a cluster with nodes has beside [`FIRST_NODE`], in the order in which a lab starts it.
pub const REST_OF_CLUSTER: &[&str] =
    &["kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"];
/// The vCenter simulator, and the client that its users get.
pub const SIMULATOR: &[&str] = &["vcenter", "cnsctl"];
/// What `make lab` starts.
pub const LAB: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kubelet",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubectl",
    "agnhost",
    "vcenter",
    "cnsctl",
];
/// The stock sidecars of the CSI driver's controller.
pub const SIDECARS: &[&str] = &["csi-provisioner", "csi-resizer", "csi-snapshotter"];
/// What makes the objects of snapshots work, once in a cluster.
pub const SNAPSHOT_CONTROLLER: &[&str] = &["snapshot-controller"];
/// Part of the cache key: change it when the way of building changes.
const RECIPE: &str = "1: CGO_ENABLED=0 -trimpath -ldflags '-s -w' with Kubernetes' version";

/// Every program there is; the tests need all of them.
#[must_use]
pub fn all() -> Vec<&'static str> {
    MODULES.iter().flat_map(|module| module.programs).map(|program| program.name).collect()
}

/// The path of a built program.
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

/// The directory that holds this program and others of its module.
///
/// # Errors
/// When there is no such program, or no cache directory.
pub fn directory_of(name: &str) -> Result<PathBuf> {
    module_of(name)?.directory(&cache_dir()?)
}

fn module_of(name: &str) -> Result<&'static Module> {
    MODULES
        .iter()
        .find(|module| module.programs.iter().any(|program| program.name == name))
        .ok_or_else(|| anyhow!("the lab has no component called {name}"))
}

/// The version of Kubernetes that `lab/kubernetes/go.mod` pins, such as `v1.36.3`.
///
/// # Errors
/// When the file cannot be read or pins none.
pub fn kubernetes_version() -> Result<String> {
    pinned_version("kubernetes", "k8s.io/kubernetes")
}

/// The version of a Go module that the go.mod of this directory below `lab/` pins.
///
/// # Errors
/// When the file cannot be read or pins none.
pub fn pinned_version(directory: &str, module: &str) -> Result<String> {
    let path = source_dir().join(directory).join("go.mod");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let pinned = |line: &str| {
        let mut words = line.trim().trim_start_matches("require ").split(' ');
        (words.next() == Some(module)).then(|| words.next().map(str::to_owned)).flatten()
    };
    text.lines().find_map(pinned).ok_or_else(|| anyhow!("{} requires no {module}", path.display()))
}

/// Builds those of the named programs that are not in the cache, a progress step per module. A second caller
/// waits for the first.
///
/// # Errors
/// When Go is missing, a module cannot be fetched or does not compile.
pub fn build(names: &[&str], progress: &Progress) -> Result<()> {
    build_interruptibly(names, progress, &Mutex::default())
}

/// How many steps [`build`] reports for these programs.
#[must_use]
pub fn steps(names: &[&str]) -> usize {
    MODULES.iter().filter(|module| !module.chosen(names).is_empty()).count()
}

pub(crate) fn build_interruptibly(
    names: &[&str],
    progress: &Progress,
    state: &Mutex<background::State>,
) -> Result<()> {
    build_into(&cache_dir()?, names, progress, state)
}

fn build_into(
    cache: &Path,
    names: &[&str],
    progress: &Progress,
    state: &Mutex<background::State>,
) -> Result<()> {
    for name in names {
        module_of(name)?;
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let modules: Vec<_> = MODULES
        .iter()
        .map(|module| (module, module.chosen(names)))
        .filter(|(_, chosen)| !chosen.is_empty())
        .collect();
    std::thread::scope(|scope| {
        // Fetching waits for the network, compiling for the processor: the sources of later modules are
        // fetched while the first is compiled. A failure here occurs again, and is reported, below.
        scope.spawn(|| {
            for (module, chosen) in modules.iter().skip(1) {
                if !module.missing(cache, chosen).is_empty() {
                    module.packages(chosen).ok();
                }
            }
        });
        modules.iter().try_for_each(|(module, chosen)| module.build(cache, chosen, progress, state))
    })
}

impl Module {
    fn source(&self) -> PathBuf {
        source_dir().join(self.name)
    }

    fn directory(&self, cache: &Path) -> Result<PathBuf> {
        Ok(cache.join(format!("{}-{}", self.name, self.key()?)))
    }

    fn chosen(&self, names: &[&str]) -> Vec<&'static Program> {
        self.programs.iter().filter(|program| names.contains(&program.name)).collect()
    }

    /// Those of the programs that are not in the cache.
    fn missing(&self, cache: &Path, of: &[&'static Program]) -> Vec<&'static Program> {
        let directory = self.directory(cache);
        let is_built = |program: &Program| {
            directory.as_ref().is_ok_and(|directory| directory.join(program.name).exists())
        };
        of.iter().copied().filter(|program| !is_built(program)).collect()
    }

    fn build(
        &self,
        cache: &Path,
        chosen: &[&'static Program],
        progress: &Progress,
        state: &Mutex<background::State>,
    ) -> Result<()> {
        let step = progress.step(format!("components: {}", self.name));
        let listed = |programs: &[&Program]| {
            programs.iter().map(|program| program.name).collect::<Vec<_>>().join(", ")
        };
        if self.missing(cache, chosen).is_empty() {
            step.done(&format!("{} (built before)", listed(chosen)));
            return Ok(());
        }
        let lock = File::create(cache.join("build.lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            step.note("waiting for another process that builds components");
            flock(&lock, FlockOperation::LockExclusive)?;
        }
        // Another process may have built them meanwhile.
        let missing = self.missing(cache, chosen);
        let directory = self.directory(cache)?;
        let scratch = directory.with_extension("building");
        fs::remove_dir_all(&scratch).ok();
        fs::create_dir_all(&scratch)?;
        fs::create_dir_all(&directory)?;
        self.compile(&scratch, &missing, &|note| step.note(note), state)?;
        for program in &missing {
            fs::rename(scratch.join(program.name), directory.join(program.name))?;
        }
        fs::remove_dir_all(&scratch)?;
        step.done(&listed(chosen));
        Ok(())
    }

    /// The packages that these programs consist of; their sources are fetched afterwards.
    fn packages(&self, programs: &[&Program]) -> Result<BTreeSet<String>> {
        let packages =
            programs.iter().map(|program| program.package).filter(|package| *package != ".");
        let mut list = self.go("list")?;
        Ok(run(list.arg("-deps").args(packages))?.lines().map(str::to_owned).collect())
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
        programs: &[&'static Program],
        note: &dyn Fn(&str),
        state: &Mutex<background::State>,
    ) -> Result<()> {
        let (tests, mains): (Vec<_>, Vec<_>) =
            programs.iter().partition(|program| program.package == ".");
        note("fetching sources");
        if !mains.is_empty() {
            let total = self.packages(&mains)?.len();
            note(&format!("0 of at most {total} packages"));
            let packages = mains.iter().map(|program| program.package);
            let mut build = self.go("build")?;
            build.args(["-v", "-o"]).arg(format!("{}/", out.display())).args(packages);
            go_counted(build, state, |package, seen| {
                note(&format!("{seen} of at most {total} packages, now {package}"));
            })?;
            for program in &mains {
                rename_main(out, program)?;
            }
        }
        for program in tests {
            let mut build = self.go("test")?;
            build.args(["-v", "-c", "-o"]).arg(out.join(program.name)).arg(program.package);
            go_counted(build, state, |package, seen| {
                note(&format!("{}: {seen} packages, now {package}", program.name));
            })?;
        }
        Ok(())
    }

    /// A go command in the module, with equal flags for all programs, so that compiled packages are shared.
    fn go(&self, verb: &str) -> Result<Command> {
        let version = kubernetes_version()?;
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) =
            (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let variable = "k8s.io/component-base/version";
        let mut command = Command::new("go");
        command.current_dir(self.source()).env("CGO_ENABLED", "0").arg(verb);
        if std::env::var_os("GOGC").is_none() {
            // The compiler seldom needs to collect garbage: a quarter less time for some memory, and equal output.
            command.env("GOGC", "off").env("GOMEMLIMIT", "1536MiB");
        }
        if verb != "list" {
            // Debug information would be written and then dropped by the linker (-w).
            command.args(["-trimpath", "-gcflags=all=-dwarf=false", "-ldflags"]).arg(format!(
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

/// Runs a go command that prints a package a line; `state` knows it while it runs.
fn go_counted(
    mut command: Command,
    state: &Mutex<background::State>,
    note: impl FnMut(&str, usize),
) -> Result<()> {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    if lock().stopped {
        bail!("the build was interrupted");
    }
    let unit = |line: &'_ str| !line.contains(' ') || line.starts_with("go: downloading ");
    let result = run_counted(
        &mut command,
        |line| unit(line).then(|| line.trim_start_matches("go: ")),
        note,
        |child: &Child| {
            let mut state = lock();
            state.child = Some(child.id());
            if state.stopped {
                background::interrupt(child.id());
            }
        },
    );
    lock().child = None;
    result
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
