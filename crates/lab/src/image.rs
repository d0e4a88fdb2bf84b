//! Container images made from files on disk, without a container engine.
//!
//! The archive is an OCI image layout in a tar file with one uncompressed layer. Equal input gives
//! equal bytes: entries are sorted, owned by root and dated to the epoch.

mod drivers;
mod runtime;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

pub use self::{
    drivers::{DRIVERS, Drivers, GO_DRIVER},
    runtime::{DebianPackage, Runtime, USER, debian_architecture},
};
use crate::process::run;

/// What an image holds and how its program starts.
#[derive(Clone, Debug)]
pub struct Image {
    entries: BTreeMap<PathBuf, Entry>,
    labels: BTreeMap<String, String>,
    /// The first is changed by the builder's functions.
    starts: Vec<Start>,
}

/// A name of an image, and what runs when a pod says nothing else.
#[derive(Clone, Debug)]
struct Start {
    name: String,
    entrypoint: Vec<String>,
    /// Root when `None`.
    user: Option<u32>,
}

#[derive(Clone, Debug)]
enum Entry {
    Directory { mode: u32 },
    File { source: PathBuf, mode: u32 },
    Text { text: String },
    Link { target: String },
}

impl Image {
    /// An empty image under its full name, such as `registry.k8s.io/pause:3.10`.
    pub fn new(name: impl Into<String>) -> Self {
        let start = Start { name: name.into(), entrypoint: Vec::new(), user: None };
        Self { entries: BTreeMap::new(), labels: BTreeMap::new(), starts: vec![start] }
    }

