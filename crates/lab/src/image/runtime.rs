//! What a program linked against Debian's libraries needs around it in an image: these libraries, Debian's programs that
//! it runs, the authorities of the web, and the few files of /etc that name services look at. No shell, no package manager.
//!
//! Files come from installed packages only. The machine's own bundle of authorities is not taken: it has what
//! somebody added on this machine, which nobody else should trust.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::Image;
use crate::process::run;

/// The user that images run as: the unprivileged id that distroless images use.
pub const USER: u32 = 65532;

const AUTHORITIES: &str = "/usr/share/ca-certificates/mozilla";
const PASSWD: &str = "root:x:0:0:root:/root:/sbin/nologin\n\
                      nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n\
                      nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n";
/// Before 2.34 the name services were libraries that the program loads while it runs.
const OLDEST_GLIBC: (u32, u32) = (2, 34);

/// What an image needs beside its program.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Paths as the loader looks for them, and the files that are there.
    libraries: BTreeMap<String, PathBuf>,
    /// Paths of Debian's programs, which are the same in the image.
    tools: Vec<PathBuf>,
    authorities: String,
    packages: Vec<DebianPackage>,
}

/// An installed package of which files are in an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DebianPackage {
    /// Its name.
    pub name: String,
    /// Its version, as Debian writes it.
    pub version: String,
    /// Its architecture, `all` if it fits every one.
    pub architecture: String,
}

impl Runtime {
    /// Finds what this program needs, and what these programs of Debian's need that it runs.
    ///
    /// # Errors
    /// When a tool or a library is missing or belongs to no package, or the C library is too old.
    pub fn of(program: &Path, tools: &[&str]) -> Result<Self> {
        check_glibc(&run(Command::new("ldd").arg("--version"))?)?;
        let tools: Vec<PathBuf> = tools.iter().map(PathBuf::from).collect();
        let mut libraries = BTreeMap::new();
        for program in tools.iter().map(PathBuf::as_path).chain([program]) {
            for path in loaded(&run(Command::new("ldd").arg(program))?)? {
                let file =
                    fs::canonicalize(&path).with_context(|| format!("cannot find {path}"))?;
                libraries.insert(path, file);
            }
        }
        let mut names = BTreeSet::from(["ca-certificates".to_owned()]);
        for path in libraries.values().chain(&tools) {
            names.insert(owner(path)?);
        }
        let packages = names.iter().map(|name| DebianPackage::installed(name));
        let packages = packages.collect::<Result<_>>()?;
        Ok(Self { libraries, tools, authorities: authorities(Path::new(AUTHORITIES))?, packages })
    }

    /// The packages of which files are taken.
    #[must_use]
    pub fn packages(&self) -> &[DebianPackage] {
        &self.packages
    }

    /// Puts it into an image, which runs as [`USER`] from now on.
    #[must_use]
    pub fn around(&self, image: Image) -> Image {
        let mut image = image
            .user(USER)
            .text("/etc/passwd", PASSWD)
            .text("/etc/group", GROUP)
            .text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
            .text("/etc/ssl/certs/ca-certificates.crt", &self.authorities)
            .directory("/tmp", 0o1777);
        for (path, file) in &self.libraries {
            image = image.program(path, file);
        }
        for tool in &self.tools {
            image = image.program(&tool.display().to_string(), tool);
        }
        for package in &self.packages {
            // Their licences ask for it, and scanners look for the records of packages there.
            let name = &package.name;
            let copyright = format!("/usr/share/doc/{name}/copyright");
            image = image
                .file(&copyright, Path::new(&copyright))
                .text(&format!("/var/lib/dpkg/status.d/{name}"), package.record());
        }
        image
    }
}

impl DebianPackage {
    fn installed(name: &str) -> Result<Self> {
        let format = "-f=${Package} ${Version} ${Architecture}\n";
        let answer = run(Command::new("dpkg-query").args(["-W", format, name]))?;
        match answer.lines().next().map(|line| line.split(' ').collect::<Vec<_>>()).as_deref() {
            Some([name, version, architecture]) => Ok(Self {
                name: (*name).to_owned(),
                version: (*version).to_owned(),
                architecture: (*architecture).to_owned(),
            }),
            _ => bail!("dpkg-query reports {answer:?} for the package {name}"),
        }
    }

    fn record(&self) -> String {
        let Self { name, version, architecture } = self;
        format!(
            "Package: {name}\nStatus: install ok installed\nVersion: {version}\nArchitecture: {architecture}\n"
        )
    }
}

/// The name that Debian and container images have for this machine's architecture.
#[must_use]
pub fn debian_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn check_glibc(said: &str) -> Result<()> {
    let version = said.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let found = numbers.next().zip(numbers.next());
    if found.is_none_or(|found| found < OLDEST_GLIBC) {
        bail!("the C library of this machine is {version:?}, 2.34 or newer is needed for an image");
    }
    Ok(())
}

/// The paths that `ldd` names; the kernel's own library has none.
fn loaded(listing: &str) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for line in listing.lines() {
        if line.contains("not found") {
            bail!("a shared library is missing: {}", line.trim());
        }
        if let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) {
            paths.push(path.to_owned());
        }
    }
    Ok(paths)
}

/// The package that a file belongs to. Packages from before /usr and / were merged know it by the other path.
fn owner(file: &Path) -> Result<String> {
    let path = file.display().to_string();
    let other = path.strip_prefix("/usr").map_or_else(|| format!("/usr{path}"), str::to_owned);
    let ask = |path: &str| run(Command::new("dpkg-query").args(["-S", path]));
    let answer = ask(&path).or_else(|_| ask(&other));
    let answer = answer.with_context(|| format!("{path} belongs to no Debian package"))?;
    Ok(answer.split(':').next().unwrap_or_default().to_owned())
}

/// All certificates of a directory as one text.
fn authorities(dir: &Path) -> Result<String> {
    let entries = fs::read_dir(dir).with_context(|| {
        format!("cannot read {}: is the package ca-certificates installed?", dir.display())
    })?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "crt"));
    paths.sort();
    let mut bundle = String::new();
    for path in paths {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        bundle.push_str(text.trim_end());
        bundle.push('\n');
    }
    if bundle.is_empty() {
        bail!("{} has no certificates", dir.display());
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_the_loader_s_list_and_a_missing_one_is_named() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                       \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(loaded(listing).unwrap(), expected);
        let missing = loaded("\tlibfoo.so.1 => not found\n").unwrap_err();
        assert!(missing.to_string().contains("libfoo.so.1"), "{missing}");
    }

    #[test]
    fn an_old_c_library_is_refused() {
        check_glibc("ldd (Debian GLIBC 2.36-9+deb12u14) 2.36\n").unwrap();
        check_glibc("ldd (GNU libc) 2.33\n").unwrap_err();
        check_glibc("musl libc (x86_64)\n").unwrap_err();
    }
}
