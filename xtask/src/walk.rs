//! `cargo xtask walk`: tests under every choice of those assumptions about real vCenters that they depend on.
//!
//! ```text
//!   each test alone ─► which assumptions its simulators consulted ─► the same test under each other choice
//!   --together: the same test under one other choice of each of them at once; narrowed down when it fails
//!   --go: the test named for each assumption ─► passes; fails under each other choice
//! ```
//!
//! Two variables of the environment reach every simulator that a test starts, whichever crate starts it: one forces a
//! choice in place of the default, the other names a file for what was consulted. What a test sets itself wins, and does
//! not count as consulted: a test about one answer of vCenter sets that answer.

mod assumption;
mod consulted;
mod go_assertion;
mod go_tests;
mod passed;
mod plan;
mod rust_tests;
mod search;
mod shown_by;
mod test_run;

use std::{collections::BTreeSet, future::Future, iter::Sum};

use anyhow::{Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lab::Progress;

use self::{
    assumption::Assumption,
    passed::Passed,
    plan::Run,
    search::{Tally, search},
    test_run::Test,
};
use crate::{interrupt::interruptible, lab_commands, output::print_line, suite};

/// A test program that starts vCenters.
struct Walkable {
    package: &'static str,
    program: &'static str,
    /// How many of its tests are in the sample of `make test`: few where a test takes long.
    sample: usize,
}

const fn walkable(package: &'static str, program: &'static str, sample: usize) -> Walkable {
    Walkable { package, program, sample }
}

impl Walkable {
    fn label(&self) -> String {
        format!("-p {} --test {}", self.package, self.program)
    }
}

/// The client, what follows a vCenter, and the cloud controller manager.
const PROGRAMS: [Walkable; 7] = [
    walkable("vsphere", "simulator", usize::MAX),
    walkable("vsphere", "example", 1),
    walkable("vcenter", "follow", 4),
    walkable("ccm", "controller", 4),
    walkable("ccm", "schedules", 0),
    walkable("vsphere-drivers", "program", 0),
    walkable("vsphere-drivers", "csi_controller", 1),
];

/// What their tests start.
const COMPONENTS: [&str; 5] = ["etcd", "kube-apiserver", "vcenter", "cnsctl", "govmomi-requests"];

#[derive(clap::Args)]
pub(crate) struct Walk {
    /// Tests of this package; repeatable. By default those of the client and the cloud controller manager that start vCenters
    #[arg(short, long)]
    package: Vec<String>,
    /// Only this test program; repeatable
    #[arg(long, requires = "package")]
    test: Vec<String>,
    /// Only this assumption; repeatable
    #[arg(long)]
    assumption: Vec<String>,
    /// One other choice of every assumption in each run, a fraction of the runs; a failure is narrowed down to the choice
    /// that causes it. Exact is the walk without this: one choice may keep a test from what another one would show
    #[arg(long, conflicts_with_all = ["sample", "go"])]
    together: bool,
    /// Leaves out what passed in the last whole walk of the same programs, which may have been interrupted
    #[arg(long, conflicts_with_all = ["sample", "go"])]
    resume: bool,
    /// Only what is in `make test`: each choice once in each program, and few of the tests that take long
    #[arg(long, conflicts_with_all = ["package", "go"])]
    sample: bool,
    /// Proves instead that the simulator's test named for each assumption fails under every other choice
    #[arg(long, conflicts_with_all = ["package", "test"])]
    go: bool,
}

/// How many runs ended as they should, and reports on the others.
#[derive(Debug, Default)]
struct Walked {
    passed: usize,
    /// Tests that need root, where we are not.
    left_out: usize,
    failures: Vec<String>,
}

impl Sum for Walked {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.passed += one.passed;
            sum.left_out += one.left_out;
            sum.failures.extend(one.failures);
            sum
        })
    }
}

pub(crate) fn run(command: &Walk) -> Result<()> {
    lab_commands::build_without_packages(&COMPONENTS)?;
    let rows = assumption::named(assumption::all()?, &command.assumption)?;
    if command.go {
        return report(&interruptible(shown_by::prove(&rows))?);
    }
    if command.sample {
        return sample(&rows);
    }
    let programs = rust_tests::find(&wanted(&command.package, &command.test)?)?;
    report(&interruptible(walk(&rows, programs, &How::Whole(command)))?)
}

fn sample(rows: &[Assumption]) -> Result<()> {
    let mut programs = rust_tests::find(&wanted(&[], &[])?)?;
    for tests in &mut programs {
        let size = tests.first().and_then(|test| {
            let in_list = |known: &&Walkable| test.program.label == known.label();
            PROGRAMS.iter().find(in_list).map(|known| known.sample)
        });
        *tests = plan::some(std::mem::take(tests), size.unwrap_or_default());
    }
    report(&interruptible(walk(rows, programs, &How::Sample))?)
}

