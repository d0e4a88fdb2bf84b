//! The bill of materials in CycloneDX's format: the crates that are in the program, and the Debian packages
//! around it. It has no time and no random number, so that equal images have equal bills.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use lab::image::DebianPackage;
use serde_json::{Value, json};

/// The bill of the program with this name, as JSON.
pub(super) fn write(metadata: &Value, program: &str, packages: &[DebianPackage]) -> Result<String> {
    let crates = linked(metadata, program)?;
    let root = crates.iter().find(|one| one["name"] == program);
    let root = root.context("cargo metadata does not know the program")?;
    let others = crates.iter().filter(|one| one["name"] != program);
    let components: Vec<Value> =
        others.map(|one| component(one)).chain(packages.iter().map(debian)).collect();
    let mut about = component(root);
    about["type"] = json!("application");
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": about},
        "components": components,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// The packages whose code is in the program: its normal dependencies and theirs. What only runs while it is
/// compiled is not.
fn linked<'a>(metadata: &'a Value, program: &str) -> Result<Vec<&'a Value>> {
    let list = |value: &'a Value| value.as_array().map_or(&[][..], Vec::as_slice);
    let by_id = |value: &'a Value| {
        list(value).iter().filter_map(|one| Some((one["id"].as_str()?, one))).collect()
    };
    let packages: BTreeMap<&str, &Value> = by_id(&metadata["packages"]);
    let nodes: BTreeMap<&str, &Value> = by_id(&metadata["resolve"]["nodes"]);
    let start = packages.iter().find(|(_, one)| one["name"] == program).map(|(id, _)| *id);
    let mut waiting = vec![start.context("cargo metadata does not know the program")?];
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        let package = packages.get(id).context("cargo metadata lacks a package")?;
        let only_compiles = list(&package["targets"])
            .iter()
            .any(|target| list(&target["kind"]).contains(&json!("proc-macro")));
        if only_compiles || !seen.insert(id) {
            continue;
        }
        for used in nodes.get(id).map(|node| list(&node["deps"])).unwrap_or_default() {
            let normal = list(&used["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            waiting.extend(used["pkg"].as_str().filter(|_| normal));
        }
    }
    let mut found: Vec<&Value> = seen.iter().filter_map(|id| packages.get(id).copied()).collect();
    found.sort_by_key(|one| (one["name"].as_str(), one["version"].as_str()));
    Ok(found)
}

fn component(package: &Value) -> Value {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let reference = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference,
    });
    if let Some(license) = package["license"].as_str() {
        // Old crates separate alternatives by a slash.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    component
}

fn debian(package: &DebianPackage) -> Value {
    let DebianPackage { name, version, architecture } = package;
    // A plus sign is a space to many readers of such references.
    let escaped = version.replace('+', "%2B").replace(':', "%3A").replace('~', "%7E");
    let reference = format!("pkg:deb/debian/{name}@{escaped}?arch={architecture}");
    json!({"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference})
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, kind: &str) -> Value {
        json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "targets": [{"kind": [kind]}]})
    }

    fn dependency(name: &str, kind: &Value) -> Value {
        json!({"pkg": name, "dep_kinds": [{"kind": kind}]})
    }

    #[test]
    fn only_what_is_in_the_program_is_listed() {
        let normal = |name: &str| dependency(name, &Value::Null);
        let metadata = json!({
            "packages": [
                package("program", "bin"), package("used", "lib"), package("deep", "lib"),
                package("macros", "proc-macro"), package("of-macros", "lib"), package("built", "lib"),
                package("tested", "lib"), package("stranger", "lib"),
            ],
            "resolve": {"nodes": [
                {"id": "program", "deps": [normal("used"), normal("macros"), dependency("tested", &json!("dev"))]},
                {"id": "used", "deps": [normal("deep"), dependency("built", &json!("build"))]},
                {"id": "macros", "deps": [normal("of-macros")]},
            ]},
        });
        let debian = DebianPackage {
            name: "libc6".to_owned(),
            version: "2.36-9+deb12u14".to_owned(),
            architecture: "amd64".to_owned(),
        };
        let bill: Value =
            serde_json::from_str(&write(&metadata, "program", &[debian]).unwrap()).unwrap();
        let names: Vec<_> =
            bill["components"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["deep", "used", "libc6"]);
        assert_eq!(bill["metadata"]["component"]["name"], "program");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            bill["components"][2]["purl"],
            "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64"
        );
    }
}
