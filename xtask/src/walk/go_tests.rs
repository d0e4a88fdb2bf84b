//! The simulator's own tests: a program per package, compiled once.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::test_run::{Language, Program, Test};

/// Test programs by the name of their package, such as `cns`.
pub(super) type Programs = BTreeMap<String, Arc<Program>>;

/// What `go list -json` prints for a package.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Package {
    name: String,
    dir: PathBuf,
}

/// Compiles the tests of these packages into a directory. Packages that do not exist are left out.
pub(super) fn compile(names: &[&str], into: &Path) -> Result<Programs> {
    let source = lab::components::source_dir().join("vcenter").canonicalize()?;
    let listing = lab::run(go(&source).args(["list", "-json=Name,Dir", ".", "./internal/..."]))?;
    let packages = serde_json::Deserializer::from_str(&listing).into_iter();
    let packages: Vec<Package> =
        packages.collect::<Result<_, _>>().context("`go list` printed something unexpected")?;
    let chosen = packages.into_iter().filter(|package| names.contains(&package.name.as_str()));
    let programs: Programs = chosen
        .map(|package| {
            let program = Program {
                label: label(&source, &package.dir),
                language: Language::Go,
                executable: into.join(&package.name),
                directory: package.dir,
            };
            (package.name, Arc::new(program))
        })
        .collect();
    std::thread::scope(|scope| {
        let builds: Vec<_> = programs
            .values()
            .map(|program| {
                let mut build = go(&source);
                build.args(["test", "-c", "-o"]).arg(&program.executable).arg(&program.label);
                scope.spawn(move || lab::run(&mut build))
            })
            .collect();
        builds.into_iter().try_for_each(|build| {
            build.join().map_err(|_| anyhow!("a thread of the build panicked"))?.map(drop)
        })
    })?;
    Ok(programs)
}

/// The test that is called `package.Test`.
pub(super) fn find(programs: &Programs, name: &str) -> Result<Test> {
    let (package, test) =
        name.split_once('.').with_context(|| format!("{name:?} is not `package.Test`"))?;
    let program = programs
        .get(package)
        .with_context(|| format!("{name}: the simulator has no package {package}"))?;
    Ok(Test { program: Arc::clone(program), name: test.to_owned() })
}

/// How a person names the package in a go command.
fn label(source: &Path, directory: &Path) -> String {
    match directory.strip_prefix(source) {
        Ok(below) if below != Path::new("") => format!("./{}", below.display()),
        _ => ".".to_owned(),
    }
}

/// As the components are built, so that packages are compiled once.
fn go(source: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(source).env("CGO_ENABLED", "0");
    command
}
