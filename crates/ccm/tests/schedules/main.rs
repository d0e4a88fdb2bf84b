//! Two hundred random schedules of faults: whatever happens in whatever order, no Node is ever wrong, and soon after
//! the last fault all are right.
//!
//! `SEED=n` plays one schedule alone; a failure names its seed.

#![cfg(test)]

mod lane;
#[path = "../shared/node.rs"]
mod node;
mod play;
mod script;
mod witness;

use std::{io::Write as _, time::Duration};

use self::{
    lane::Lane,
    play::{Converged, play},
    script::Script,
};

/// How many schedules are played.
const SCHEDULES: u64 = 200;
/// How many are played at once, each with an API server and a vCenter of its own: most of the time all wait.
const LANES: u64 = 8;

/// Later than this is later than anybody wants to wait.
const LATE: Duration = Duration::from_secs(10);

/// What became of a schedule.
type Outcome = (u64, anyhow::Result<Converged>);

/// Plays schedules one after the other, on one API server and one vCenter.
fn play_all(seeds: &[u64]) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut lane = Lane::start(seeds.len()).await;
        let mut outcomes = Vec::new();
        for (slot, seed) in seeds.iter().enumerate() {
            let played = Box::pin(play(&mut lane, slot, &Script::of(*seed))).await;
            let failed = played.is_err();
            outcomes.push((*seed, played));
            if failed {
                break;
            }
        }
        outcomes
    })
}

#[test]
fn two_hundred_random_schedules_never_harm_a_node_and_all_converge() {
    let seeds: Vec<u64> = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (1..=SCHEDULES).collect(),
    };
    let lanes: Vec<Vec<u64>> = (0..LANES)
        .map(|lane| seeds.iter().copied().filter(|seed| seed % LANES == lane).collect())
        .collect();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let lanes = lanes.iter().filter(|seeds| !seeds.is_empty());
        let playing: Vec<_> = lanes.map(|seeds| scope.spawn(|| play_all(seeds))).collect();
        playing.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    let problems: Vec<String> = outcomes
        .iter()
        .filter_map(|(seed, outcome)| {
            let problem = outcome.as_ref().err()?;
            Some(format!("SEED={seed}: {problem:#}\n{:?}", Script::of(*seed)))
        })
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    assert_eq!(outcomes.len(), seeds.len());
    report(&outcomes);
}

/// Says how long it took until everything was right, which is worth knowing and no reason to fail.
fn report(outcomes: &[Outcome]) {
    let converged = |(seed, outcome): &Outcome| {
        let Converged { after, last } = outcome.as_ref().ok()?;
        Some((*after, *seed, *last))
    };
    let mut times: Vec<(Duration, u64, &str)> = outcomes.iter().filter_map(converged).collect();
    times.sort_unstable();
    let late = times.iter().filter(|(after, ..)| *after > LATE).count();
    let middle = times.get(times.len() / 2).map(|(after, ..)| *after).unwrap_or_default();
    // Past the test's own output, which nobody sees while all is well.
    let mut told = std::io::stdout();
    let count = times.len();
    writeln!(
        told,
        "{count} schedules were right after {middle:.1?} in the middle, {late} after {LATE:?}"
    )
    .unwrap();
    for (after, seed, last) in times.iter().rev().take(5) {
        writeln!(told, "SEED={seed}: {after:.1?}, until then {last}").unwrap();
    }
}
