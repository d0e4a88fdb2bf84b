//! The cache of built programs, through the program that `make` runs. Needs Go, and the sources of lab/vcenter.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn setup(cache: &Path, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setup"));
    command.env("VSPHERE_DRIVERS_CACHE", cache).arg("components").args(arguments).output()
}

/// The only directory of the cache, and the names in it.
fn built(cache: &Path) -> io::Result<(PathBuf, Vec<String>)> {
    let entries = |dir: &Path| {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()
    };
    let mut directories = entries(cache)?;
    directories.retain(|path| path.is_dir());
    assert_eq!(directories.len(), 1, "{directories:?}");
    let directory = directories.remove(0);
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries(&directory)?.iter().map(name).collect();
    names.sort();
    Ok((directory, names))
}

#[test]
fn a_command_builds_only_the_programs_it_names() {
    let cache = tempfile::tempdir().unwrap();
    let output = setup(cache.path(), &["cnsctl"]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (directory, names) = built(cache.path()).unwrap();
    assert_eq!(names, ["cnsctl"]);

    // A build that was killed leaves its scratch directory, which must not pass for a program.
    let scratch = directory.with_extension("building");
    fs::create_dir(&scratch).unwrap();
    fs::write(scratch.join("govmomi-reader"), "half").unwrap();
    let before = fs::metadata(directory.join("cnsctl")).unwrap().modified().unwrap();
    let output = setup(cache.path(), &["cnsctl", "govmomi-reader"]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (directory, names) = built(cache.path()).unwrap();
    assert_eq!(names, ["cnsctl", "govmomi-reader"]);
    assert!(fs::metadata(directory.join("govmomi-reader")).unwrap().len() > 1_000_000);
    assert_eq!(fs::metadata(directory.join("cnsctl")).unwrap().modified().unwrap(), before);
}

#[test]
fn an_unknown_program_is_an_error() {
    let cache = tempfile::tempdir().unwrap();
    let output = setup(cache.path(), &["kublet"]).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("the lab has no component called kublet"), "{error}");
}
