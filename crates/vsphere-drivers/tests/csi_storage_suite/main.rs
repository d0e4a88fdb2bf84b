//! A fixed sample of Kubernetes' own storage suite against the deployed CSI driver; `make e2e` runs all of it. Needs root.

#![cfg(test)]

#[path = "../support/csi_lab.rs"]
mod csi_lab;

mod nodes {
    use std::{collections::BTreeSet, path::Path};

    use lab::{
        Spec as LabSpec, csi_driver,
        storage_suite::{self, Outcome, Run, Spec, State},
    };

    use crate::csi_lab::deployed;

    /// A quarter of the specs that apply to the driver, in the suite's own words; of every suite at least one.
    const SAMPLE: &str = include_str!("sample.txt");

    /// As `make e2e` runs them.
    const AT_ONCE: usize = 4;

    fn sample() -> Vec<Spec> {
        let names: BTreeSet<&str> = SAMPLE.lines().collect();
        let mut specs = storage_suite::specs(None).unwrap();
        specs.retain(|spec| names.contains(spec.name.as_str()));
        let found: BTreeSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let unknown: Vec<_> = names.difference(&found).collect();
        assert!(unknown.is_empty(), "`cargo xtask e2e --list` does not name these: {unknown:#?}");
        specs
    }

    fn describe(outcome: &Outcome) -> String {
        let Outcome { spec, state, reason, .. } = outcome;
        format!("{}: {}\n{reason}", spec.name, state.name())
    }

    #[tokio::test]
    async fn the_sample_of_kubernetes_storage_suite_passes() {
        let specs = sample();
        let lab = deployed(&LabSpec::with_vcenter()).await;
        let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("storage-suite");
        let run = Run { logs: logs.clone(), at_once: AT_ONCE };
        let outcomes = run.specs(&lab, specs, &|_| {}).await.unwrap();
        let others = outcomes.iter().filter(|outcome| outcome.state != State::Passed);
        let others: Vec<String> = others.map(describe).collect();
        assert!(
            others.is_empty(),
            "{} of {} specs did not pass; {} has their output\n\n{}\n\n{}",
            others.len(),
            outcomes.len(),
            logs.display(),
            others.join("\n\n"),
            csi_driver::logs(&lab),
        );
    }
}