    /// The image's full name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.starts[0].name
    }

    /// Adds a program at an absolute path, with the directories above it.
    #[must_use]
    pub fn program(self, path: &str, source: &Path) -> Self {
        self.entry(path, Entry::File { source: source.to_owned(), mode: 0o755 })
    }

    /// Adds a file that is read and not run.
    #[must_use]
    pub fn file(self, path: &str, source: &Path) -> Self {
        self.entry(path, Entry::File { source: source.to_owned(), mode: 0o644 })
    }

    /// Adds a file with this text.
    #[must_use]
    pub fn text(self, path: &str, text: impl Into<String>) -> Self {
        self.entry(path, Entry::Text { text: text.into() })
    }

    /// Adds a symbolic link at an absolute path.
    #[must_use]
    pub fn link(self, path: &str, target: &str) -> Self {
        self.entry(path, Entry::Link { target: target.to_owned() })
    }

    /// Adds a directory at an absolute path, with this mode.
    #[must_use]
    pub fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(path, Entry::Directory { mode })
    }

    /// The command when a pod names none.
    #[must_use]
    pub fn entrypoint(mut self, words: &[&str]) -> Self {
        self.starts[0].entrypoint = owned(words);
        self
    }

    /// The user when a pod names none; root otherwise.
    #[must_use]
    pub fn user(mut self, user: u32) -> Self {
        self.starts[0].user = Some(user);
        self
    }

    /// Gives the same content another name, under which another command starts, as root when a pod names no user.
    /// Both share what they hold, wherever they are stored.
    #[must_use]
    pub fn also_named(mut self, name: &str, entrypoint: &[&str]) -> Self {
        let start = Start { name: name.to_owned(), entrypoint: owned(entrypoint), user: None };
        self.starts.push(start);
        self
    }

    /// Adds a label, such as `org.opencontainers.image.version`.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    fn entry(mut self, path: &str, entry: Entry) -> Self {
        let path = PathBuf::from(path.trim_start_matches('/'));
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            self.entries.entry(above.to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path, entry);
        self
    }

    /// Writes the archive and returns the image's digest, `sha256:…`.
    ///
    /// # Errors
    /// When a source cannot be read or the archive cannot be written.
    pub fn write(&self, archive: &Path) -> Result<String> {
        // A blob is named by its digest, which is known only after the layer has been written once.
        let scratch = archive.with_extension("layer");
        let layer = self
            .write_layer(&scratch)
            .with_context(|| format!("cannot make the image {}", self.name()))?;
        let manifest = self
            .assemble(archive, &scratch, &layer)
            .with_context(|| format!("cannot write the image archive {}", archive.display()));
        fs::remove_file(&scratch)?;
        manifest
    }

    fn write_layer(&self, path: &Path) -> Result<Blob> {
        let mut layer = Builder::new(Hashing::new(BufWriter::new(File::create(path)?)));
        for (path, entry) in &self.entries {
            match entry {
                Entry::Directory { mode } => {
                    append(
                        &mut layer,
                        path,
                        &mut header(EntryType::Directory, *mode, 0),
                        io::empty(),
                    )?;
                }
                Entry::File { source, mode } => {
                    let file = File::open(source)
                        .with_context(|| format!("cannot read {}", source.display()))?;
                    let size = file.metadata()?.len();
                    append(&mut layer, path, &mut header(EntryType::Regular, *mode, size), file)?;
                }
                Entry::Text { text } => {
                    let size = text.len() as u64;
                    let mut header = header(EntryType::Regular, 0o644, size);
                    append(&mut layer, path, &mut header, text.as_bytes())?;
                }
                Entry::Link { target } => {
                    layer.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
                }
            }
        }
        layer.into_inner()?.finish()
    }

    fn assemble(&self, archive: &Path, layer_file: &Path, layer: &Blob) -> Result<String> {
        let mut blobs = Vec::new();
        let mut manifests = Vec::new();
        for start in &self.starts {
            let config = Blob::of(&self.config(start, layer))?;
            let manifest = Blob::of(&json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config.0.descriptor("application/vnd.oci.image.config.v1+json"),
                "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar")],
            }))?;
            let mut entry = manifest.0.descriptor("application/vnd.oci.image.manifest.v1+json");
            entry["annotations"] = json!({"io.containerd.image.name": start.name});
            manifests.push(entry);
            blobs.extend([manifest, config]);
        }
        let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": manifests}))?;

        let mut out = Builder::new(BufWriter::new(File::create(archive)?));
        let mut add = |path: &str, size: u64, content: &mut dyn Read| {
            append(&mut out, Path::new(path), &mut header(EntryType::Regular, 0o644, size), content)
        };
        add("oci-layout", 30, &mut &br#"{"imageLayoutVersion":"1.0.0"}"#[..])?;
        add("index.json", index.len() as u64, &mut &index[..])?;
        for (blob, bytes) in &blobs {
            add(&blob.path(), blob.size, &mut &bytes[..])?;
        }
        add(&layer.path(), layer.size, &mut File::open(layer_file)?)?;
        out.into_inner()?.flush()?;
        let first = blobs.into_iter().next().context("the image has no name")?;
        Ok(first.0.digest)
    }

    fn config(&self, start: &Start, layer: &Blob) -> Value {
        let mut config = json!({
            "architecture": debian_architecture(),
            "os": "linux",
            "config": {"Entrypoint": start.entrypoint, "Env": ["PATH=/bin:/usr/bin:/sbin:/usr/sbin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        });
        if let Some(user) = start.user {
            config["config"]["User"] = json!(user.to_string());
        }
        if !self.labels.is_empty() {
            config["config"]["Labels"] = json!(self.labels);
        }
        config
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The named images: [`PAUSE`], [`BUSYBOX`], [`AGNHOST`], [`NGINX`] and [`GLIBC`], which have the names that Kubernetes' own tests expect, and
/// [`SIDECARS`], which have those of our manifests.
///
/// # Errors
/// When a program is wanted that is not built, or the machine's busybox is not a static program.
pub fn standard(names: &[&str]) -> Result<Vec<Image>> {
    let busybox = Path::new("/usr/bin/busybox");
    let program =
        fs::read(busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    if needs_loader(&program) {
        bail!(
            "{} needs shared libraries and cannot run in an image; install the package busybox-static",
            busybox.display()
        );
    }
    let applets = run(Command::new(busybox).arg("--list"))?;
    // Debian's static wget crashes while it looks for a name service; better none than that.
    let applets: Vec<&str> = applets.lines().filter(|applet| *applet != "wget").collect();
    let shell = |name: &str| {
        let image = Image::new(name).directory("/tmp", 0o1777);
        let image = applets
            .iter()
            .fold(image, |image, applet| image.link(&format!("/bin/{applet}"), "busybox"));
        image.program("/bin/busybox", busybox)
    };
    // A pod's first process: waits, and reaps what its containers leave when they share processes.
    let idle = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done";
    let image = |name: &&str| {
        Ok(match *name {
            PAUSE => shell(PAUSE).entrypoint(&["/bin/sh", "-c", idle]),
            BUSYBOX => shell(BUSYBOX).entrypoint(&["/bin/sh"]),
            NGINX => shell(NGINX),
            GLIBC => with_debian_dd(shell(GLIBC))?,
            AGNHOST => shell(AGNHOST)
                .program("/agnhost", &components::binary("agnhost")?)
                .entrypoint(&["/agnhost"]),
            CSI_PROVISIONER => sidecar(CSI_PROVISIONER, "csi-provisioner")?,
            CSI_RESIZER => sidecar(CSI_RESIZER, "csi-resizer")?,
            CSI_SNAPSHOTTER => sidecar(CSI_SNAPSHOTTER, "csi-snapshotter")?,
            SNAPSHOT_CONTROLLER => sidecar(SNAPSHOT_CONTROLLER, "snapshot-controller")?,
            other => bail!("the lab has no image called {other}"),
        })
    };
    names.iter().map(image).collect()
}

/// A stock sidecar, as its maintainers' image has it: nothing but the program, and no root.
fn sidecar(name: &str, program: &str) -> Result<Image> {
    let path = format!("/{program}");
    let image = Image::new(name).program(&path, &components::binary(program)?);
    Ok(image.entrypoint(&[&path]).user(USER))
}

/// The image with Debian's `dd` instead of its own, and with Debian's shell: busybox's takes its own `dd`, whatever there is.
fn with_debian_dd(image: Image) -> Result<Image> {
    let (dd, shell) = (Path::new("/usr/bin/dd"), "/usr/bin/dash");
    let image = Runtime::of(dd, &[shell])?.around(image).program("/bin/dd", dd).user(0);
    Ok(image.program("/bin/sh", Path::new(shell)))
}

/// The sandbox image of a pod.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10.2";
/// A small shell.
pub const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
/// Kubernetes' own test program: servers, clients and probes in one.
pub const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";
/// The image in which Kubernetes' storage suite runs a script from a volume. It needs a shell for that, and has nothing else
/// here.
pub const NGINX: &str = "registry.k8s.io/e2e-test-images/nginx:1.15-4";
/// The image in which Kubernetes' storage suite reads and writes past the cache, which busybox's `dd` cannot.
pub const GLIBC: &str = "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0";
/// The sidecar that makes and deletes volumes for claims.
pub const CSI_PROVISIONER: &str = "registry.k8s.io/sig-storage/csi-provisioner:v5.1.0";
/// The sidecar that grows volumes.
pub const CSI_RESIZER: &str = "registry.k8s.io/sig-storage/csi-resizer:v1.14.0";
/// The sidecar that takes and deletes snapshots.
pub const CSI_SNAPSHOTTER: &str = "registry.k8s.io/sig-storage/csi-snapshotter:v8.3.0";
/// The stock sidecars of the CSI driver.
pub const SIDECARS: [&str; 3] = [CSI_PROVISIONER, CSI_RESIZER, CSI_SNAPSHOTTER];
/// What makes snapshots' objects work, once in a cluster.
pub const SNAPSHOT_CONTROLLER: &str = "registry.k8s.io/sig-storage/snapshot-controller:v8.3.0";

/// Whether a 64-bit ELF program needs a dynamic loader (a program header of type PT_INTERP).
fn needs_loader(program: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| {
        let field = program.get(at..at + bytes)?;
        Some(field.iter().rev().fold(0_usize, |value, byte| value << 8 | usize::from(*byte)))
    };
    let headers = || {
        let (table, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
        (0..count).map(|index| number(table + index * size, 4)).collect::<Option<Vec<_>>>()
    };
    headers().is_some_and(|kinds| kinds.contains(&3))
}

struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn of(value: &Value) -> Result<(Self, Vec<u8>)> {
        let bytes = serde_json::to_vec(value)?;
        let mut hashing = Hashing::new(io::sink());
        hashing.write_all(&bytes)?;
        Ok((hashing.finish()?, bytes))
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": self.digest, "size": self.size})
    }
}

/// Counts and hashes what passes through.
struct Hashing<W> {
    to: W,
    digest: Sha256,
    size: u64,
}

impl<W: Write> Hashing<W> {
    fn new(to: W) -> Self {
        Self { to, digest: Sha256::new(), size: 0 }
    }

    fn finish(mut self) -> Result<Blob> {
        self.to.flush()?;
        let mut digest = "sha256:".to_owned();
        for byte in self.digest.finalize() {
            write!(digest, "{byte:02x}")?;
        }
        Ok(Blob { digest, size: self.size })
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn append<W: Write>(
    to: &mut Builder<W>,
    path: &Path,
    header: &mut Header,
    content: impl Read,
) -> io::Result<()> {
    to.append_data(header, path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(image: &Image) -> String {
        let dir = tempfile::tempdir().unwrap();
        image.write(&dir.path().join("image.tar")).unwrap()
    }

    fn example(content: &str) -> (tempfile::TempDir, Image) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, content).unwrap();
        let image = Image::new("example/one:1")
            .program("/usr/bin/program", &program)
            .link("/bin/p", "../usr/bin/program");
        (dir, image)
    }

    #[test]
    fn equal_input_gives_equal_bytes() {
        let (one_dir, one) = example("#!/bin/sh\n");
        let (two_dir, two) = example("#!/bin/sh\n");
        let (a, b) = (one_dir.path().join("a.tar"), two_dir.path().join("b.tar"));
        assert_eq!(one.write(&a).unwrap(), two.write(&b).unwrap());
        assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
    }

    #[test]
    fn the_digest_follows_content_and_entrypoint_but_not_the_name() {
        let (_dir, one) = example("one");
        let (_other_dir, other) = example("two");
        assert_ne!(digest(&one), digest(&other));
        assert_ne!(digest(&one), digest(&one.clone().entrypoint(&["/bin/p"])));
        let mut renamed = one.clone();
        renamed.starts[0].name = "example/two:1".to_owned();
        assert_eq!(digest(&one), digest(&renamed));
    }

    #[test]
    fn another_name_is_another_manifest_over_the_same_layer() {
        let (dir, one) = example("one");
        let (plain, archive) = (digest(&one), dir.path().join("both.tar"));
        let both = one.also_named("example/other:1", &["/bin/p"]);
        assert_eq!(both.write(&archive).unwrap(), plain, "the first is as it was");
        let text = String::from_utf8_lossy(&fs::read(&archive).unwrap()).into_owned();
        let count = |what: &str| text.matches(what).count();
        assert_eq!((count("io.containerd.image.name"), count("image.layer.v1.tar")), (2, 2));
        let mut paths = tar::Archive::new(File::open(archive).unwrap());
        let paths: Vec<_> =
            paths.entries().unwrap().map(|one| one.unwrap().path().unwrap().into_owned()).collect();
        assert_eq!(paths.len(), 2 + 2 * 2 + 1, "{paths:?}");
    }

    #[test]
    fn the_sidecars_have_the_versions_that_are_built() {
        let provisioner = "github.com/kubernetes-csi/external-provisioner/v5";
        let built = components::pinned_version("provisioner", provisioner).unwrap();
        assert!(CSI_PROVISIONER.ends_with(&format!(":{built}")), "{built}");
        let resizer = "github.com/kubernetes-csi/external-resizer";
        let built = components::pinned_version("sidecars", resizer).unwrap();
        assert!(CSI_RESIZER.ends_with(&format!(":{built}")), "{built}");
        let snapshotter = "github.com/kubernetes-csi/external-snapshotter/v8";
        let built = components::pinned_version("sidecars", snapshotter).unwrap();
        for image in [CSI_SNAPSHOTTER, SNAPSHOT_CONTROLLER] {
            assert!(image.ends_with(&format!(":{built}")), "{built}");
        }
    }

    #[test]
    fn the_digest_follows_user_and_labels_and_texts() {
        let (_dir, one) = example("one");
        let plain = digest(&one);
        assert_ne!(plain, digest(&one.clone().user(1)));
        assert_ne!(plain, digest(&one.clone().label("name", "value")));
        let (a, b) = (one.clone().text("/etc/a", "a"), one.text("/etc/a", "b"));
        assert_ne!(digest(&a), digest(&b));
    }

    #[test]
    fn a_missing_source_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let image = Image::new("example/one:1").program("/p", Path::new("/no/such/program"));
        let error = image.write(&dir.path().join("image.tar")).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/program"), "{error:#}");
    }
}
