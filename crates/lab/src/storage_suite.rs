//! Kubernetes' own storage suite; `lab/e2e/driver.yaml` describes our driver to it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{process::run, world::World};

/// What we leave out: other operating systems, and specs that want the cluster for themselves or hours.
const SKIP: &str = "Slow|Disruptive|Windows|Serial";

/// The names of the specs that apply to the driver. Starts nothing: it is the suite's own dry run.
///
/// # Errors
/// When the suite is not built or rejects the driver's definition.
pub fn specs() -> Result<Vec<String>> {
    let world = World::claim()?;
    let definition = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/e2e/driver.yaml");
    let report = world.dir().join("specs.json");
    run(Command::new(components::binary("e2e.test")?)
        .current_dir(world.dir())
        .arg(format!("-storage.testdriver={}", definition.canonicalize()?.display()))
        .args(["-ginkgo.dry-run", "-ginkgo.focus=External.Storage"])
        .arg(format!("-ginkgo.skip={SKIP}"))
        .arg(format!("-ginkgo.json-report={}", report.display())))?;
    let report: Vec<Report> =
        serde_json::from_slice(&fs::read(&report)?).context("the suite's report")?;
    let specs = report.into_iter().flat_map(|suite| suite.specs);
    Ok(specs.filter(|spec| spec.kind == "It" && spec.state == "passed").map(Spec::name).collect())
}

#[derive(serde::Deserialize)]
struct Report {
    #[serde(rename = "SpecReports")]
    specs: Vec<Spec>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    #[serde(rename = "LeafNodeType")]
    kind: String,
    state: String,
    container_hierarchy_texts: Value,
    leaf_node_text: String,
}

impl Spec {
    fn name(self) -> String {
        let containers = self.container_hierarchy_texts.as_array().cloned().unwrap_or_default();
        let words = containers.iter().filter_map(Value::as_str).map(str::trim);
        words.chain([self.leaf_node_text.as_str()]).collect::<Vec<_>>().join(" ")
    }
}