/// Package and name of the test programs that are meant.
fn wanted(packages: &[String], programs: &[String]) -> Result<BTreeSet<(String, String)>> {
    let is_meant = |package: &String, program: &String| match packages {
        [] => PROGRAMS.iter().any(|known| known.package == package && known.program == program),
        packages => {
            packages.contains(package) && (programs.is_empty() || programs.contains(program))
        }
    };
    let all = suite::test_targets()?.into_iter();
    let found: BTreeSet<_> = all.filter(|(package, program)| is_meant(package, program)).collect();
    if found.is_empty() {
        bail!("{} has no such test program", packages.join(", "));
    }
    Ok(found)
}

fn report(walked: &Walked) -> Result<()> {
    let mut failures: Vec<&String> = walked.failures.iter().collect();
    failures.sort();
    for failure in failures {
        print_line(&format!("\n{failure}"));
    }
    if walked.left_out > 0 {
        print_line(&format!("\n{} left out, because they need root", walked.left_out));
    }
    print_line(&format!("\n{} passed, {} failed", walked.passed, walked.failures.len()));
    if !walked.failures.is_empty() {
        bail!("the list above has the command for each run that failed");
    }
    Ok(())
}

/// What of the planned runs is run.
enum How<'a> {
    Sample,
    Whole(&'a Walk),
}

impl Walk {
    /// Whether it walks through all there is of the programs it names. Only then what passed is noted: another walk in
    /// between must not erase how far an interrupted one has come.
    fn is_complete(&self) -> bool {
        self.assumption.is_empty()
    }
}

impl How<'_> {
    fn resumes(&self) -> bool {
        matches!(self, Self::Whole(Walk { resume: true, .. }))
    }

    fn choose(&self, mut runs: Vec<Run>, passed: &Passed) -> Vec<Run> {
        match self {
            Self::Sample => plan::one_for_each_choice(runs),
            Self::Whole(walk) => {
                let has = |run: &Run| {
                    let passed = |choice| passed.has(&run.test, choice, walk.together);
                    run.choices.iter().all(passed)
                };
                runs.retain(|run| !has(run));
                if walk.together { plan::together(runs) } else { runs }
            }
        }
    }
}

/// Runs the tests of each program under other choices.
async fn walk(rows: &[Assumption], programs: Vec<Vec<Test>>, how: &How<'_>) -> Result<Walked> {
    let programs: Vec<_> = programs.into_iter().filter(|tests| !tests.is_empty()).collect();
    let progress = Progress::shown(2 * programs.len());
    let mut all = Vec::new();
    for tests in &programs {
        let Some(program) = tests.first().map(|test| &test.program) else { continue };
        let label = &program.label;
        let step = progress.step(format!("what {label} consults"));
        let learnt = consulted::learn(tests, &|test| step.note(test)).await?;
        let (file, key) = (consulted::file_of(program, "passed"), consulted::key(program)?);
        let passed = match how {
            How::Whole(walk) if walk.is_complete() => Passed::open(&file, &key, walk.resume)?,
            _ => Passed::read(&file, &key, how.resumes()),
        };
        let runs = how.choose(plan::all(rows, &learnt.tests), &passed);
        let tally = Tally::of(&runs);
        step.done(&format!("{} tests, {} runs under other choices", tests.len(), runs.len()));
        let step = progress.step(format!("{label} under other choices"));
        let runs = runs.into_iter().map(|run| {
            step.note(&tally.note(&run));
            search(run, &passed, &tally)
        });
        let mut walked: Walked = at_once(runs).await?.into_iter().sum();
        walked.failures.splice(0..0, learnt.failures);
        step.done(&format!("{} passed, {} failed", walked.passed, walked.failures.len()));
        all.push(walked);
    }
    Ok(all.into_iter().sum())
}

/// Runs two for each core at once, because most wait most of the time, and gives what they returned.
async fn at_once<T>(runs: impl Iterator<Item = impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    stream::iter(runs).buffer_unordered(2 * cores).try_collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_package_and_name() {
        let names = |packages: &[&str], programs: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
            wanted(&owned(packages), &owned(programs))
        };
        let listed = names(&[], &[]).unwrap();
        assert_eq!(listed.len(), PROGRAMS.len(), "a program of the list is gone: {listed:?}");
        let one = names(&["vsphere"], &["simulator"]).unwrap();
        assert_eq!(one.into_iter().collect::<Vec<_>>(), [("vsphere".into(), "simulator".into())]);
        assert!(names(&["vsphere"], &[]).unwrap().len() > 1);
        let unknown = names(&["vsphere"], &["simulators"]).unwrap_err().to_string();
        assert!(unknown.contains("vsphere has no such test program"), "{unknown}");
    }
}
