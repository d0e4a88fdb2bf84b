//! `cargo xtask lines`: how many production lines each crate has.
//!
//! A production line is any line, comments and blank ones included, of a file below `src`, without tests
//! (`#[cfg(test)]` items, `tests.rs`, `tests/`, `examples/`) and without generated types.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::output::{print_line, table};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Crates of the shipped program.
const SHIPPED: &[&str] = &["ccm", "daemon", "cloud-config", "vsphere", "vcenter"];
const GENERATED: &[&str] = &["crates/vsphere/src/types", "crates/vsphere/src/types.rs"];

pub(crate) fn run() -> Result<()> {
    let mut rows = vec![["CRATE", "FILES", "LINES"].map(str::to_owned).to_vec()];
    let mut sum = 0;
    for dir in crates()? {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (files, lines) = count(&dir.join("src"))?;
        if SHIPPED.contains(&name.as_str()) {
            sum += lines;
        }
        rows.push(vec![name, files.to_string(), lines.to_string()]);
    }
    rows.push(vec![SHIPPED.join(" + "), String::new(), sum.to_string()]);
    print_line(&table(&rows));
    Ok(())
}

fn crates() -> Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    let mut dirs: Vec<PathBuf> =
        fs::read_dir(root.join("crates"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    dirs.retain(|dir| dir.join("Cargo.toml").exists());
    dirs.sort();
    dirs.push(fs::canonicalize(root.join("xtask"))?);
    Ok(dirs)
}

/// Files and lines below a directory.
fn count(dir: &Path) -> Result<(usize, usize)> {
    let mut sources = Vec::new();
    collect(dir, &mut sources)?;
    let mut test_files = Vec::new();
    let mut counted = Vec::new();
    for path in sources {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (lines, modules) = production(&text);
        // A module of `a.rs` is in `a/`, one of `lib.rs`, `main.rs` or `mod.rs` beside it.
        let beside = path
            .file_stem()
            .is_some_and(|stem| ["lib", "main", "mod"].iter().any(|root| stem == *root));
        let below =
            if beside { path.parent().unwrap_or(dir).to_owned() } else { path.with_extension("") };
        test_files.extend(modules.iter().map(|module| below.join(module)));
        counted.push((path, lines));
    }
    counted.retain(|(path, _)| {
        !test_files
            .iter()
            .any(|module| *path == module.with_extension("rs") || path.starts_with(module))
    });
    Ok((counted.len(), counted.iter().map(|(_, lines)| lines).sum()))
}

fn collect(dir: &Path, sources: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name == "tests"
            || name == "tests.rs"
            || GENERATED.iter().any(|part| path.ends_with(part))
        {
            continue;
        }
        if path.is_dir() {
            collect(&path, sources)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            sources.push(path);
        }
    }
    Ok(())
}

/// The lines of a file (as rustfmt leaves it) that are not of tests, and the modules that are tests only.
fn production(text: &str) -> (usize, Vec<String>) {
    let (mut lines, mut modules) = (0, Vec::new());
    let mut all = text.lines();
    while let Some(line) = all.next() {
        if line.trim() != "#[cfg(test)]" {
            lines += 1;
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        for line in all.by_ref() {
            if line.trim_start().starts_with("#[") {
                continue;
            }
            if line.ends_with(';') || line.ends_with(',') {
                let module = line.trim().trim_start_matches("pub(crate) ").strip_prefix("mod ");
                modules.extend(module.map(|name| name.trim_end_matches(';').to_owned()));
            } else if !line.ends_with('}') {
                let end = format!("{indent}}}");
                all.by_ref().find(|line| *line == end);
            }
            break;
        }
    }
    (lines, modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tests_are_not_counted() {
        let text = "//! A file.\n\n#[cfg(test)]\nmod fixtures;\n\nfn a() {\n    b();\n}\n\n\
                    impl A {\n    #[cfg(test)]\n    fn only_here() {\n        c();\n    }\n}\n\n\
                    #[cfg(test)]\n#[path = \"x.rs\"]\nmod tests {\n    fn t() {\n    }\n}\n";
        assert_eq!(production(text), (10, vec!["fixtures".to_owned()]));
    }
}
